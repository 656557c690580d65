"""Which columns fit into a width, how wide each gets, and what then stands in them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from llmgw_tui.rows.parts import Col, Part
from llmgw_tui.text import clean, fit


def fit_columns(columns: Sequence[Col[Any]], width: int, *, wide: bool) -> list[tuple[int, int]]:
    """(number of the column, cells) of those shown, a cell of space after each.

    With too little room the columns with the highest ``drop`` go first; what is left over is shared
    among those that grow.
    """
    shown = [number for number, column in enumerate(columns) if wide or not column.wide]

    def needed() -> int:
        return sum(columns[number].width + 1 for number in shown)

    while needed() > width:
        droppable = [number for number in shown if columns[number].drop > 0]
        if not droppable:
            break
        shown.remove(max(droppable, key=lambda number: (columns[number].drop, number)))
    spare = max(width - needed(), 0)
    shares = sum(columns[number].grow for number in shown)
    sizes = []
    for number in shown:
        column = columns[number]
        extra = spare * column.grow // shares if shares else 0
        sizes.append((number, column.width + extra))
    return sizes


def titled(column: Col[Any], size: int, arrow: str) -> str:
    """A column's title in so many cells; the arrow of the order is never what is cut."""
    if not arrow or size < 1:
        return fit(column.title, size, right=column.right)
    title = set_cell_size(column.title, min(cell_len(column.title), size - 1))
    return fit(title + arrow, size, right=column.right)


def fit_parts(parts: Sequence[Part], size: int, *, right: bool) -> list[tuple[str, str]]:
    """(text, name of its style), made safe and together exactly so many cells."""
    if len(parts) == 1:
        part = parts[0]
        return [(fit(clean(part.text), size, right=right), part.style)]
    pieces = [(clean(part.text), part.style) for part in parts]
    text = "".join(piece for piece, _ in pieces)
    pad = size - (len(text) if text.isascii() else cell_len(text))
    if pad >= 0:
        filled = (" " * pad, "")
        return [filled, *pieces] if right else [*pieces, filled]
    rest = fit(text, size, right=right)
    shown: list[tuple[str, str]] = []
    for piece, style in pieces:
        shown.append((rest[: len(piece)], style))
        rest = rest[len(piece) :]
    return [*shown, (rest, "")]
