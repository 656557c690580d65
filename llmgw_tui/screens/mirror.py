"""The view of the mirror: how it does, and the versions it holds and pulls."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Static

from llmgw_core.api.views import MirrorVersionView
from llmgw_tui.actions import Kind, Scope
from llmgw_tui.paint import content
from llmgw_tui.rows import empty, mirror
from llmgw_tui.rows.parts import Part
from llmgw_tui.screens.dialog import plain
from llmgw_tui.screens.panes import ListPane, PaneKind
from llmgw_tui.screens.views import ListView, fill
from llmgw_tui.state import Phase, version_key

VERSIONS: PaneKind[MirrorVersionView] = PaneKind(
    title="Versions", scope=Scope.MIRROR, kind=Kind.VERSION, columns=mirror.VERSION_COLUMNS,
    key=version_key, fault=mirror.is_fault, empty=empty.no_versions,
)  # fmt: skip


class VersionsView(ListView):
    """A line about the mirror itself, and its versions below."""

    spec = VERSIONS
    _said: tuple[Part, ...] = ()

    def compose(self) -> ComposeResult:
        """Both."""
        yield plain("", id="mirror-line")
        yield ListPane(VERSIONS, id="mirror-pane")

    def apply(self) -> None:
        """Bring both up to date; nothing is painted where nothing changed."""
        fill(self.pane, self.app)
        snapshot = self.app.shown
        said = () if snapshot is None else tuple(mirror.standing(snapshot.mirror, self.app.ascii))
        label = self.query_one("#mirror-line", Static)
        label.set_class(self.app.link.phase is Phase.LOST, "-stale")
        if said != self._said:
            self._said = said
            label.update(content(said), layout=False)
