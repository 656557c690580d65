"""A file of this machine taken into the store, hashed as it is copied, and gone on with."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import BinaryIO

from llmgw_core.errors import LlmgwError
from llmgw_core.mirror.disk import READ_BYTES, finish, read_sums, write_all
from llmgw_core.mirror.halves import Half, Note, drop, read_note, write_note
from llmgw_core.mirror.listing import Remote
from llmgw_core.mirror.manifest import unwritable
from llmgw_core.mirror.sums import Sums
from llmgw_core.mirror.toll import Toll
from llmgw_core.mirror.tree import size_of
from llmgw_core.mirror.wanted import Fetched, Listener, WrongContent


async def copy(
    remote: Remote, half: Half, hear: Listener, *, toll: Toll, piece_bytes: int
) -> Fetched:
    """Copy a file to ``half.data``, going on with the half of an earlier copy of the same state.

    Raises:
        WrongContent: it changed while it was copied.
        LlmgwError: it cannot be read, or the store cannot be written.
    """
    sums = Sums(piece_bytes)
    note = Note(url=remote.address, modified=remote.mark, size=remote.size)
    try:
        if size_of(half.data) and await asyncio.to_thread(read_note, half) == note:
            await read_sums(half.data, sums, lambda done: hear.checking(done, remote.size))
        if sums.count > (remote.size or 0):
            sums = Sums(piece_bytes)
        await asyncio.to_thread(write_note, half, note)
        half.data.parent.mkdir(parents=True, exist_ok=True)
        with half.data.open("r+b" if sums.count else "wb", buffering=0) as target:
            target.truncate(sums.count)
            target.seek(sums.count)
            await _pour(Path(remote.address), target, sums, remote.size, hear, toll)
    except OSError as error:
        raise unwritable(half.data.parent, error) from error
    if sums.count != remote.size or _mark(remote.address) != remote.mark:
        await asyncio.to_thread(drop, half)
        raise WrongContent(f"{remote.address} changed while it was copied; try again")
    return Fetched(sums.count, sums.sha256(), remote.mark, piece_bytes, sums.pieces())


def _mark(path: str) -> str:
    try:
        return f"mtime {os.stat(path).st_mtime_ns}"
    except OSError:
        return ""


async def _pour(
    path: Path, target: BinaryIO, sums: Sums, total: int | None, hear: Listener, toll: Toll
) -> None:
    try:
        source = path.open("rb", buffering=0)
    except OSError as error:
        raise LlmgwError(f"{path} cannot be read: {error.strerror}") from error
    with source:
        source.seek(sums.count)
        hear.moved(sums.count, total)
        while taken := await finish(_step, source, target, sums):
            hear.moved(sums.count, total)
            await toll.pay(taken)


def _step(source: BinaryIO, target: BinaryIO, sums: Sums) -> int:
    try:
        chunk = source.read(READ_BYTES)
    except OSError as error:
        raise LlmgwError(f"{source.name} cannot be read: {error.strerror}") from error
    write_all(target, chunk)
    sums.update(chunk)
    return len(chunk)
