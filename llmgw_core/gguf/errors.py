"""What is said about files that cannot be read, and how texts out of them are shown. Pure."""

from __future__ import annotations

import unicodedata

from llmgw_core.errors import InvalidInput

HARMLESS = "·"
_UNSAFE = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
"""Control, format (bidi marks), surrogate, private, unassigned, and separators of lines."""


class HeaderError(InvalidInput):
    """A file is no GGUF, is cut or damaged, or says of itself what cannot be."""


class SourceError(HeaderError):
    """The bytes of a file could not be had; whether its header is good is not known."""

    exit_code = 1
    code = "failed"


def sanitise(text: str, *, most: int = 120) -> str:
    """One plain line of at most ``most`` characters: nothing that a terminal would obey."""
    cut = text if len(text) <= most else text[: most - 1] + "…"
    if cut.isascii() and cut.isprintable():
        return cut
    return "".join(HARMLESS if unicodedata.category(char) in _UNSAFE else char for char in cut)
