"""What the console does outside its screen: files and a pager."""

from __future__ import annotations

import asyncio
import os
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

if TYPE_CHECKING:
    from llmgw_tui.app import ConsoleApp


def write_new(path: Path, text: str) -> None:
    """Write a file that only its owner reads; never over one that exists.

    Raises:
        OSError: it exists or cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


async def page(app: ConsoleApp, text: str) -> None:
    """Show text in a person's pager; the engine goes on while they read."""
    pager = shlex.split(os.environ.get("PAGER") or "less")
    with tempfile.TemporaryDirectory(prefix="llmgw-") as folder:
        path = Path(folder) / "log.txt"
        write_new(path, text + "\n")
        try:
            with app.suspend():
                process = await asyncio.create_subprocess_exec(*pager, str(path))
                await process.wait()
        except SuspendNotSupported:
            app.say("This terminal cannot be lent to a pager", severity="warning")
        except OSError as error:
            app.say(f"{pager[0]} could not be started: {error.strerror}", severity="error")
