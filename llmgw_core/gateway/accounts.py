"""Books what requests used: added up in memory, and in the ledger as soon as the disk takes it."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime

from llmgw_core.gateway.metrics import Outcome, RequestRecord
from llmgw_core.ledger.usage import UsageKey, UsageStore, UsageSum

log = logging.getLogger(__name__)

RETRY_S = 5.0
UNWRITTEN_MOST = 100_000
"""Different lines that wait for a disk that takes nothing; beyond it they are lost, and logged."""


def day_of(wall: float) -> str:
    """The UTC day of a Unix time."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%d")


def entry_of(record: RequestRecord, day: str) -> tuple[UsageKey, UsageSum] | None:
    """What one request adds to which line; None for what named no model that exists."""
    if record.model is None:
        return None
    key = record.key
    line = UsageKey(
        day=day,
        owner=record.owner or "",
        key=key.id if key is not None else "",
        key_name=key.name if key is not None else "",
        model=record.model,
        requested=record.requested or record.model,
    )
    if record.outcome is Outcome.REFUSED:
        return line, UsageSum(refused=1)
    usage = record.usage
    told = usage.prompt_tokens is not None or usage.completion_tokens is not None
    return line, UsageSum(
        requests=1,
        prompt_tokens=usage.prompt_tokens or 0,
        completion_tokens=usage.completion_tokens or 0,
        cached_tokens=usage.cached_tokens or 0,
        untold=0 if told or record.status >= 400 else 1,
        cut=int(record.outcome in (Outcome.CUT, Outcome.GONE)),
    )


class Accounts:
    """An observer of requests. ``run`` owns the writing."""

    def __init__(self, store: UsageStore, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._waiting: dict[UsageKey, UsageSum] = {}
        self._some = asyncio.Event()

    def book(self, record: RequestRecord) -> None:
        """Add one request that is over."""
        entry = entry_of(record, day_of(self._clock()))
        if entry is None:
            return
        line, add = entry
        before = self._waiting.get(line)
        if before is None and len(self._waiting) >= UNWRITTEN_MOST:
            log.error("usage.lost line=%s sums=%s", line, add)
            return
        self._waiting[line] = add if before is None else before + add
        self._some.set()

    async def run(self) -> None:
        """Write what is booked as it comes, until cancelled."""
        while True:
            await self._some.wait()
            if not await self.flush():
                await asyncio.sleep(RETRY_S)

    async def flush(self) -> bool:
        """Write what is booked; False where the disk did not take it, and it waits on."""
        self._some.clear()
        batch, self._waiting = self._waiting, {}
        if not batch:
            return True
        write = asyncio.ensure_future(asyncio.to_thread(self._store.add, list(batch.items())))
        try:
            await asyncio.shield(write)
        except asyncio.CancelledError:
            await asyncio.wait([write])  # it is written once: not cut off, not again
            raise
        except (sqlite3.Error, OSError) as error:
            log.warning("usage.unwritten lines=%d error=%s", len(batch), error)
            for line, add in batch.items():
                later = self._waiting.get(line)
                self._waiting[line] = add if later is None else add + later
            self._some.set()
            return False
        return True

    async def close(self) -> None:
        """Write the rest and close the file."""
        await self.flush()
        await asyncio.to_thread(self._store.close)
