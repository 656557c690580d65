"""The scripts that run on nodes, as text, and how arguments and values are put into them."""

from __future__ import annotations

import base64
import re
from functools import cache
from importlib import resources

_SAFE = re.compile(r"[A-Za-z0-9_./:@%+=,-]+")
_NAME = re.compile(r"[A-Za-z0-9_@%+=,-][A-Za-z0-9_.@%+=,-]*")


@cache
def load(*names: str) -> str:
    """The named files of ``scripts/``, joined, without comments and empty lines."""
    folder = resources.files(__package__).joinpath("scripts")
    text = "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)
    lines = (line for line in text.splitlines() if line and not line.lstrip().startswith("#"))
    return "\n".join(lines) + "\n"


def word(text: str) -> str:
    """An argument as the protocol allows it; scripts read it with ``decode``.

    Raises:
        ValueError: it holds a character that no path can hold.
    """
    if "\0" in text or "\n" in text:
        msg = f"{text!r} holds a line break or NUL, which no path on a node may"
        raise ValueError(msg)
    if text[:1] not in "-=" and not text.startswith("b64:") and _SAFE.fullmatch(text):
        return text
    return "b64:" + base64.b64encode(text.encode(errors="surrogateescape")).decode()


def optional_word(text: str | None) -> str:
    """The same for something that may be left out, which is ``=``."""
    return word(text) if text else "="


def is_name(text: str) -> bool:
    """Whether this can name an instance, a token or a file beside its record."""
    return bool(_NAME.fullmatch(text)) and len(text) <= 200


def quote(text: str, *, directory: str = "") -> str:
    """A string as one word of sh; ``{dir}`` becomes the expansion ``directory``, where given.

    Raises:
        ValueError: it holds NUL, which no argument can.
    """
    if "\0" in text:
        msg = "a NUL character cannot be passed to a program"
        raise ValueError(msg)
    quoted = "'" + text.replace("'", "'\\''") + "'"
    return quoted.replace("{dir}", f"'{directory}'") if directory else quoted
