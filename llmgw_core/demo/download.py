"""One file over HTTP: resumed after a break, checked by SHA-256, put in place by a rename."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from llmgw_core.errors import LlmgwError

CHUNK = 256 * 1024
ATTEMPTS = 4
SPARE_BYTES = 64 * 1024 * 1024
"""Left free on the disk."""

Progress = Callable[[int, int | None], None]
"""Bytes done, and bytes in all where they are known."""


class Interrupted(LlmgwError):
    """The connection broke; what has come is kept, and the next call goes on from there."""

    code = "interrupted"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file and what it must be."""

    url: str
    sha256: str | None
    size: int | None = None


async def download(
    http: httpx.AsyncClient, wanted: Wanted, target: Path, progress: Progress
) -> str:
    """Fetch a file to ``target``; half of it lies in ``target.part`` meanwhile.

    Returns its SHA-256.

    Raises:
        Interrupted: the connection broke too often, or the server refused.
        LlmgwError: the disk is too full, or the content is not what was promised.
    """
    part = target.with_name(target.name + ".part")
    for attempt in range(1, ATTEMPTS + 1):
        try:
            await _fetch(http, wanted, part, progress)
            break
        except httpx.HTTPError as error:
            if attempt == ATTEMPTS:
                raise Interrupted(
                    f"{wanted.url} could not be fetched ({str(error) or type(error).__name__}); "
                    "what has come is kept, try again"
                ) from error
    digest = await asyncio.to_thread(sha256_of, part)
    if wanted.sha256 is not None and digest != wanted.sha256:
        part.unlink()
        raise LlmgwError(f"{wanted.url} is not what it should be: its checksum is {digest}")
    os.replace(part, target)
    return digest


async def _fetch(http: httpx.AsyncClient, wanted: Wanted, part: Path, progress: Progress) -> None:
    done = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={done}-"} if done else {}
    async with http.stream("GET", wanted.url, headers=headers) as response:
        if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            return  # all of it is there: the checksum decides
        response.raise_for_status()
        if response.status_code != httpx.codes.PARTIAL_CONTENT:
            done = 0
        length = response.headers.get("content-length", "")
        total = done + int(length) if length.isdigit() else wanted.size
        check_space(part.parent, (total or 0) - done)
        progress(done, total)
        with part.open("r+b" if done else "wb") as file:
            file.seek(done)
            async for chunk in response.aiter_bytes(CHUNK):
                await asyncio.to_thread(file.write, chunk)
                done += len(chunk)
                progress(done, total)
    if total is not None and done < total:
        raise httpx.ReadError(f"it ended after {done} of {total} bytes")


def check_space(folder: Path, needed: int) -> None:
    """Raise where a disk cannot take so many bytes more."""
    free = shutil.disk_usage(folder).free
    if free < needed + SPARE_BYTES:
        raise LlmgwError(
            f"{folder} has {free / 1e6:.0f} MB free and {needed / 1e6:.0f} MB are needed; "
            "free some, or name another folder with --directory"
        )


def sha256_of(path: Path) -> str:
    """A file's SHA-256 in hex; blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
