"""Numbers as little pictures made of characters. Pure; scales are fixed by the caller."""

from __future__ import annotations

from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.:-=+*#"


def spark(
    values: Sequence[float | None],
    lo: float,
    hi: float,
    width: int,
    *,
    ascii: bool = False,
) -> str:
    """The newest values, one character each, on the scale lo to hi; a gap where unknown."""
    bars = ASCII_BARS if ascii else BARS
    span = hi - lo
    newest = list(values)[-width:] if width > 0 else []
    drawn = "".join(_bar(value, lo, span, bars) for value in newest)
    return drawn.rjust(width)


def _bar(value: float | None, lo: float, span: float, bars: str) -> str:
    if value is None or value != value:  # NaN is the one that differs from itself
        return " "
    if span <= 0:
        return bars[0]
    share = min(max((value - lo) / span, 0.0), 1.0)
    return bars[min(int(share * len(bars)), len(bars) - 1)]


def bar(share: float | None, width: int, *, ascii: bool = False) -> str:
    """A horizontal bar for 0 to 1; dashes where unknown."""
    full, rest = ("#", ".") if ascii else ("━", "╌")
    if share is None:
        return rest * width
    filled = round(min(max(share, 0.0), 1.0) * width)
    return full * filled + rest * (width - filled)
