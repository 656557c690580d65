"""What every full screen of the console has around its content: header, prompt, keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widget import Widget

from llmgw_tui.actions import Scope
from llmgw_tui.screens.bars import HeaderBar, KeyBar
from llmgw_tui.screens.prompt import Prompt
from llmgw_tui.targets import Selection

if TYPE_CHECKING:
    from llmgw_tui.app import ConsoleApp


class FramedScreen(Screen[None]):
    """A full screen: ``content`` between the header above and prompt and keys below."""

    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (110, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (18, "-low"), (40, "-tall")]  # noqa: RUF012
    app: ConsoleApp

    def compose(self) -> ComposeResult:
        """The frame."""
        yield HeaderBar()
        yield from self.content()
        yield Prompt(self.app.complete)
        yield KeyBar()

    def on_mount(self) -> None:
        """Show what is known already."""
        self.apply()
        self.update_bars()

    def content(self) -> Iterable[Widget]:
        """What the screen is for."""
        return ()

    # what the application asks of each

    def apply(self) -> None:
        """Show the newest snapshot and events."""

    def selection(self) -> Selection | None:
        """What verbs act on."""
        return None

    def scope(self) -> Scope | None:
        """Which keys work besides those that work anywhere."""
        return None

    def filter_by(self, text: str) -> None:
        """Show only what matches."""

    def highlight(self, text: str) -> None:
        """Make a text stand out."""

    def filtered_by(self) -> str:
        """The filter that is in force."""
        return ""

    def step_back(self) -> bool:
        """Undo one thing that esc undoes; False where there is nothing."""
        return False

    # the bars

    def update_bars(self) -> None:
        """Header and keys as they are now."""
        self.query_one(HeaderBar).show(self.app.header())
        self.query_one(KeyBar).show(self.app.bar_actions(self.scope()))

    def open_prompt(self, sign: str, text: str = "") -> None:
        """Show the line for commands (``:``) or filters (``/``)."""
        self.query_one(Prompt).open(sign, text)

    @on(Prompt.Submitted)
    def _submitted(self, event: Prompt.Submitted) -> None:
        event.stop()
        self.app.verbs.run_line(event.text)

    @on(Prompt.Filtered)
    def _filtered(self, event: Prompt.Filtered) -> None:
        event.stop()
        self.filter_by(event.text)

    @on(Prompt.Sought)
    def _sought(self, event: Prompt.Sought) -> None:
        event.stop()
        self.highlight(event.text)

    @on(Prompt.Closed)
    def _prompt_closed(self, event: Prompt.Closed) -> None:
        event.stop()
        self.focus_content()

    def focus_content(self) -> None:
        """Give the focus back to what the screen is for."""
