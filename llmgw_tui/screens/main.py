"""The screen that is always there: one view at a time, switched without a flicker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from textual.widget import Widget
from textual.widgets import ContentSwitcher

from llmgw_tui.actions import Kind, Scope
from llmgw_tui.screens.frame import FramedScreen
from llmgw_tui.screens.overview import OverviewView
from llmgw_tui.screens.views import EventsView, ModelsView, NodesView, ReplicasView, View
from llmgw_tui.targets import Selection

if TYPE_CHECKING:
    from llmgw_tui.screens.logs import LogsView

FIRST = "overview"


def make_view(name: str) -> View:
    """A new view by its name."""
    match name:
        case "nodes":
            return NodesView(id=name)
        case "replicas":
            return ReplicasView(id=name)
        case "models":
            return ModelsView(id=name)
        case "events":
            return EventsView(id=name)
        case "logs":
            from llmgw_tui.screens.logs import LogsView

            return LogsView(id=name)
        case "mirror":
            from llmgw_tui.screens.mirror import VersionsView

            return VersionsView(id=name)
    return OverviewView(id=FIRST)


class MainScreen(FramedScreen):
    """Views are made when they are first looked at: the first paint has only one."""

    def __init__(self) -> None:
        super().__init__()
        self.view_name = FIRST
        self.last_view = FIRST
        self._switching = asyncio.Lock()

    def content(self) -> Iterable[Widget]:
        """The switcher with the first view."""
        with ContentSwitcher(initial=FIRST, id="views"):
            yield make_view(FIRST)

    @property
    def view(self) -> View:
        """The one that is shown."""
        return self.query_one(f"#{self.view_name}", View)

    @property
    def logs(self) -> LogsView:
        """The view of logs; it must have been shown."""
        from llmgw_tui.screens.logs import LogsView

        return self.query_one("#logs", LogsView)

    async def show_view(self, name: str) -> None:
        """Switch to a view and give it the focus."""
        async with self._switching:
            switcher = self.query_one("#views", ContentSwitcher)
            if not switcher.query(f"#{name}"):
                view = make_view(name)
                view.display = False
                await switcher.mount(view)
            if name != self.view_name:
                self.view.left()
                self.last_view, self.view_name = self.view_name, name
            switcher.current = name
            self.minimize()
            self.view.entered()
            self.apply()
            self.update_bars()
            self.view.focus_inside()

    def apply(self) -> None:
        """Only what is seen is brought up to date."""
        self.view.apply()

    def selection(self) -> Selection | None:
        """Of the view."""
        return self.view.selection()

    def scope(self) -> Scope | None:
        """Of the view, or of the list in it that has the focus."""
        return self.view.scope()

    def filter_by(self, text: str) -> None:
        """In the view."""
        self.view.filter_by(text)

    def highlight(self, text: str) -> None:
        """In the log."""
        if self.view_name == "logs":
            self.logs.highlight(text)

    def filtered_by(self) -> str:
        """In the view."""
        return self.view.filtered_by()

    def step_back(self) -> bool:
        """A pane that fills the screen first, then the filter, then marks."""
        if self.maximized is not None:
            self.minimize()
            return True
        return self.view.step_back()

    def toggle(self, what: str) -> None:
        """``faults`` or ``wide`` in the view."""
        self.view.toggle(what)
        self.apply()

    def fold(self, what: str) -> None:
        """Show or hide a pane of the overview."""
        if isinstance(self.view, OverviewView):
            self.view.fold(what)

    def point_at(self, id_: str) -> None:
        """Put the cursor of the view on an object."""
        self.view.point_at(id_)

    def shown_rows(self) -> Sequence[object]:
        """What the view lists."""
        return self.view.shown_rows()

    def follow(self, replica: str, previous: bool) -> None:
        """Show a replica's log; the view of logs must be shown."""
        self.logs.follow(replica, previous=previous)

    def replica_in_sight(self) -> str | None:
        """The replica under a cursor, in the view before this one or in the overview."""
        for name in (self.last_view, "replicas", FIRST):
            for view in self.query(f"#{name}").results(View):
                selection = view.selection()
                if selection is not None and selection.kind is Kind.REPLICA:
                    return selection.cursor
        return None

    def focus_content(self) -> None:
        """To the view."""
        self.view.focus_inside()
