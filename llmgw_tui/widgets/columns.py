"""Which columns fit into a width, and how wide each gets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmgw_tui.rows.parts import Col


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
