"""One of a few, each explained on its line; the chosen one has a dot, not only a colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import RenderResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget


class Choice(Widget, can_focus=True):
    """Up and down choose; there is always exactly one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("enter", "take", show=False),
    ]
    ALLOW_SELECT = False
    value: reactive[str] = reactive("")

    class Changed(Message):
        """Another one was chosen."""

    class Taken(Message):
        """Enter was pressed on it."""

    def __init__(
        self,
        options: Sequence[tuple[str, str]],
        value: str,
        *,
        id: str,
    ) -> None:
        super().__init__(id=id)
        self._options = tuple(options)
        self.set_reactive(Choice.value, value)
        self.styles.height = len(self._options)

    def render(self) -> RenderResult:
        """A line for each."""
        lines = []
        for name, text in self._options:
            chosen = name == self.value
            style = "bold" if chosen else "$foreground 60%"
            if chosen and self.has_focus:
                style = "bold reverse"
            lines.append(Content.styled(f"({'•' if chosen else ' '}) {text}", style))
        return Content("\n").join(lines)

    def action_move(self, step: int) -> None:
        """Choose the one above or below."""
        names = [name for name, _ in self._options]
        at = names.index(self.value) if self.value in names else 0
        self.value = names[max(0, min(len(names) - 1, at + step))]

    def action_take(self) -> None:
        """Enter is the dialog's button."""
        self.post_message(self.Taken())

    def watch_value(self) -> None:
        """Say so."""
        self.post_message(self.Changed())

    def on_focus(self) -> None:
        """Shown on the chosen line."""
        self.refresh()

    def on_blur(self) -> None:
        """No longer shown."""
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Choose what was clicked."""
        if 0 <= event.y < len(self._options):
            self.value = self._options[event.y][0]
