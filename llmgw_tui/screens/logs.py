"""The log of one replica, as it is written."""

from __future__ import annotations

import asyncio

from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from llmgw_core.errors import LlmgwError
from llmgw_tui.actions import Scope
from llmgw_tui.paint import content
from llmgw_tui.rows.empty import no_log
from llmgw_tui.rows.overview import ticker
from llmgw_tui.rows.parts import Part
from llmgw_tui.screens.dialog import plain
from llmgw_tui.screens.views import View
from llmgw_tui.state import Phase, replica_named
from llmgw_tui.text import clean
from llmgw_tui.widgets.log_pane import LogPane

LINES_FIRST = 1000


class LogsView(View):
    """Follows a replica's log as long as it is shown."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._replica: str | None = None
        self._previous = False
        self._reader: asyncio.Task[None] | None = None
        self._lines = 0
        self._ended = ""

    def compose(self) -> ComposeResult:
        """The log, and what stands there before its first line."""
        with Container(classes="pane", id="log-pane"):
            yield LogPane(id="log")
            yield plain("", classes="empty")

    @property
    def pane(self) -> LogPane:
        """The log."""
        return self.query_one(LogPane)

    def follow(self, replica: str, *, previous: bool) -> None:
        """Show the log of this replica."""
        self._replica, self._previous = replica, previous
        self._restart()
        self.apply()

    def entered(self) -> None:
        """Follow again, where the view was left; a replica that is selected elsewhere at first."""
        if self._replica is None:
            self._replica = self.app.main.replica_in_sight()
        if self._replica is not None and self._reader is None:
            self._restart()

    def left(self) -> None:
        """Nobody looks: no log travels."""
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def on_unmount(self) -> None:
        """The task ends with the view."""
        self.left()

    def _restart(self) -> None:
        self.left()
        self.pane.clear()
        self.pane.following = True
        self._lines, self._ended = 0, ""
        self._reader = asyncio.create_task(self._read(), name="console log")

    async def _read(self) -> None:
        client, replica = self.app.link.client, self._replica
        if client is None or replica is None:
            self._ended = "there is no connection to the engine"
            return
        try:
            async for batch in client.logs(
                replica, lines=LINES_FIRST, follow=not self._previous, previous=self._previous
            ):
                await self.app.going_on.wait()
                self._lines += len(batch.lines)
                self.pane.append_lines(batch.lines)
                self._draw()
            self._ended = "the whole log" if self._previous else "the log has ended"
        except LlmgwError as error:
            self._ended = str(error)
        self._draw()

    def apply(self) -> None:
        """Title, and what stands there while there is no line; a lost engine is followed again."""
        if self._ended and self._reader is not None and self._reader.done() and (
            self.app.link.phase is Phase.LIVE and not self._previous and self._lost
        ):  # fmt: skip
            self._restart()
        self._lost = self.app.link.phase is Phase.LOST
        self._draw()

    _lost = False

    def _draw(self) -> None:
        frame = self.query_one("#log-pane")
        kind = "Previous log" if self._previous else "Log"
        name = f"{kind}  {clean(self._replica)}" if self._replica else "Log"
        frame.border_title = Content(name + self._filters())
        frame.border_subtitle = Content(self._standing())
        frame.set_class(self.app.link.phase is Phase.LOST, "-stale")
        label = frame.query_one(".empty", Static)
        label.display = self._lines == 0
        self.pane.set_class(self._lines == 0, "-empty")
        if self._lines == 0:
            label.update(self._nothing(max(20, frame.size.width - 8)), layout=False)

    def _filters(self) -> str:
        notes = [f"/{clean(self.pane.filter_text)}"] if self.pane.filter_text else []
        notes += [f"find {clean(self.pane.highlight_text)}"] if self.pane.highlight_text else []
        notes += ["wrap"] if self.pane.wrapping else []
        return "".join(f"  {note}" for note in notes)

    def _standing(self) -> str:
        if self._ended:
            return clean(self._ended)
        return "following" if self.pane.following else "not following: s or G goes on"

    def _nothing(self, width: int) -> Content:
        replica = replica_named(self.app.shown, self._replica) if self._replica else None
        lines = [content([Part(no_log(self._replica, replica, self._ended), "muted")])]
        own = [e for e in self.app.shown_events if self._replica and e.replica == self._replica]
        if own:
            lines += [Content(""), content([Part("Events", "accent")])]
            lines += [content(line) for line in ticker(own, width, 40, ascii_only=self.app.ascii)]
        return Content("\n").join(lines)

    def on_log_pane_follow_changed(self, event: LogPane.FollowChanged) -> None:
        """Say that the end is not followed any more, and how to go on."""
        self._draw()

    def do(self, action_id: str) -> None:
        """One of the actions of logs."""
        pane = self.pane
        match action_id:
            case "log-follow":
                pane.action_follow()
            case "log-wrap":
                pane.action_wrap()
            case "log-next":
                pane.action_next(1)
            case "log-before":
                pane.action_next(-1)
            case "log-mark":
                pane.action_mark()
            case "log-clear":
                pane.clear()
            case "log-copy":
                self.app.copy(pane.text())
        self._draw()

    def highlight(self, text: str) -> None:
        """Make a text stand out."""
        self.pane.highlight(text)
        self._draw()

    def scope(self) -> Scope:
        """Of logs."""
        return Scope.LOGS

    def filter_by(self, text: str) -> None:
        """Show only lines that match."""
        self.pane.filter_by(text)
        self._draw()

    def filtered_by(self) -> str:
        """The filter in force."""
        return self.pane.filter_text

    def step_back(self) -> bool:
        """Clear the filter, else the highlight."""
        if self.pane.filter_text:
            self.filter_by("")
        elif self.pane.highlight_text:
            self.highlight("")
        else:
            return False
        return True

    def focus_inside(self) -> None:
        """The log."""
        self.pane.focus()
