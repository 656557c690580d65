"""The card of a node, replica, model or version: everything known about it, live."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from llmgw_tui.actions import Kind, Scope
from llmgw_tui.bindings import bindings_for
from llmgw_tui.paint import content
from llmgw_tui.rows import card
from llmgw_tui.rows.card import Grid, Line, Plot, Section
from llmgw_tui.rows.grid import grid_parts
from llmgw_tui.rows.parts import Part
from llmgw_tui.rows.plot import plot_rows
from llmgw_tui.rows.version_card import version_card
from llmgw_tui.screens.dialog import plain
from llmgw_tui.screens.frame import FramedScreen
from llmgw_tui.state import model_named, node_named, replica_named, version_named
from llmgw_tui.targets import Selection
from llmgw_tui.text import clean

if TYPE_CHECKING:
    from llmgw_tui.app import ConsoleApp

LABEL_WIDTH = 11
SCOPES = {
    Kind.NODE: Scope.NODES, Kind.REPLICA: Scope.REPLICAS, Kind.MODEL: Scope.MODELS,
    Kind.VERSION: Scope.MIRROR,
}  # fmt: skip


class CardBody(VerticalScroll, can_focus=True):
    """The scrolling part; the list's verbs work here on the card's object."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("g", "scroll_home", show=False),
        Binding("G", "scroll_end", show=False),
    ]


class NodeBody(CardBody):
    """With the verbs of nodes."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_for(Scope.NODES)


class ReplicaBody(CardBody):
    """With the verbs of replicas."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_for(Scope.REPLICAS)


class ModelBody(CardBody):
    """With the verbs of models."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_for(Scope.MODELS)


class VersionBody(CardBody):
    """With the verbs of the mirror."""

    BINDINGS: ClassVar[list[BindingType]] = bindings_for(Scope.MIRROR)


BODIES = {
    Kind.NODE: NodeBody, Kind.REPLICA: ReplicaBody, Kind.MODEL: ModelBody,
    Kind.VERSION: VersionBody,
}  # fmt: skip


class CardScreen(FramedScreen):
    """One object; when it has gone, the card says so and keeps what was known."""

    CSS_PATH = "card.tcss"
    AUTO_FOCUS: ClassVar[str | None] = "#card"
    app: ConsoleApp

    def __init__(self, kind: Kind, id_: str) -> None:
        super().__init__()
        self.kind = kind
        self.object_id = id_
        self._sections: list[Section] = []
        self._gone = False

    def content(self) -> Iterable[Widget]:
        """The card."""
        with BODIES[self.kind](id="card"):
            yield plain("", id="card-text")

    def scope(self) -> Scope:
        """The keys of its kind."""
        return SCOPES[self.kind]

    def focus_content(self) -> None:
        """To the card."""
        self.query_one("#card").focus()

    def on_resize(self) -> None:
        """Curves are as wide as there is room."""
        if self.query(CardBody):  # the first size may come before the body is there
            self._draw()

    def selection(self) -> Selection:
        """What verbs act on here."""
        return Selection(self.kind, self.object_id)

    def apply(self) -> None:
        """Show the newest."""
        sections = self._read()
        self._gone = sections is None
        if sections is not None:
            self._sections = sections
        self._draw()

    def _read(self) -> list[Section] | None:
        snapshot, now, ascii_only = self.app.shown, self.app.now(), self.app.ascii
        events = self.app.link.events
        if snapshot is None:
            return None
        match self.kind:
            case Kind.NODE:
                node = node_named(snapshot, self.object_id)
                return card.node_card(node, snapshot, events, now, ascii_only) if node else None
            case Kind.REPLICA:
                replica = replica_named(snapshot, self.object_id)
                return card.replica_card(replica, events, now, ascii_only) if replica else None
            case Kind.MODEL:
                model = model_named(snapshot, self.object_id)
                return card.model_card(model, snapshot, events, now, ascii_only) if model else None
            case Kind.VERSION:
                version = version_named(snapshot, self.object_id)
                return version_card(version, events, now, ascii_only) if version else None

    def _draw(self) -> None:
        body = self.query_one("#card", CardBody)
        gone = "  (gone; this is what was known last)" if self._gone else ""
        body.border_title = Content(f"{self.kind} {clean(self.object_id)}{gone}")
        body.set_class(self._gone, "-stale")
        width = max(20, body.scrollable_content_region.width - LABEL_WIDTH - 14)
        lines: list[Content] = []
        for section in self._sections:
            if lines:
                lines.append(Content(""))
            lines.append(content([Part(section.title, "accent")]))
            for line in section.lines:
                lines += self._line(line, width)
        self.query_one("#card-text", Static).update(Content("\n").join(lines))

    def _line(self, line: Line | Plot | Grid, width: int) -> list[Content]:
        if isinstance(line, Grid):
            room = self.query_one("#card", CardBody).scrollable_content_region.width - 2
            return [content([Part("  "), *grid_parts(line, room)])]
        if isinstance(line, Line):
            label = [Part(f"{line.label:<{LABEL_WIDTH}}", "muted")] if line.label else []
            indent = [Part("  ")]
            return [content([*indent, *label, *line.parts])]
        rows = plot_rows(line, min(width, 120), ascii_only=self.app.ascii)
        return [content([Part("  "), *row]) for row in rows]
