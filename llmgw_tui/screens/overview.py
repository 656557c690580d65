"""Nodes, replicas, numbers and events at once."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from llmgw_core.api.views import ModelView
from llmgw_tui.actions import Scope
from llmgw_tui.paint import content
from llmgw_tui.rows.overview import numbers, ticker
from llmgw_tui.rows.parts import Part
from llmgw_tui.screens.panes import ListPane
from llmgw_tui.screens.views import NODES, REPLICAS, View, fill
from llmgw_tui.state import Phase, model_named, replica_named
from llmgw_tui.targets import Selection
from llmgw_tui.text import clean

FRAME = 3
"""Lines of a pane that hold no rows: two of border, one of column titles."""
NODE_ROWS_LEAST = 3
NODE_SHARE = 0.45
"""Of the height, at most, for nodes."""
EMPTY_ROWS, EMPTY_SHARE = 12, 0.7
"""Without a node there is more to say: how to add one."""


class Painted(Static):
    """A pane of painted lines; nothing is repainted where nothing changed."""

    def __init__(self, title: str, id_: str) -> None:
        super().__init__("", markup=False, id=id_)
        self._title = title
        self._drawn: object = None

    def on_mount(self) -> None:
        """The first title."""
        self.border_title = Content(self._title)

    def draw(self, title: str, lines: Sequence[Sequence[Part]]) -> None:
        """Show these lines."""
        drawn = (title, tuple(tuple(line) for line in lines))
        if drawn == self._drawn:
            return
        self._drawn = drawn
        if title != self._title:
            self._title = title
            self.border_title = Content(title)
        self.update(Content("\n").join(content(line) for line in lines), layout=False)


class OverviewView(View):
    """The first view. The numbers are those of the model that the cursor is on."""

    _last_active = "#replicas-pane"

    def compose(self) -> ComposeResult:
        """Lists to the left, numbers and events to the right; stacked where it is narrow."""
        with Vertical(id="left"):
            yield ListPane(NODES, id="nodes-pane")
            yield ListPane(REPLICAS, id="replicas-pane")
        with Vertical(id="right"):
            yield Painted("Numbers", "metrics")
            yield Painted("Events", "ticker")

    @property
    def _node_pane(self) -> ListPane:  # type: ignore[type-arg]
        return self.query_one("#nodes-pane", ListPane)

    @property
    def _replica_pane(self) -> ListPane:  # type: ignore[type-arg]
        return self.query_one("#replicas-pane", ListPane)

    @property
    def _active(self) -> ListPane:  # type: ignore[type-arg]
        for pane in (self._node_pane, self._replica_pane):
            if pane.table.has_focus:
                self._last_active = f"#{pane.id}"
        return self.query_one(self._last_active, ListPane)

    def on_mount(self) -> None:
        """Replicas first: + and - work at once."""
        self._replica_pane.table.focus()

    def apply(self) -> None:
        """Bring all panes up to date."""
        self._size_nodes()
        fill(self._node_pane, self.app)
        fill(self._replica_pane, self.app)
        self._draw_side()

    def on_resize(self) -> None:
        """Other room."""
        self._size_nodes()
        self.call_after_refresh(self._draw_side)

    def on_list_pane_pointed(self) -> None:
        """The cursor moved: other numbers."""
        self._draw_side()

    def _size_nodes(self) -> None:
        """As many lines as there are nodes, within bounds, so that replicas get the rest."""
        snapshot = self.app.shown
        rows = max(NODE_ROWS_LEAST, len(snapshot.nodes) if snapshot is not None else 0)
        share = NODE_SHARE
        if snapshot is not None and not snapshot.nodes:
            rows, share = EMPTY_ROWS, EMPTY_SHARE
        most = max(1, int(self.query_one("#left").size.height * share) - FRAME)
        self._node_pane.styles.height = min(rows, most) + FRAME

    def _draw_side(self) -> None:
        app = self.app
        metrics, events = self.query_one("#metrics", Painted), self.query_one("#ticker", Painted)
        stale = app.link.phase is Phase.LOST
        metrics.set_class(stale, "-stale")
        model = self.model()
        room = metrics.content_size
        if model is not None and room.width > 0:
            lines = numbers(model, room.width, room.height, ascii_only=app.ascii)
            metrics.draw(clean(model.name), lines)
        else:
            metrics.draw("Numbers", [[Part(self._nothing(), "muted")]])
        size = events.content_size
        if size.width > 0:
            lines = ticker(app.shown_events, size.width, size.height, ascii_only=app.ascii)
            events.draw("Events", lines or [[Part(self._nothing(), "muted")]])

    def _nothing(self) -> str:
        return "nothing yet" if self.app.shown is not None else "starting the engine…"

    def model(self) -> ModelView | None:
        """The model of the replica under the cursor, else the first of the catalog."""
        snapshot = self.app.shown
        if snapshot is None:
            return None
        cursor = self._replica_pane.table.cursor_id
        replica = replica_named(snapshot, cursor) if cursor is not None else None
        model = model_named(snapshot, replica.model) if replica is not None else None
        return model or (snapshot.models[0] if snapshot.models else None)

    def fold(self, what: str) -> None:
        """Show or hide ``metrics`` or ``ticker``, also where there is little room."""
        pane = self.query_one(f"#{what}")
        shown = pane.display
        pane.set_class(shown, "-folded")
        pane.set_class(not shown, "-unfolded")
        both = not any(child.display for child in self.query_one("#right").children)
        self.query_one("#right").set_class(both, "-folded")
        self.call_after_refresh(self._draw_side)

    def selection(self) -> Selection | None:
        """Of the list that has the focus."""
        return self._active.selection()

    def scope(self) -> Scope | None:
        """Of the list that has the focus."""
        return self._active.spec.scope

    def filter_by(self, text: str) -> None:
        """In the list that had the focus."""
        self._active.filter_by(text)

    def filtered_by(self) -> str:
        """In the list that has the focus."""
        return self._active.filter_text

    def step_back(self) -> bool:
        """In the list that has the focus."""
        return self._active.step_back()

    def toggle(self, what: str) -> None:
        """In the list that has the focus."""
        self._active.toggle(what)

    def point_at(self, id_: str) -> None:
        """In the list that has the focus."""
        self._active.point_at(id_)

    def shown_rows(self) -> Sequence[object]:
        """Of the list that has the focus."""
        return self._active.shown_rows()

    def focus_inside(self) -> None:
        """The list that had it last."""
        self._active.table.focus()
