"""A curve several lines high, in eighths of a cell. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from llmgw_tui.rows.card import Plot
from llmgw_tui.rows.parts import Part

_EIGHTHS = " ▁▂▃▄▅▆▇█"
_ASCII = " .:-=+*#@"
LABEL_WIDTH = 11
SCALE_WIDTH = 8
HEIGHT = 3


def newest(values: Sequence[float | None], width: int) -> list[float | None]:
    """The last ``width`` values, with unknown ones before them where there are fewer."""
    last = list(values[-width:]) if width > 0 else []
    return [None] * (width - len(last)) + last


def columns(
    values: Sequence[float | None], high: float, height: int, *, ascii_only: bool
) -> list[str]:
    """Lines from top to bottom, one column a value; an unknown value leaves its column empty."""
    steps = _ASCII if ascii_only else _EIGHTHS
    lines: list[str] = []
    for row in range(height - 1, -1, -1):
        line = ""
        for value in values:
            if value is None:
                line += " "
                continue
            share = min(1.0, max(0.0, value / high)) if high > 0 else 0.0
            eighths = round(share * height * 8)
            if row == 0:
                eighths = max(eighths, 1)
            line += steps[min(8, max(0, eighths - row * 8))]
        lines.append(line)
    return lines


def plot_rows(
    plot: Plot, width: int, *, ascii_only: bool, height: int = HEIGHT
) -> list[list[Part]]:
    """The curve with its label, its scale and the value of now."""
    room = max(8, width - LABEL_WIDTH - SCALE_WIDTH)
    lines = columns(newest(plot.values, room), plot.high, height, ascii_only=ascii_only)
    top = f"{plot.high:g}" if plot.high > 1 else "100 %"
    rows: list[list[Part]] = []
    for i, line in enumerate(lines):
        label = f"{plot.label:<{LABEL_WIDTH}}" if i == 0 else " " * LABEL_WIDTH
        if i == 1:
            label = f"{plot.now:<{LABEL_WIDTH}}"
        scale = top if i == 0 else "0" if i == len(lines) - 1 else ""
        rows.append([Part(label, "muted" if i != 1 else "strong"), Part(line, "spark"),
                     Part(f" {scale}", "muted")])  # fmt: skip
    return rows
