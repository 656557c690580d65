"""The way into the console: Textual is imported only here, with its environment set before."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmgw_core.api.client import Client

FPS_LOCAL = 30
FPS_SSH = 15


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchOptions:
    """How the console starts."""

    connect: Callable[[Callable[[str], None]], Awaitable[Client]]
    """Reaches or starts the engine; called after the first paint, with a function for sentences
    about progress. Called again when a connection is lost. Raises ``LlmgwError``."""
    ended: Callable[[], Awaitable[str]] | None = None
    """Comes back when an engine that runs in this process has ended, with a sentence about it:
    there is nothing left to show then, and the console closes."""
    cluster: str
    """Shown until the engine says its name."""
    theme: str | None = None
    read_only: bool = False
    keys: Mapping[str, str] = field(default_factory=dict)
    """Other keys for actions, by the action's id; several with commas between."""
    console_theme_dirs: Sequence[Path] = ()
    """Where a person's own themes are looked for, first the weakest."""
    mouse: bool = True
    ascii: bool = False
    fps: int | None = None
    """Most frames a second; None: fewer over SSH."""


def prepare_environment(options: LaunchOptions, environ: MutableMapping[str, str]) -> None:
    """What Textual reads when it is imported. What a person has set already stays."""
    over_ssh = bool(environ.get("SSH_TTY"))
    fps = options.fps or (FPS_SSH if over_ssh else FPS_LOCAL)
    environ.setdefault("TEXTUAL_FPS", str(fps))
    if options.fps is not None:
        environ["TEXTUAL_FPS"] = str(options.fps)
    if over_ssh:
        environ.setdefault("TEXTUAL_ANIMATIONS", "none")
        environ.setdefault("TEXTUAL_SMOOTH_SCROLL", "0")
    environ.setdefault("TEXTUAL_ANIMATIONS", "basic")
    environ.setdefault("ESCDELAY", "100" if over_ssh else "50")


def hold_collector() -> None:
    """Collect no garbage until the first paint: nearly all that starting makes stays."""
    gc.disable()


def release_collector() -> None:
    """Collect again, if that was held, but never search what starting made.

    Searching it would stop the screen for as long as importing it took.
    """
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def launch(options: LaunchOptions) -> int:
    """Run the console until it is left; returns the exit code.

    The code is 0 when left by a person, 128 plus the signal when ended by one, and that of the
    error when the engine could not be reached.
    """
    prepare_environment(options, os.environ)
    # without a handler of its own a library's warning would be painted over the screen
    logging.lastResort = None
    hold_collector()
    try:
        from llmgw_tui.app import run

        return run(options)
    finally:
        release_collector()
