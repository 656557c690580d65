"""One rate for all that a pull fetches at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Bucket:
    """A token bucket that is paid afterwards: what came already costs the next one time. Pure.

    Args:
        rate: Bytes per second.
        burst_s: How much unused time may be saved up.
    """

    def __init__(self, rate: float, *, burst_s: float = 0.25) -> None:
        self.rate = rate
        self._burst_s = burst_s
        self._paid_until = float("-inf")

    def pay(self, count: int, now: float) -> float:
        """Take so many bytes; the seconds to wait before more are taken."""
        start = max(self._paid_until, now - self._burst_s)
        self._paid_until = start + count / self.rate
        return max(0.0, self._paid_until - now)


class Toll:
    """What fetches pay for their bytes; without a rate nothing."""

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._bucket = Bucket(rate) if rate else None
        self._clock = clock
        self._pause = pause

    async def pay(self, count: int) -> None:
        """Wait for as long as so many bytes cost."""
        if self._bucket is not None:
            wait_s = self._bucket.pay(count, self._clock())
            if wait_s > 0:
                await self._pause(wait_s)
