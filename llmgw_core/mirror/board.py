"""What a pull shows of itself while it runs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from llmgw_core.mirror.versions import FileState, MirrorFile, MirrorVersion
from llmgw_core.mirror.wanted import Listener

EVERY_S = 0.2
RATE_OVER_S = 5.0

OnProgress = Callable[[MirrorVersion], None]
"""Hears of a version; called on the loop, so it must not take long."""


class Rate:
    """Bytes per second over the last few seconds. Pure."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, now: float, done: int) -> float | None:
        """The rate after ``done`` bytes; None before there are two moments to compare."""
        if self._seen and done < self._seen[-1][1]:
            self._seen.clear()  # begun again
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_OVER_S:
            self._seen.popleft()
        first_at, first_done = self._seen[0]
        return (done - first_done) / (now - first_at) if now > first_at else None


class Board:
    """The state of each file, told at most every ``EVERY_S`` and once at the end."""

    def __init__(
        self, version: MirrorVersion, told: OnProgress, clock: Callable[[], float]
    ) -> None:
        self._files = {file.file: file for file in version.files}
        self._version = version
        self._told = told
        self._clock = clock
        self._rates: dict[str, Rate] = {}
        self._changed = True

    @property
    def version(self) -> MirrorVersion:
        """As it is now."""
        return replace(self._version, files=tuple(self._files.values()))

    def file(self, name: str) -> MirrorFile:
        """One file as it is now."""
        return self._files[name]

    def put(self, file: MirrorFile) -> None:
        """A file is in another state."""
        self._files[file.file] = file
        self._changed = True
        if file.state is not FileState.FETCHING:
            self._rates.pop(file.file, None)

    def tell(self) -> None:
        """Tell now, where anything changed or is under way."""
        now = self._clock()
        for name, file in self._files.items():
            if file.state is FileState.FETCHING:
                rate = self._rates.setdefault(name, Rate()).at(now, file.bytes_done)
                self._files[name] = replace(file, rate=rate)
                self._changed = True
        if self._changed:
            self._changed = False
            self._told(self.version)

    async def run(self) -> None:
        """Tell for as long as it is not cancelled."""
        while True:
            self.tell()
            await asyncio.sleep(EVERY_S)


class FileListener(Listener):
    """Takes what a fetch says to the board."""

    def __init__(self, board: Board, name: str) -> None:
        self._board = board
        self._name = name

    def moved(self, done: int, total: int | None) -> None:
        """So many bytes have come."""
        self._put(FileState.FETCHING, done, total)

    def checking(self, done: int, total: int | None) -> None:
        """What came earlier is being read: it counts as here."""
        self._put(FileState.CHECKING, done, total)

    def noted(self, what: str) -> None:
        """Something was mended."""
        self._board.put(replace(self._board.file(self._name), note=what))

    def _put(self, state: FileState, done: int, total: int | None) -> None:
        file = self._board.file(self._name)
        self._board.put(
            replace(
                file,
                state=state,
                bytes_done=done,
                bytes_total=file.bytes_total if total is None else total,
                rate=file.rate if state is FileState.FETCHING else None,
            )
        )
