"""One controller per state directory: a lock that the kernel drops when its holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from llmgw_core.errors import LlmgwError, Refused
from llmgw_core.paths import make_private

LOCK_NAME = "controller.lock"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who runs the controller of a state directory."""

    pid: int
    mode: str
    host: str
    started: float


class StateLock:
    """Held from ``acquire`` to ``release`` or the end of the process."""

    def __init__(self, state: Path) -> None:
        self.path = state / LOCK_NAME
        self._file: IO[str] | None = None

    def acquire(self, mode: str) -> Holder:
        """Take the lock.

        Raises:
            Refused: another process holds it; the message names it.
            LlmgwError: the state directory cannot be made or written.
        """
        try:
            return self._acquire(mode)
        except OSError as error:
            self.release()
            raise LlmgwError(
                f"the state directory {self.path.parent} cannot be used: {error.strerror}",
                hint="free some space, or name another with --state",
            ) from error

    def _acquire(self, mode: str) -> Holder:
        make_private(self.path.parent)
        file = self.path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise Refused(
                f"another controller runs this cluster: {describe(read_holder(self.path.parent))}",
                hint="attach to it with `llmgw`, or stop it first",
            ) from None
        self._file = file
        holder = Holder(os.getpid(), mode, socket.gethostname(), time.time())
        file.seek(0)
        file.truncate()
        json.dump(asdict(holder), file)
        file.flush()
        return holder

    def release(self) -> None:
        """Give the lock back; nothing happens where it is not held."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # what a full disk did not take is given up here
                self._file.close()
            self._file = None


def read_holder(state: Path) -> Holder | None:
    """Who wrote the lock file last; None where it cannot be told."""
    try:
        data = json.loads((state / LOCK_NAME).read_text(encoding="utf-8"))
        return Holder(int(data["pid"]), str(data["mode"]), str(data["host"]), data["started"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_held(state: Path) -> bool:
    """Whether some process holds the lock now."""
    try:
        with (state / LOCK_NAME).open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def describe(holder: Holder | None) -> str:
    """A holder in words."""
    if holder is None:
        return "its name could not be read"
    return f"{holder.mode} with pid {holder.pid} on {holder.host}"
