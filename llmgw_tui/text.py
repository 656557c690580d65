"""Text from outside, made safe and measured in terminal cells. Pure."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

ELLIPSIS = "…"
NEWLINE = "⏎"
HARMLESS = "·"
UNSAFE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
"""Control, format, surrogate, private, unassigned, and separators of lines."""


@lru_cache(maxsize=16384)
def clean(text: str) -> str:
    """One plain line: nothing in it that a terminal or a markup parser would obey."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_safe, text))


def _safe(char: str) -> str:
    if char == "\n":
        return NEWLINE
    if char == "\t":
        return " "
    if "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef":
        return ""  # terminals do not agree how wide a character with a variation selector is
    return HARMLESS if unicodedata.category(char) in UNSAFE else char


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Exactly so many cells: cut with an ellipsis, or filled up on one side."""
    if width <= 0:
        return ""
    size = len(text) if text.isascii() else cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + ELLIPSIS
    return " " * (width - size) + text if right else text + " " * (width - size)
