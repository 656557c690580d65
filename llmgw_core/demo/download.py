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

ATTEMPTS = 4
"""Breaks in a row that are gone on from; one that brought nothing counts, others begin anew."""
SPARE_BYTES = 64 * 1024 * 1024
"""Left free on the disk."""

Progress = Callable[[int, int | None], None]
"""Bytes done, and bytes in all where they are known."""


class Interrupted(LlmgwError):
    """The connection broke; what has come is kept, and the next call goes on from there."""

    code = "interrupted"


class WrongContent(LlmgwError):
    """What came is not what was promised; nothing of it is kept."""

    code = "wrong_content"


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

    A wrong checksum is fetched once more from the start: the half kept from an earlier run may have
    been another file's.

    Returns its SHA-256.

    Raises:
        Interrupted: the connection broke too often, or the server refused.
        WrongContent: the content is not what was promised, twice.
        LlmgwError: the disk is too full.
    """
    part = target.with_name(target.name + ".part")
    digest = await _whole(http, wanted, part, progress)
    if wanted.sha256 is not None and digest != wanted.sha256:
        part.unlink()
        digest = await _whole(http, wanted, part, progress)
    if wanted.sha256 is not None and digest != wanted.sha256:
        part.unlink()
        raise WrongContent(f"{wanted.url} is not what it should be: its checksum is {digest}")
    os.replace(part, target)
    return digest


async def _whole(http: httpx.AsyncClient, wanted: Wanted, part: Path, progress: Progress) -> str:
    """Fetch until nothing is missing, through breaks; the checksum of what came."""
    failures = 0
    while True:
        had = _size(part)
        try:
            await _fetch(http, wanted, part, progress)
            return await asyncio.to_thread(sha256_of, part)
        except httpx.HTTPError as error:
            failures = failures + 1 if _size(part) <= had else 1
            refused = isinstance(error, (httpx.HTTPStatusError, httpx.UnsupportedProtocol))
            if refused or failures == ATTEMPTS:
                raise Interrupted(
                    f"{wanted.url} could not be fetched ({said(error)}); "
                    "what has come is kept, try again"
                ) from error


async def _fetch(http: httpx.AsyncClient, wanted: Wanted, part: Path, progress: Progress) -> None:
    done = _size(part)
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
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
            async for chunk in response.aiter_bytes():
                await asyncio.to_thread(file.write, chunk)
                done += len(chunk)
                progress(done, total)
    if total is not None and done < total:
        raise httpx.ReadError(f"it ended after {done} of {total} bytes")


def said(error: httpx.HTTPError | httpx.InvalidURL) -> str:
    """An HTTP error in a few words."""
    if isinstance(error, httpx.HTTPStatusError):
        return f"it answers {error.response.status_code}"
    return str(error).partition("\n")[0] or type(error).__name__


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


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
