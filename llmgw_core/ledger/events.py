"""What happened: a bounded list in memory, kept on disk behind a small store protocol."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

import msgspec

from llmgw_core.api.views import EventView

log = logging.getLogger(__name__)

KEPT_IN_MEMORY = 1000
KEPT_ON_DISK = 20_000
UNWRITTEN_MOST = 5000


class EventStore(Protocol):
    """Where events outlive the controller. Methods block and are called off the loop."""

    def append(self, events: Sequence[EventView]) -> None:
        """Keep these; the oldest beyond the store's bound go."""
        ...

    def last(self, count: int) -> list[EventView]:
        """The newest events, oldest first."""
        ...


class SqliteEventStore:
    """Events in one table of a SQLite file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=10.0)
        db.execute("pragma journal_mode=wal")
        db.execute("create table if not exists events(seq integer primary key, body blob)")
        return db

    def append(self, events: Sequence[EventView]) -> None:
        """Keep these; the oldest beyond ``KEPT_ON_DISK`` go."""
        rows = [(event.seq, msgspec.json.encode(event)) for event in events]
        with closing(self._open()) as db, db:
            db.executemany("insert or replace into events values(?, ?)", rows)
            newest = max(event.seq for event in events)
            db.execute("delete from events where seq <= ?", (newest - KEPT_ON_DISK,))

    def last(self, count: int) -> list[EventView]:
        """The newest events, oldest first; none where the file does not exist."""
        if not self.path.exists():
            return []
        with closing(self._open()) as db:
            query = "select body from events order by seq desc limit ?"
            bodies = [row[0] for row in db.execute(query, (count,))]
        return [msgspec.json.decode(body, type=EventView) for body in reversed(bodies)]


class EventLog:
    """The controller's events: added at once, written behind, streamed to any reader."""

    def __init__(self, store: EventStore | None, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._kept: deque[EventView] = deque(maxlen=KEPT_IN_MEMORY)
        self._unwritten: deque[EventView] = deque(maxlen=UNWRITTEN_MOST)
        self._added = asyncio.Event()
        self._seq = 0

    async def load(self) -> None:
        """Go on from what is on disk; a file that cannot be read is logged and left alone."""
        if self._store is None:
            return
        try:
            events = await asyncio.to_thread(self._store.last, KEPT_IN_MEMORY)
        except (sqlite3.Error, msgspec.MsgspecError, OSError) as error:
            log.warning("events.unreadable error=%s", error)
            self._store = None
            return
        self._kept.extend(events)
        self._seq = events[-1].seq if events else 0

    def add(
        self,
        kind: str,
        text: str,
        *,
        actor: str = "controller",
        severity: str = "info",
        node: str | None = None,
        model: str | None = None,
        replica: str | None = None,
    ) -> EventView:
        """Record that something happened, now."""
        self._seq += 1
        event = EventView(
            self._seq, self._clock(), kind, text, actor, severity, node, model, replica
        )
        self._kept.append(event)
        self._unwritten.append(event)
        self._added.set()
        self._added = asyncio.Event()
        level = logging.INFO if severity == "info" else logging.WARNING
        log.log(level, "%s actor=%s %s", kind, actor, text)
        return event

    def recent(self, after: int = 0) -> list[EventView]:
        """Events in memory with a higher number, oldest first."""
        return [event for event in self._kept if event.seq > after]

    async def stream(self, *, after: int = 0, follow: bool = True) -> AsyncIterator[EventView]:
        """Events with a higher number, then, with follow, new ones as they come."""
        while True:
            added = self._added
            for event in self.recent(after):
                after = event.seq
                yield event
            if not follow:
                return
            await added.wait()

    async def run(self, *, every_s: float = 1.0) -> None:
        """Write behind until cancelled, then write the rest."""
        try:
            while True:
                await asyncio.sleep(every_s)
                await self.flush()
        finally:
            await asyncio.shield(self.flush())

    async def flush(self) -> None:
        """Write what is not on disk yet; a full disk is logged, and the events stay in memory."""
        if self._store is None or not self._unwritten:
            return
        batch = list(self._unwritten)
        self._unwritten.clear()
        try:
            await asyncio.to_thread(self._store.append, batch)
        except (sqlite3.Error, OSError) as error:
            log.warning("events.unwritten count=%d error=%s", len(batch), error)
