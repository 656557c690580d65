"""The line at the top and the line at the bottom."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.events import Resize
from textual.widgets import Static

from llmgw_tui.actions import Action, key_name
from llmgw_tui.paint import content
from llmgw_tui.rows.header import Piece, fitting
from llmgw_tui.rows.parts import Part


class HeaderBar(Static):
    """One line; what matters least gives way where room is short."""

    def __init__(self) -> None:
        super().__init__("", markup=False, id="header")
        self._pieces: list[Piece] = []
        self._drawn: object = None

    def show(self, pieces: list[Piece]) -> None:
        """Draw these; nothing is painted where nothing changed."""
        self._pieces = pieces
        self._draw()

    def on_resize(self, event: Resize) -> None:
        """Another width holds other pieces."""
        self._draw()

    def _draw(self) -> None:
        width = self.content_size.width
        if width < 1 or not self._pieces:
            return
        kept = fitting(self._pieces, width)
        left = _spaced([piece for piece in kept if not piece.right])
        right = _spaced([piece for piece in kept if piece.right])
        line_left, line_right = content(left), content(right)
        gap = max(1, width - line_left.cell_length - line_right.cell_length)
        drawn = (tuple(left), tuple(right), width)
        if drawn != self._drawn:
            self._drawn = drawn
            line = Content.assemble(line_left, " " * gap, line_right)
            self.update(line.truncate(width), layout=False)


def _spaced(pieces: list[Piece]) -> list[Part]:
    parts: list[Part] = []
    for piece in pieces:
        parts += [Part("  ")] if parts else []
        parts += piece.parts
    return parts


class KeyBar(Static):
    """The keys of what is on the screen, as many as there is room for."""

    def __init__(self) -> None:
        super().__init__("", markup=False, id="keys")
        self._shown: tuple[tuple[str, str], ...] = ()
        self._drawn: object = None

    def show(self, actions: Sequence[tuple[Action, str]]) -> None:
        """Draw these actions with their keys."""
        self._shown = tuple((key_name(key), action.title) for action, key in actions)
        self._draw()

    def on_resize(self, event: Resize) -> None:
        """Another width holds another number."""
        self._draw()

    def _draw(self) -> None:
        width = self.content_size.width
        drawn = (self._shown, width)
        if width < 1 or drawn == self._drawn:
            return
        self._drawn = drawn
        line: list[Content] = []
        used = 0
        for key, title in self._shown:
            piece = content([Part(key, "key"), Part(f" {title}", "muted")])
            if used + piece.cell_length + 2 > width:
                break
            line.append(piece)
            used += piece.cell_length + 2
        self.update(Content("  ").join(line), layout=False)
