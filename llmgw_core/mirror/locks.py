"""One at a time per version: locks that the kernel drops when their holder dies. Blocks briefly."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llmgw_core.errors import Refused
from llmgw_core.mirror.manifest import unwritable
from llmgw_core.plain_text import sanitise


@contextmanager
def exclusive(path: Path, doing: str, what: str) -> Iterator[None]:
    """Hold the lock file at ``path`` for as long as the block.

    Args:
        path: The lock file; made where it is missing.
        doing: What the holder does, for others to read.
        what: What is locked, for the refusal.

    Raises:
        Refused: somebody holds it; the message says who.
        LlmgwError: the lock file cannot be made.
    """
    fd = _take(path, what)
    try:
        with contextlib.suppress(OSError):  # a full disk: the lock holds, only its note is missing
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{doing} (pid {os.getpid()})".encode(), 0)
        yield
    finally:
        os.close(fd)


LOOKS = 3
LOOK_S = 0.02
"""Whoever only looks whether a lock is held has it for a moment: asked again before it counts."""


def _take(path: Path, what: str) -> int:
    looks = 0
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except FileNotFoundError as error:  # its folder was tidied away just now
            looks += 1
            if looks < LOOKS:
                continue
            raise unwritable(path.parent, error) from error
        except OSError as error:
            raise unwritable(path.parent, error) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            looks += 1
            if looks < LOOKS:
                time.sleep(LOOK_S)
                continue
            raise Refused(f"{what} is busy: {_holder(path)}", hint="wait for it to end") from None
        except OSError as error:
            os.close(fd)
            raise unwritable(path.parent, error) from error
        if _is_at(fd, path):
            return fd
        os.close(fd)  # tidied away between the open and the lock


def _is_at(fd: int, path: Path) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    mine = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _holder(path: Path) -> str:
    try:
        said = path.read_text(errors="replace")
        return sanitise(said, most=200) or "somebody holds its lock"
    except OSError:
        return "somebody holds its lock"


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock now."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
