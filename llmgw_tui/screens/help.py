"""Keys and commands, from the table, with the keys that are in force."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from llmgw_tui.action_table import ACTIONS
from llmgw_tui.actions import Action, Scope, allowed, in_scope, key_name
from llmgw_tui.paint import content
from llmgw_tui.rows.parts import Part
from llmgw_tui.screens.dialog import plain

if TYPE_CHECKING:
    from llmgw_tui.app import ConsoleApp

KEY_WIDTH = 13
USAGE_WIDTH, USAGE_NARROW = 24, 18
NARROW = 84


class HelpScreen(ModalScreen[None]):
    """What works where a person stands comes first."""

    CSS_PATH = "dialog.tcss"
    AUTO_FOCUS: ClassVar[str | None] = "#help"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1", "dismiss", "Close"),
        Binding("j", "scroll('down')", show=False),
        Binding("k", "scroll('up')", show=False),
    ]
    app: ConsoleApp

    def __init__(self, scope: Scope | None) -> None:
        super().__init__()
        self._scope = scope

    def compose(self) -> ComposeResult:
        """One scrolling page."""
        with VerticalScroll(id="help", can_focus=True):
            yield plain("", id="help-text")

    def on_mount(self) -> None:
        """The frame."""
        frame = self.query_one("#help")
        frame.border_title = Content("Keys and commands")
        frame.border_subtitle = Content("esc closes")

    def on_resize(self) -> None:
        """Fill it, as wide as it is."""
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        width = self.query_one("#help", VerticalScroll).scrollable_content_region.width
        lines = help_lines(self._scope, self.app.keys_of, width, read_only=self.app.read_only)
        text = Content("\n").join(content(line) for line in lines)
        self.query_one("#help-text", Static).update(text)

    def action_scroll(self, where: str) -> None:
        """A line down or up."""
        page = self.query_one("#help", VerticalScroll)
        page.scroll_relative(y=1 if where == "down" else -1, animate=False)


def help_lines(
    scope: Scope | None, keys: dict[str, tuple[str, ...]], width: int, *, read_only: bool
) -> list[list[Part]]:
    """All actions by the place where their keys work, this place first."""
    order = [scope] if scope is not None else []
    order += [other for other in Scope if other is not scope]
    lines: list[list[Part]] = []
    for place in order:
        actions = [a for a in in_scope(ACTIONS, place) if allowed(a, read_only=read_only)]
        if not actions:
            continue
        lines += [[Part("")]] if lines else []
        lines.append(
            [Part(str(place), "accent"), Part("  (here)" if place is scope else "", "muted")]
        )
        for action in actions:
            lines += _rows(action, keys[action.id], width)
    if read_only:
        lines += [[Part("")], [Part("Read-only: what changes something is not there.", "draining")]]
    return lines


def _rows(action: Action, keys: tuple[str, ...], width: int) -> list[list[Part]]:
    """Key, command and sentence; a long sentence goes on under its beginning."""
    key = f"  {' '.join(key_name(key) for key in keys):<{KEY_WIDTH}}"
    usage = [f":{action.short_usage}"]
    room = USAGE_WIDTH if width >= NARROW else USAGE_NARROW
    says = textwrap.wrap(action.help, max(20, width - KEY_WIDTH - room - 5))
    rows: list[list[Part]] = []
    for i in range(max(len(usage), len(says))):
        left = key if i == 0 else " " * len(key)
        middle = usage[i] if i < len(usage) else ""
        right = says[i] if i < len(says) else ""
        rows.append([Part(left, "key"), Part(f"{middle:<{room + 2}}", "muted"), Part(right)])
    return rows
