"""One rate for all that a pull fetches at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from llmgw_core.mirror.limit import Bucket


class Toll:
    """What fetches pay for their bytes, afterwards: what has come costs the next one time.

    Args:
        rate: Bytes per second; None is no limit.
        clock: Seconds that never go back.
        pause: How to wait.
    """

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._bucket = Bucket(rate, clock())
        self._clock = clock
        self._pause = pause

    async def pay(self, count: int) -> None:
        """Wait for as long as so many bytes cost."""
        if self._bucket.rate is None:
            return
        self._bucket.grant(count, self._clock())
        wait_s = self._bucket.wait_s(self._clock())
        if wait_s > 0:
            await self._pause(wait_s)
