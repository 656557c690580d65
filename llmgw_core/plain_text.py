"""Texts from outside as they may be shown: nothing in them that a terminal would obey. Pure.

Headers, hubs, manifests and nodes say what they like. ``sanitise`` is for what becomes part of a
sentence; ``plain`` and ``plain_lines`` are the last look before a terminal or a log.
"""

from __future__ import annotations

import re
import unicodedata

HARMLESS = "·"
_UNSAFE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
"""Control, format (bidi marks), surrogate, private, unassigned, and separators of lines."""
_NOT_PLAIN_ASCII = re.compile(r"[^ -~\n]")


def sanitise(text: str, *, most: int = 120) -> str:
    """One plain line of at most ``most`` characters."""
    return plain(text if len(text) <= most else text[: most - 1] + "…")


def plain(text: str) -> str:
    """One plain line, however long."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(HARMLESS if is_unsafe(char) else char for char in text)


def plain_lines(text: str) -> str:
    """The same of several lines: their ends and tabs stay."""
    return "".join(char if char in "\n\t" or not is_unsafe(char) else HARMLESS for char in text)


def escaped_json(document: str) -> str:
    """A JSON document that says the same, with escapes for all that a terminal would obey."""
    return _NOT_PLAIN_ASCII.sub(_escape, document)


def is_unsafe(char: str) -> bool:
    """Whether a terminal may obey a character, or nobody knows what it is."""
    return unicodedata.category(char) in _UNSAFE


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    if not is_unsafe(char):
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))
