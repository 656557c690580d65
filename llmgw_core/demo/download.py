"""One file over HTTP, fetched as the mirror does; its half lies beside it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from llmgw_core.errors import LlmgwError
from llmgw_core.mirror import disk
from llmgw_core.mirror.fetch import Fetcher
from llmgw_core.mirror.halves import Half, drop
from llmgw_core.mirror.wanted import Interrupted, Listener, Wanted, WrongContent

__all__ = [
    "Interrupted",
    "Wanted",
    "WrongContent",
    "check_space",
    "download",
    "forget",
    "said",
    "sha256_of",
]

HINT = "free some, or name another folder with --directory"

Progress = Callable[[int, int | None], None]
"""Bytes done, and bytes in all where they are known."""


async def download(
    http: httpx.AsyncClient,
    wanted: Wanted,
    target: Path,
    progress: Progress,
    *,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> str:
    """Fetch a file to ``target``; half of it lies in ``target.part`` meanwhile.

    Returns its SHA-256.

    Raises:
        Interrupted: the connection broke too often, or the server refused.
        WrongContent: the content is not what was promised, twice.
        LlmgwError: the disk is too full.
    """
    half = _half_of(target)
    fetcher = Fetcher(http, pause=pause, disk_error=_disk_error)
    fetched = await fetcher.fetch(wanted, half, _Bar(target.parent, progress))
    os.replace(half.data, target)
    half.note.unlink(missing_ok=True)
    return fetched.sha256


def forget(target: Path) -> None:
    """Remove the half of a file; blocks."""
    drop(_half_of(target))


def _half_of(target: Path) -> Half:
    part = target.with_name(target.name + ".part")
    return Half(part, part.with_name(part.name + ".json"))


class _Bar(Listener):
    """Shows progress, and sees at its beginning that there is room."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self._folder = folder
        self._progress = progress
        self._began = False

    def moved(self, done: int, total: int | None) -> None:
        """So many bytes have come."""
        if not self._began:
            check_space(self._folder, (total or 0) - done)
            self._began = True
        self._progress(done, total)


def _disk_error(folder: Path, error: OSError) -> LlmgwError:
    return LlmgwError(f"{folder} cannot be written: {error.strerror or error}", hint=HINT)


def check_space(folder: Path, needed: int) -> None:
    """Raise where a disk cannot take so many bytes more."""
    disk.check_space(folder, needed, hint=HINT)


def said(error: httpx.HTTPError | httpx.InvalidURL) -> str:
    """An HTTP error in a few words."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"it answers {error.response.status_code}"
    return str(error).partition("\n")[0] or type(error).__name__


def sha256_of(path: Path) -> str:
    """A file's SHA-256 in hex; blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
