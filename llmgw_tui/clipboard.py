"""The terminal's clipboard, by OSC 52: it works over SSH, and the terminal may ignore it."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.app import App

MOST_BYTES = 74_000
"""More than this many terminals drop without a word."""


def clipboard_sequence(text: str, environ: Mapping[str, str]) -> str:
    """What to write to the terminal; inside tmux it is passed through to the outer one."""
    encoded = base64.b64encode(text.encode()).decode()
    sequence = f"\x1b]52;c;{encoded}\x07"
    if environ.get("TMUX"):
        doubled = sequence.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{doubled}\x1b\\"
    return sequence


def send(app: App[int], text: str) -> None:
    """Hand text to the terminal, and keep it for the console's own paste."""
    if not os.environ.get("TMUX"):
        app.copy_to_clipboard(text)
        return
    app._clipboard = text  # the register behind App.clipboard, without its bare sequence
    if app._driver is not None:
        app._driver.write(clipboard_sequence(text, os.environ))
