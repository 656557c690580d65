"""The views of lists: one pane that fills the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Container

from llmgw_core.api.views import EventView, ModelView, NodeView, ReplicaView, Snapshot
from llmgw_tui.actions import Kind, Scope
from llmgw_tui.rows import empty, events, models, nodes, replicas
from llmgw_tui.screens.panes import ListPane, PaneKind
from llmgw_tui.state import Phase
from llmgw_tui.targets import Selection

if TYPE_CHECKING:
    from llmgw_tui.app import ConsoleApp

NODES: PaneKind[NodeView] = PaneKind(
    title="Nodes", scope=Scope.NODES, kind=Kind.NODE, columns=nodes.NODE_COLUMNS,
    key=lambda node: node.name, fault=nodes.is_fault, empty=empty.no_nodes,
)  # fmt: skip
REPLICAS: PaneKind[ReplicaView] = PaneKind(
    title="Replicas", scope=Scope.REPLICAS, kind=Kind.REPLICA, columns=replicas.REPLICA_COLUMNS,
    key=lambda replica: replica.id, fault=replicas.is_fault, empty=empty.no_replicas,
)  # fmt: skip
MODELS: PaneKind[ModelView] = PaneKind(
    title="Models", scope=Scope.MODELS, kind=Kind.MODEL, columns=models.MODEL_COLUMNS,
    key=lambda model: model.name, fault=models.is_fault, empty=empty.no_models,
)  # fmt: skip
EVENTS: PaneKind[EventView] = PaneKind(
    title="Events", scope=Scope.EVENTS, kind=None, columns=events.EVENT_COLUMNS,
    key=lambda event: str(event.seq), fault=events.is_fault, empty=lambda _: empty.NO_EVENTS,
)  # fmt: skip


class View(Container):
    """What the main screen asks of each view."""

    app: ConsoleApp

    def apply(self) -> None:
        """Show the newest."""

    def selection(self) -> Selection | None:
        """What verbs act on."""
        return None

    def scope(self) -> Scope | None:
        """Which keys work besides those that work anywhere."""
        return None

    def filter_by(self, text: str) -> None:
        """Show only what matches."""

    def filtered_by(self) -> str:
        """The filter in force."""
        return ""

    def step_back(self) -> bool:
        """Undo a filter or marks."""
        return False

    def toggle(self, what: str) -> None:
        """``faults`` or ``wide``."""

    def point_at(self, id_: str) -> None:
        """Put the cursor on an object."""

    def shown_rows(self) -> Sequence[object]:
        """The rows as filtered and sorted."""
        return ()

    def focus_inside(self) -> None:
        """Take the focus."""

    def entered(self) -> None:
        """It is looked at from now on."""

    def left(self) -> None:
        """It is not looked at any more."""


def rows_of(kind: Kind | None, snapshot: Snapshot, app: ConsoleApp) -> Sequence[object]:
    """The rows that a pane of this kind shows."""
    match kind:
        case Kind.NODE:
            return snapshot.nodes
        case Kind.REPLICA:
            return snapshot.replicas
        case Kind.MODEL:
            return snapshot.models
        case Kind.VERSION:
            return snapshot.mirror.versions
    return app.shown_events


class ListView(View):
    """One pane."""

    spec: PaneKind  # type: ignore[type-arg]

    def compose(self) -> ComposeResult:
        """The pane."""
        yield ListPane(self.spec, id=f"{self.id}-pane")

    @property
    def pane(self) -> ListPane:  # type: ignore[type-arg]
        """The pane."""
        return self.query_one(ListPane)

    def apply(self) -> None:
        """Bring the pane up to date."""
        fill(self.pane, self.app)

    def selection(self) -> Selection | None:
        """Of the pane."""
        return self.pane.selection()

    def scope(self) -> Scope | None:
        """Of the pane."""
        return self.spec.scope

    def filter_by(self, text: str) -> None:
        """In the pane."""
        self.pane.filter_by(text)

    def filtered_by(self) -> str:
        """In the pane."""
        return self.pane.filter_text

    def step_back(self) -> bool:
        """In the pane."""
        return self.pane.step_back()

    def toggle(self, what: str) -> None:
        """In the pane."""
        self.pane.toggle(what)

    def point_at(self, id_: str) -> None:
        """In the pane."""
        self.pane.point_at(id_)

    def shown_rows(self) -> Sequence[object]:
        """Of the pane."""
        return self.pane.shown_rows()

    def focus_inside(self) -> None:
        """The pane's list."""
        self.pane.table.focus()


def fill(pane: ListPane, app: ConsoleApp) -> None:  # type: ignore[type-arg]
    """Bring a pane up to date with what the application shows."""
    pane.set_class(app.link.phase is Phase.LOST, "-stale")
    snapshot = app.shown
    if snapshot is None:
        pane.say(empty.starting(list(app.link.sentences)))
    else:
        pane.show(rows_of(pane.spec.kind, snapshot, app), snapshot, app.now(), ascii_only=app.ascii)


class NodesView(ListView):
    """All nodes."""

    spec = NODES


class ReplicasView(ListView):
    """All replicas."""

    spec = REPLICAS


class ModelsView(ListView):
    """The catalog."""

    spec = MODELS


class EventsView(ListView):
    """What happened, newest first."""

    spec = EVENTS
