"""From rows to painted lines; a line is kept until what stands in it differs."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from llmgw_tui.rows.parts import Col, Look, Part
from llmgw_tui.widgets.columns import fit_parts, titled

MARK, ASCII_MARK = "▌", "*"

Cells = tuple[tuple[Part, ...], ...]
Fitted = tuple[tuple[int, int], ...]
"""(number of the column, its width in cells) of each column in view."""


class Ground(StrEnum):
    """What lies behind a row."""

    PLAIN = ""
    CURSOR = "cursor"
    BLURRED = "cursor-blurred"


class Styles(dict[str, Style]):
    """Styles by name on one ground, each resolved when it is first needed."""

    def __init__(self, resolve: Callable[[str], Style]) -> None:
        super().__init__()
        self._resolve = resolve

    def __missing__(self, name: str) -> Style:
        style = self[name] = self._resolve(name)
        return style


@dataclass(frozen=True, slots=True)
class Line:
    """All that a painted row depends on."""

    cells: Cells
    fitted: Fitted
    width: int
    ground: Ground
    marked: bool
    ascii: bool


class RowPainter:
    """Paints the head and the rows of one list, in styles that ``resolve`` knows by name."""

    def __init__(
        self, columns: Sequence[Col[Any]], resolve: Callable[[str, Ground], Style]
    ) -> None:
        self._columns = tuple(columns)
        self._resolve = resolve
        self._painted: dict[str, tuple[Line, Strip]] = {}
        self._styles: dict[Ground, Styles] = {}
        self.renders = 0
        """Rows painted since the start: what tests count."""

    def forget(self) -> None:
        """Nothing painted so far is right any more."""
        self._painted.clear()
        self._styles.clear()

    def keep(self, present: Container[str]) -> None:
        """Only these objects are there still."""
        self._painted = {id_: kept for id_, kept in self._painted.items() if id_ in present}

    def cells(self, row: object, look: Look) -> Cells:
        """What stands in each column of a row."""
        return tuple(column.cell(row, look) for column in self._columns)

    def reads_differently(self, id_: str, row: object, look: Look) -> bool:
        """Whether a row that did not change shows something else now (ages, countdowns)."""
        kept = self._painted.get(id_)
        return kept is not None and kept[0].cells != self.cells(row, look)

    def styles(self, ground: Ground) -> Styles:
        """The styles on a ground."""
        if ground not in self._styles:
            self._styles[ground] = Styles(lambda name: self._resolve(name, ground))
        return self._styles[ground]

    def blank(self, width: int) -> Strip:
        """A line below the last row."""
        return Strip.blank(width, self.styles(Ground.PLAIN)[""])

    def head(self, fitted: Fitted, width: int, arrow: Callable[[str], str]) -> Strip:
        """The titles; ``arrow`` gives a column's sign of order by its key."""
        text = "".join(
            titled(self._columns[number], size, arrow(self._columns[number].key)) + " "
            for number, size in fitted
        )
        style = self.styles(Ground.PLAIN)["head"]
        return Strip([Segment(" " + text, style)]).adjust_cell_length(width, style)

    def row(self, id_: str, line: Line) -> Strip:
        """The line of a row, painted anew only where it differs from the one kept."""
        kept = self._painted.get(id_)
        if kept is not None and kept[0] == line:
            return kept[1]
        strip = self._paint(line)
        self._painted[id_] = (line, strip)
        return strip

    def _paint(self, line: Line) -> Strip:
        """Neighbours of one style become one segment: what follows costs by the segment."""
        self.renders += 1
        styles = self.styles(line.ground)
        plain = styles[""]
        pieces: list[Segment] = []
        text, style, used = " ", plain, 1
        if line.marked:
            text, style = ASCII_MARK if line.ascii else MARK, styles["accent"]
        for number, size in line.fitted:
            cell = line.cells[number]
            spans = any(part.spans for part in cell)
            room = max(line.width - used - 1, 0) if spans else size
            fitted = fit_parts(cell, room, right=self._columns[number].right and not spans)
            for piece, name in (*fitted, (" ", "")):
                if (own := styles[name]) is not style:
                    pieces.append(Segment(text, style))
                    text, style = "", own
                text += piece
            used += room + 1
            if spans:
                break
        pieces += [Segment(text, style), Segment(" " * (line.width - used), plain)]
        shown = Strip([piece for piece in pieces if piece.text], used + max(line.width - used, 0))
        return shown if used <= line.width else shown.adjust_cell_length(line.width, plain)
