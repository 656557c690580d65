"""A framed list: the table, its title and count, and what stands there when it is empty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from llmgw_core.api.views import Snapshot
from llmgw_tui.actions import Kind, Scope
from llmgw_tui.bindings import bindings_for
from llmgw_tui.paint import clean_lines
from llmgw_tui.rows import empty
from llmgw_tui.rows.parts import Col, Look
from llmgw_tui.screens.dialog import plain
from llmgw_tui.targets import Selection
from llmgw_tui.text import clean
from llmgw_tui.widgets.object_table import ObjectTable

if TYPE_CHECKING:
    from llmgw_tui.app import ConsoleApp

Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True, slots=True)
class PaneKind(Generic[Row]):
    """What a pane lists."""

    title: str
    scope: Scope
    kind: Kind | None
    """None for rows that no verb acts on."""
    columns: tuple[Col[Row], ...]
    key: Callable[[Row], str]
    fault: Callable[[Row], bool]
    empty: Callable[[Snapshot], str]


class ListPane(Container, Generic[Row]):
    """Frame, list, and the sentence that stands there when it is empty."""

    class Pointed(Message):
        """The cursor is on another object."""

    app: ConsoleApp

    def __init__(self, spec: PaneKind[Row], *, id: str) -> None:
        super().__init__(id=id, classes="pane")
        self.spec = spec
        self.filter_text = ""
        self.faults_only = False
        self._given: int | None = None
        """Rows before filter and faults; None as long as a sentence stands in their place."""
        self._nothing = ""
        self._titled: object = None

    def compose(self) -> ComposeResult:
        """Both; one of them is hidden."""
        yield TABLES[self.spec.scope](self.spec.columns, self.spec.key, classes="list")
        yield plain("", classes="empty")

    def on_mount(self) -> None:
        """The first title."""
        self.border_title = Content(self.spec.title)

    @property
    def table(self) -> ObjectTable:
        """The list."""
        return self.query_one(ObjectTable)

    def say(self, text: str) -> None:
        """A sentence in place of rows."""
        self._given = None
        label = self.query_one(".empty", Static)
        label.update(clean_lines(text), layout=False)
        label.display = True
        self.table.add_class("-empty")
        self._title("")

    def show(
        self, rows: Sequence[Row], snapshot: Snapshot, now: float, *, ascii_only: bool
    ) -> None:
        """These rows, as far as filter and faults let them through."""
        self.table.only = self.spec.fault if self.faults_only else None
        self.table.set_rows(rows, Look(now, ascii_only))
        self._given = len(rows)
        self._nothing = self.spec.empty(snapshot) if not rows else ""
        self._count()

    def _count(self) -> None:
        """How many of how many are shown, and the sentence where there is none."""
        if self._given is None:
            return
        shown = len(self.table.rows)
        self.table.set_class(not shown, "-empty")
        label = self.query_one(".empty", Static)
        label.display = not shown
        if not self._given:
            label.update(clean_lines(self._nothing), layout=False)
        elif not shown:
            label.update(empty.NO_MATCH if self.filter_text else empty.NO_FAULTS, layout=False)
        self._title(str(shown) if shown == self._given else f"{shown} of {self._given}")

    def _title(self, count: str) -> None:
        notes = [count] if count else []
        if self.filter_text:
            notes.append(f"/{clean(self.filter_text)}")
        if self.faults_only:
            notes.append("faults")
        if self.table.wide:
            notes.append("wide")
        if marked := len(self.table.marks):
            hidden = marked - len(self.table.marked_in_view)
            notes.append(f"{marked} marked" + (f", {hidden} hidden" if hidden else ""))
        titled = tuple(notes)
        if titled != self._titled:
            self._titled = titled
            self.border_title = Content("  ".join([self.spec.title, *notes]))

    def selection(self) -> Selection | None:
        """Cursor and marks; what is hidden is not acted on, though it stays marked."""
        if self.spec.kind is None:
            return None
        marked = tuple(sorted(self.table.marked_in_view))
        return Selection(self.spec.kind, self.table.cursor_id, marked)

    def filter_by(self, text: str) -> None:
        """Show only what matches."""
        self.filter_text = text.strip()
        self.table.set_filter(self.filter_text)
        self._count()

    def step_back(self) -> bool:
        """Clear the filter, else marks, else the faults-only form."""
        if self.filter_text:
            self.filter_by("")
        elif self.table.marks:
            self.table.clear_marks()
        elif self.faults_only:
            self.faults_only = False
        else:
            return False
        return True

    def toggle(self, what: str) -> None:
        """``faults`` or ``wide``."""
        if what == "faults":
            self.faults_only = not self.faults_only
        else:
            self.table.wide = not self.table.wide
            self.table.refresh()

    def point_at(self, id_: str) -> None:
        """Put the cursor on an object."""
        self.table.cursor_id = id_

    def shown_rows(self) -> Sequence[Row]:
        """The rows as filtered and sorted."""
        return self.table.rows

    def on_object_table_pointed(self) -> None:
        """The cursor moved."""
        self.post_message(self.Pointed())

    def on_object_table_marked(self) -> None:
        """Another number of marks."""
        self._count()

    def on_object_table_activated(self) -> None:
        """Clicked where the cursor was already."""
        if self.spec.kind is not None:
            self.app.act("open")


class NodeTable(ObjectTable):
    """Nodes, with their verbs."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_for(Scope.NODES)


class ReplicaTable(ObjectTable):
    """Replicas, with their verbs."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_for(Scope.REPLICAS)


class ModelTable(ObjectTable):
    """Models, with their verbs."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_for(Scope.MODELS)


class VersionTable(ObjectTable):
    """Versions in the mirror, with their verbs."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_for(Scope.MIRROR)


class EventTable(ObjectTable):
    """Events."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_for(Scope.EVENTS)


TABLES = {
    Scope.NODES: NodeTable, Scope.REPLICAS: ReplicaTable, Scope.MODELS: ModelTable,
    Scope.EVENTS: EventTable, Scope.MIRROR: VersionTable,
}  # fmt: skip
