"""Requests that wait for a place at a replica: by class, then in the order in which they came.

Pure: times are passed in, and whoever waits is called when there is a place.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol


class Waiter(Protocol):
    """A request that waits."""

    def called(self) -> bool:
        """Try to go on; False where there is no place for it."""
        ...


class Line:
    """Those who wait for one model."""

    __slots__ = ("_gone", "_heap", "_members")

    def __init__(self) -> None:
        self._heap: list[tuple[int, float, int, Waiter]] = []
        self._members: dict[Waiter, int] = {}
        self._gone = 0

    def __len__(self) -> int:
        return len(self._members)

    def join(self, waiter: Waiter, *, rank: int, since: float) -> None:
        """Stand in the line; one that stands there already stays where it is.

        Args:
            waiter: who waits.
            rank: of its class; higher ones come first.
            since: when its request came.
        """
        if waiter not in self._members:
            number = self._gone + len(self._members)
            self._members[waiter] = number
            heapq.heappush(self._heap, (-rank, since, number, waiter))

    def leave(self, waiter: Waiter) -> None:
        """Wait no more."""
        if self._members.pop(waiter, None) is not None:
            self._gone += 1

    def first(self) -> Waiter | None:
        """Who comes next."""
        while self._heap:
            _, _, number, waiter = self._heap[0]
            if self._members.get(waiter) == number:
                return waiter
            heapq.heappop(self._heap)
        return None


class Lines:
    """The lines of all models. ``on_first`` is told when somebody begins to wait."""

    def __init__(self) -> None:
        self.on_wait: Callable[[], None] = lambda: None
        self._lines: dict[str, Line] = {}
        self._calling: set[str] = set()

    def count(self, model: str) -> int:
        """How many wait for a model."""
        line = self._lines.get(model)
        return len(line) if line is not None else 0

    def join(self, model: str, waiter: Waiter, *, rank: int, since: float) -> None:
        """Wait for a model."""
        self._lines.setdefault(model, Line()).join(waiter, rank=rank, since=since)
        self.on_wait()

    def leave(self, model: str, waiter: Waiter) -> None:
        """Wait no more."""
        line = self._lines.get(model)
        if line is None:
            return
        line.leave(waiter)
        if not len(line):
            del self._lines[model]

    def call(self, model: str) -> None:
        """Let those go on for whom there is a place now, in order."""
        if model in self._calling:
            return  # who goes on may free a place at once, and call again
        self._calling.add(model)
        try:
            while True:
                line = self._lines.get(model)
                first = line.first() if line is not None else None
                if first is None or not first.called():
                    return
        finally:
            self._calling.discard(model)

    def call_all(self) -> None:
        """Another table is in force: look at every line."""
        for model in list(self._lines):
            self.call(model)
