"""Reading and writing weights from a loop: in threads, and never left half way."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, ParamSpec, TypeVar

from llmgw_core.errors import LlmgwError
from llmgw_core.mirror.sums import Sums

READ_BYTES = 4 * 1024 * 1024
SPARE_BYTES = 64 * 1024 * 1024
"""Left free on the disk."""

P = ParamSpec("P")
T = TypeVar("T")


async def finish(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it in a thread; a cancelled caller still waits for its end, so that a file is not
    closed under a write.
    """
    task = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue  # the first one is raised below
        task.exception()  # looked at: the cancellation is what counts
        raise


def write_all(file: BinaryIO, content: bytes) -> None:
    """Write to an unbuffered file, which may take it in parts; blocks."""
    view = memoryview(content)
    while view:
        view = view[file.write(view) :]


async def read_sums(path: Path, sums: Sums, moved: Callable[[int], None]) -> None:
    """Add a file's content to checksums, in steps that can be cancelled."""
    with path.open("rb", buffering=0) as file:
        while await finish(_read_step, file, sums):
            moved(sums.count)


def _read_step(file: BinaryIO, sums: Sums) -> bool:
    chunk = file.read(READ_BYTES)
    sums.update(chunk)
    return bool(chunk)


def check_space(folder: Path, needed: int, *, hint: str) -> None:
    """Raise where a disk cannot take so many bytes more and keep some spare; blocks.

    Raises:
        LlmgwError: it cannot; the message has both numbers.
    """
    free = shutil.disk_usage(folder).free
    if free < needed + SPARE_BYTES:
        raise LlmgwError(
            f"{folder} has {amount(free)} free and {amount(needed)} are needed "
            f"beside {amount(SPARE_BYTES)} that stay free",
            hint=hint,
        )


def amount(count: int) -> str:
    """Bytes for people, in powers of ten as disks are sold."""
    return f"{count / 1e9:.1f} GB" if count >= 10**9 else f"{count / 1e6:.0f} MB"


def place(half: Path, target: Path) -> None:
    """Put a finished file in its place, on the disk before it counts; blocks."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with half.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(half, target)
