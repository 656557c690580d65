"""How much of some bytes has come: sizes in binary units, rates in decimal ones. Pure."""

from __future__ import annotations

from llmgw_tui.rows.words import UNKNOWN, span

_SIZES = ((1024**4, "TiB"), (1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))
_RATES = ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"))
MOST_UNDER_WAY = 0.99
"""What is still under way is never shown as whole."""


def _unit(count: float) -> tuple[float, str]:
    return next((unit for unit in _SIZES if count >= unit[0]), (1, "B"))


def _digits(value: float, *, whole: bool) -> str:
    return f"{value:.0f}" if whole or value >= 100 else f"{value:.1f}"


def size(count: int | None) -> str:
    """Bytes in the largest unit that they fill: ``4.6 GiB``."""
    if count is None:
        return UNKNOWN
    divisor, unit = _unit(count)
    return f"{_digits(count / divisor, whole=unit == 'B')} {unit}"


def done_of(done: int | None, total: int | None) -> str:
    """How much of how much, in one unit: ``1.6 of 4.6 GiB``."""
    if done is None or total is None:
        return f"{size(done)} of {UNKNOWN}"
    divisor, unit = _unit(total)
    texts = [_digits(count / divisor, whole=unit == "B") for count in (done, total)]
    return f"{texts[0]} of {texts[1]} {unit}"


def rate(bytes_per_s: float | None) -> str:
    """Bytes a second: ``110 MB/s``."""
    if bytes_per_s is None:
        return UNKNOWN
    divisor, unit = next((r for r in _RATES if bytes_per_s >= r[0]), (1.0, "B/s"))
    value = bytes_per_s / divisor
    return f"{value:.1f} {unit}" if value < 10 and unit != "B/s" else f"{value:.0f} {unit}"


def share_of(done: int | None, total: int | None) -> float | None:
    """0 to 1, never quite 1: it is under way; None where either is not known."""
    if done is None or not total:
        return None
    return min(max(done / total, 0.0), MOST_UNDER_WAY)


def left_s(done: int | None, total: int | None, bytes_per_s: float | None) -> float | None:
    """Seconds until all is there at this rate; None where that cannot be said."""
    if done is None or total is None or bytes_per_s is None or bytes_per_s < 1:
        return None
    return max(0, total - done) / bytes_per_s


def under_way(
    done: int | None, total: int | None, bytes_per_s: float | None, *, short: bool = False
) -> str:
    """A sentence: ``1.6 of 4.6 GiB, 110 MB/s, about 27 s left``."""
    seconds = left_s(done, total, bytes_per_s)
    ends = f"{span(seconds)}" if short else f"about {span(seconds)} left"
    texts = [done_of(done, total)]
    if bytes_per_s is not None:
        texts.append(rate(bytes_per_s))
    if seconds is not None:
        texts.append(ends)
    return ", ".join(texts)
