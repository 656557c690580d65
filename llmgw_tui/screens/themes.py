"""Picking colours: each is shown on everything behind the dialog as the cursor passes over it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.content import Content
from textual.widget import Widget
from textual.widgets import Button, OptionList
from textual.widgets.option_list import Option

from llmgw_tui.screens.dialog import Dialog


class ThemeDialog(Dialog[str]):
    """Gives the name that was chosen, or None after esc: then the caller puts the old one back."""

    AUTO_FOCUS: ClassVar[str | None] = "OptionList"
    heading = "Theme"

    def __init__(self, names: Sequence[str], now: str) -> None:
        super().__init__()
        self._names = tuple(names)
        self._now = now

    def body(self) -> Iterable[Widget]:
        """The names, with the cursor on the one in force."""
        yield OptionList(*(Option(Content(name), id=name) for name in self._names), compact=True)

    def buttons(self) -> Iterable[Widget]:
        """Only the way back."""
        yield Button("Cancel", id="cancel", compact=True)

    def on_mount(self) -> None:
        """Start at the theme in force."""
        if self._now in self._names:
            self.query_one(OptionList).highlighted = self._names.index(self._now)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show it."""
        if event.option.id is not None:
            self.app.theme = event.option.id

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take it."""
        self.dismiss(event.option.id)
