"""How bytes go out: by sendfile, in pieces, under one limit that all downloads share."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

PIECE_MOST = 2 * 1024 * 1024
"""Bytes after which another download gets its turn; large, because each costs a system call."""
PIECE_LEAST = 16 * 1024
PIECE_S = 0.02
"""Under a limit a piece is what may go out in this time, within the bounds above."""
BURST_S = 0.05
"""Time's worth of unused rate that may be caught up on: the loop's timers are late by a little."""
RATE_LEAST = 16 * 1024
"""Bytes per second; with less, a single piece would take more than a second."""


class Bucket:
    """A token bucket over a given clock: over any time ``t`` it grants at most
    ``rate * (t + BURST_S)`` bytes and one piece more.

    Args:
        rate: bytes per second; None is no limit.
    """

    def __init__(self, rate: float | None, now: float) -> None:
        self.rate = rate
        self._full = now
        """When everything granted so far will have been paid for."""

    @property
    def piece(self) -> int:
        """Bytes to ask for at once."""
        if self.rate is None:
            return PIECE_MOST
        return min(max(int(self.rate * PIECE_S), PIECE_LEAST), PIECE_MOST)

    def wait_s(self, now: float) -> float:
        """Seconds until the next piece may be granted."""
        return 0.0 if self.rate is None else max(self._full - now, 0.0)

    def grant(self, size: int, now: float) -> None:
        """A piece of this many bytes goes out; ask ``wait_s`` before."""
        if self.rate is not None:
            self._full = max(self._full, now - BURST_S) + size / self.rate

    def set_rate(self, rate: float | None, now: float) -> None:
        """From now on another rate; what was granted too early is still paid for, at the new."""
        owed = (self._full - now) * self.rate if self.rate is not None else 0.0
        self.rate = rate
        self._full = now + max(owed, 0.0) / rate if rate is not None else now


class SharedLimit:
    """The bucket of all downloads. Each asks for one piece at a time and they take turns, so that
    each gets the same share, and what a slow one leaves goes to the others.
    """

    def __init__(self, rate: float | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._bucket = Bucket(rate, clock())
        # asyncio's lock is first come, first served: those who wait are the queue
        self._turn = asyncio.Lock()

    @property
    def rate(self) -> float | None:
        """Bytes per second; None is no limit."""
        return self._bucket.rate

    def set_rate(self, rate: float | None) -> None:
        """From now on another rate, for running downloads too."""
        self._bucket.set_rate(rate, self._clock())

    async def take(self, left: int) -> int:
        """Wait for one's turn; how many bytes may go out, at most ``left``."""
        bucket = self._bucket
        if bucket.rate is None:
            return min(bucket.piece, left)
        async with self._turn:
            # again after each wait: the rate may have changed, and timers may be early
            while (wait := bucket.wait_s(self._clock())) > 0:  # noqa: ASYNC110 - for time alone
                await asyncio.sleep(wait)
            size = min(bucket.piece, left)
            bucket.grant(size, self._clock())
            return size


class Stalled(ConnectionError):
    """The other side took nothing for too long."""


class Truncated(OSError):
    """The file ended before what was promised."""


class Outlet:
    """Sends a file's bytes to one connection, past the transport that owns it.

    The transport must have nothing left to send. The socket is a duplicate: the loop allows no
    watching of a descriptor that belongs to a transport, and one that closes cannot be reused
    under a running system call.

    Args:
        sock: the connection's.
        stall_s: how long the other side may take nothing.
    """

    def __init__(self, sock: socket.socket, *, stall_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._fd = os.dup(sock.fileno())
        self._stall_s = stall_s

    def close(self) -> None:
        """Give the duplicate back."""
        os.close(self._fd)

    async def send(
        self, file: int, offset: int, count: int, *, limit: SharedLimit, sent: Callable[[int], None]
    ) -> None:
        """Send ``count`` bytes of an open file from ``offset``; ``sent`` hears of each part.

        Raises:
            Stalled: the other side took nothing for ``stall_s``.
            Truncated: the file is shorter than that.
            OSError: the connection or the disk broke.
        """
        end = offset + count
        while offset < end:
            piece_end = offset + await limit.take(end - offset)
            while offset < piece_end:
                try:
                    done = os.sendfile(self._fd, file, offset, piece_end - offset)
                except BlockingIOError:
                    await self._writable()
                    continue
                if done == 0:
                    raise Truncated(f"the file ends at byte {offset} of {end}")
                offset += done
                sent(done)
            await asyncio.sleep(0)  # a reader that is never full must not keep the loop

    async def _writable(self) -> None:
        ready = self._loop.create_future()
        self._loop.add_writer(self._fd, _wake, ready)
        try:
            async with asyncio.timeout(self._stall_s):
                await ready
        except TimeoutError:
            raise Stalled(f"nothing was taken for {self._stall_s:g} s") from None
        finally:
            self._loop.remove_writer(self._fd)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
