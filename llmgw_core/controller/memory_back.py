"""GPU memory that a driver gives back a moment after its process is gone: waited for before the
next start. Host memory needs no wait: a stop ends only once no process is left, and its memory with
it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from llmgw_core.nodes.facts import HostSample

LOOK_S = 2.0
"""Between two looks: as often as a node tells of its cards."""
MEMORY_BACK_S = 30.0
"""Longest wait after a stop; the start then goes on and fails, or not, by itself."""
FELL_GB = 0.25
"""A change of this size is one."""
IDLE_GB = 1.0
"""A card on which nothing runs has at most so much in use."""

Used = Mapping[str, float]
"""GiB in use, by card."""


@dataclass(frozen=True, slots=True)
class Release:
    """A stop of something that had GPUs."""

    replica: str
    used: Used | None
    """Before it; None where that was not known."""
    at: float
    """Monotonic time of its end."""


def used_now(sample: HostSample | None) -> Used | None:
    """What of each card is in use; None where that is not known."""
    gpus = sample.gpus if sample is not None else None
    if not gpus or any(gpu.memory_used_gb is None for gpu in gpus):
        return None
    return {gpu.uuid: gpu.memory_used_gb or 0.0 for gpu in gpus}


def is_back(before: Used | None, now: Used | None) -> bool:
    """Whether memory was seen to come back since; not so where the cards say nothing now. Pure."""
    if now is None:
        return False
    if before is None or all(used <= IDLE_GB for used in now.values()):
        return True
    return sum(before.values()) - sum(now.values()) >= FELL_GB


def is_steady(last: Used | None, now: Used | None) -> bool:
    """Whether the memory in use no longer falls from one look to the next. Pure."""
    return last is not None and now is not None and sum(last.values()) - sum(now.values()) < FELL_GB


class MemoryBack:
    """What was stopped lately, by node."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._releases: dict[str, Release] = {}

    def released(self, node: str, replica: str, before: Used | None) -> None:
        """A replica with GPUs has just ended there; ``before`` is what was in use until then."""
        self._releases[node] = Release(replica, before, self._clock())

    def pending(self, node: str) -> str:
        """The replica whose memory is waited for there; empty where none is."""
        release = self._releases.get(node)
        if release is None or self._clock() - release.at >= MEMORY_BACK_S:
            return ""
        return release.replica

    async def wait(self, node: str, look: Callable[[], Used | None]) -> bool:
        """Wait until it is back, at most ``MEMORY_BACK_S`` after the stop; whether it is."""
        release, last = self._releases.get(node), None
        while release is not None and self._clock() - release.at < MEMORY_BACK_S:
            now = look()
            if is_back(release.used, now) and is_steady(last, now):
                if self._releases.get(node) is release:
                    del self._releases[node]
                return True
            last = now
            await self._sleep(LOOK_S)
            release = self._releases.get(node)
        self._releases.pop(node, None)
        return release is None
