"""Lines of cells, as wide as there is room. Pure."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from llmgw_tui.rows.card import Grid
from llmgw_tui.rows.parts import Part
from llmgw_tui.text import ELLIPSIS, clean, fit

LEAST_REST = 12


def grid_parts(grid: Grid, width: int) -> list[Part]:
    """The cells with a space between them; the one that takes the rest is cut in its middle."""
    fixed = sum(abs(size) + 1 for _, size in grid.cells if size)
    parts: list[Part] = []
    for part, size in grid.cells:
        text = clean(part.text)
        if size == 0:
            text = shortened(text, max(LEAST_REST, width - fixed))
        else:
            text = fit(text, abs(size), right=size < 0)
        parts += [Part(" ")] if parts else []
        parts.append(Part(text, part.style))
    return parts


def shortened(text: str, width: int) -> str:
    """At most so many cells; names of files differ at their ends, so the middle goes."""
    if cell_len(text) <= width:
        return text
    head = max(0, (width - 1) // 3)
    tail = ""
    for char in reversed(text):
        if cell_len(char + tail) > width - 1 - head:
            break
        tail = char + tail
    return set_cell_size(text, head) + ELLIPSIS + tail
