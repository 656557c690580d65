"""Durations as people write them: ``"250ms"``, ``"1h30m"``, or a number of seconds. Pure."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from llmgw_core.catalog.findings import quoted

_NUMBER = r"(\d+(?:\.\d+)?)"
_PARTS = re.compile(
    rf"(?:{_NUMBER}\s*d)?\s*(?:{_NUMBER}\s*h)?\s*(?:{_NUMBER}\s*m(?!s))?\s*"
    rf"(?:{_NUMBER}\s*s)?\s*(?:{_NUMBER}\s*ms)?",
    re.ASCII,
)
_PLAIN = re.compile(rf"{_NUMBER}\s?s?", re.ASCII)
_SECONDS = (86400.0, 3600.0, 60.0, 1.0)
_LONGEST_TEXT = 64


def parse_duration(value: object) -> float:
    """Seconds meant by a string such as ``"1h30m"`` or by a number of seconds.

    Units are d, h, m, s and ms, each at most once, the larger first.

    Raises:
        ValueError: it is neither, is negative, or is not finite. The message is a bare
            phrase ("is not a duration…") to follow the key's name.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError('must be a duration such as "90s", or a number of seconds')  # noqa: TRY004
    seconds = _from_text(value) if isinstance(value, str) else _from_number(value)
    if not math.isfinite(seconds):
        raise ValueError("must be a finite number of seconds")
    if seconds < 0:
        raise ValueError("must not be negative")
    return seconds


def _from_number(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _from_text(value: str) -> float:
    text = value.strip()
    if plain := _PLAIN.fullmatch(text):
        return float(plain[1])
    # the bound keeps the pattern's backtracking over spaces cheap
    parts = _PARTS.fullmatch(text) if 0 < len(text) <= _LONGEST_TEXT else None
    if parts:
        *whole, milli = parts.groups()
        seconds = sum(
            float(part) * unit for part, unit in zip(whole, _SECONDS, strict=True) if part
        )
        return seconds + (float(milli) / 1000 if milli else 0.0)
    raise ValueError(
        f'is not a duration: {quoted(text)} (write "250ms", "90s", "1h30m" or seconds)'
    )


def format_duration(seconds: float) -> str:
    """The shortest usual spelling that parses back to exactly these seconds."""
    if seconds == int(seconds):
        text, rest = "", int(seconds)
        for unit, size in (("h", 3600), ("m", 60), ("s", 1)):
            count, rest = divmod(rest, size)
            text += f"{count}{unit}" if count else ""
        text = text or "0s"
        if parse_duration(text) == seconds:
            return text
    milli = round(seconds * 1000)
    if 0 < milli < 1_000_000 and milli / 1000 == seconds:
        return f"{milli}ms"
    return f"{Decimal(repr(float(seconds))):f}s"
