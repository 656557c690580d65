"""How much memory replicas really took: the measured peak for each file and way of serving it.

Kept so that the next start of the same thing is planned with what was seen, and not with what was
reckoned. A bounded list in memory, written behind to a small store.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec

log = logging.getLogger(__name__)

KEPT = 5000
"""Keys; those not recorded for the longest time go first."""
WRITE_EVERY_S = 10.0
WORTH_WRITING = 0.01
"""A peak that rose by a smaller share than this is written only at the end."""


@dataclass(frozen=True, slots=True)
class PeakKey:
    """What decides how much memory a replica takes."""

    file: str
    """The weights: their sha256 where known, else source and size (``file_name``)."""
    engine: str
    build: str | None
    """The engine's version on the node; None where it was not told."""
    context: int | None
    """Tokens that all slots hold together; 0 for what the model was trained with."""
    parallel: int | None
    kv_type: str
    """``f16``, or ``q8_0/f16`` where keys and values differ; empty where it is not known."""
    devices: tuple[str, ...]
    """Names of the cards in use, one for each; none on the processor."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The most memory that a replica of this key was seen with."""

    key: PeakKey
    peak_gb: float
    """Of the node's main memory, in GiB."""
    node: str
    """Where it was seen."""
    at: float
    """When, in Unix seconds."""
    load_time_s: float | None = None
    """The longest that loading took."""
    samples: int = 1
    """How often this key was looked at."""
    seen_at: float = 0.0
    """When it was looked at last."""


def file_name(sha256: str | None, source: str, size: int | None) -> str:
    """A file's name in keys: its hash, which survives moves, else where it lies and its size."""
    return f"sha256:{sha256}" if sha256 else f"{source}:{'?' if size is None else size}"


def difference(asked: PeakKey, found: PeakKey) -> str:
    """What a person has to know of a figure that was measured under another key; empty for none."""
    words = []
    if asked.build != found.build:
        words.append(f"with {found.engine} {found.build or 'of an unknown build'}")
    if asked.devices != found.devices:
        cards = Counter(found.devices)
        names = (f"{n} × {card}" if n > 1 else card for card, n in sorted(cards.items()))
        words.append(f"on {' and '.join(names) or 'the processor alone'}")
    return f"measured {' '.join(words)}" if words else ""


class PeakStore(Protocol):
    """Where peaks outlive the controller. Methods block and are called off the loop."""

    def put(self, peaks: Sequence[Peak]) -> None:
        """Keep these in place of what was kept for their keys."""
        ...

    def all(self) -> list[Peak]:
        """Everything that is kept, longest unseen first.

        Raises:
            OSError: it cannot be read now.
            sqlite3.Error: likewise; a ``DatabaseError`` that is no ``OperationalError`` where it
                is broken.
        """
        ...

    def set_aside(self) -> str:
        """Move a broken store out of the way, and say where it is now."""
        ...


class SqlitePeakStore:
    """Peaks in one table of a SQLite file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=10.0)
        try:
            db.execute("pragma journal_mode=wal")
            db.execute(
                "create table if not exists peaks(key blob primary key, seen_at real, body blob)"
            )
        except BaseException:
            db.close()
            raise
        return db

    def put(self, peaks: Sequence[Peak]) -> None:
        """Keep these; the longest unseen beyond ``KEPT`` go."""
        rows = [
            (msgspec.json.encode(peak.key), peak.seen_at, msgspec.json.encode(peak))
            for peak in peaks
        ]
        with closing(self._open()) as db, db:
            db.executemany("insert or replace into peaks values(?, ?, ?)", rows)
            db.execute(
                "delete from peaks where rowid in "
                "(select rowid from peaks order by seen_at desc, rowid desc limit -1 offset ?)",
                (KEPT,),
            )

    def all(self) -> list[Peak]:
        """Everything that is kept; none where the file does not exist. Odd rows are left out."""
        if not self.path.exists():
            return []
        with closing(self._open()) as db:
            query = "select body from peaks order by seen_at, rowid"
            bodies = [row[0] for row in db.execute(query)]
        peaks = []
        for body in bodies:
            try:
                peaks.append(msgspec.json.decode(body, type=Peak))
            except (msgspec.MsgspecError, TypeError) as error:
                log.warning("peaks.row_unreadable error=%s", error)
        return peaks

    def set_aside(self) -> str:
        """Rename the file to ``….broken``, over one that was set aside before."""
        aside = self.path.with_name(self.path.name + ".broken")
        self.path.replace(aside)
        for ending in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                self.path.with_name(self.path.name + ending).unlink()
        return str(aside)


class PeakLog:
    """The controller's peaks: recorded at once, found at once, written behind."""

    def __init__(self, store: PeakStore | None) -> None:
        self._store = store
        self._peaks: OrderedDict[PeakKey, Peak] = OrderedDict()
        self._alike: dict[PeakKey, set[PeakKey]] = {}
        self._written: dict[PeakKey, float] = {}
        self._changed: set[PeakKey] = set()

    async def load(self) -> None:
        """Go on from what is on disk; a broken file is set aside, with one warning."""
        if self._store is None:
            return
        try:
            peaks = await asyncio.to_thread(self._store.all)
        except (sqlite3.Error, OSError) as error:
            await self._give_up(self._store, error)
            return
        for peak in peaks[-KEPT:]:
            self._keep(peak)
            self._written[peak.key] = peak.peak_gb

    def record(
        self, key: PeakKey, gb: float, node: str, at: float, *, load_time_s: float | None = None
    ) -> None:
        """A replica of this key was seen with so much memory; the highest figure stays."""
        seen = Peak(key, gb, node, at, load_time_s, seen_at=at)
        known = self._peaks.get(key)
        self._keep(seen if known is None else _both(known, seen))
        self._changed.add(key)

    def find(self, key: PeakKey) -> Peak | None:
        """What was measured for exactly this."""
        return self._peaks.get(key)

    def nearest(self, key: PeakKey) -> Peak | None:
        """The same file served the same way by another build or on other cards.

        ``difference(key, peak.key)`` says so in words. The same cards come before the same build,
        then what was seen last.
        """
        others = self._alike.get(_alike(key), set()) - {key}
        return max(
            (self._peaks[other] for other in others),
            key=lambda p: (p.key.devices == key.devices, p.key.build == key.build, p.seen_at),
            default=None,
        )

    async def run(self, *, every_s: float = WRITE_EVERY_S) -> None:
        """Write behind until cancelled, then write the rest."""
        try:
            while True:
                await asyncio.sleep(every_s)
                await self.flush()
        finally:
            await asyncio.shield(self.close())

    async def flush(self) -> None:
        """Write the peaks that are new, or more than ``WORTH_WRITING`` above what is on disk."""
        await self._write([key for key in self._changed if self._is_worth_writing(key)])

    async def close(self) -> None:
        """Write everything that is not on disk as it is here."""
        await self._write(list(self._changed))

    def _is_worth_writing(self, key: PeakKey) -> bool:
        written = self._written.get(key)
        return written is None or self._peaks[key].peak_gb > written * (1 + WORTH_WRITING)

    async def _write(self, keys: Sequence[PeakKey]) -> None:
        store = self._store
        if store is None or not keys:
            return
        batch = [self._peaks[key] for key in keys]
        try:
            await asyncio.to_thread(store.put, batch)
        except (sqlite3.Error, OSError) as error:
            if _is_broken(error):
                await self._give_up(store, error)
            else:
                log.warning("peaks.unwritten count=%d error=%s", len(batch), error)
            return
        for peak in batch:
            if peak.key in self._peaks:
                self._written[peak.key] = peak.peak_gb
            if self._peaks.get(peak.key) == peak:
                self._changed.discard(peak.key)

    async def _give_up(self, store: PeakStore, error: Exception) -> None:
        """Start a new file beside a broken one; leave one that is only unreachable alone."""
        aside = "left where it is, and nothing is written"
        if _is_broken(error):
            try:
                aside = f"set aside as {await asyncio.to_thread(store.set_aside)}"
            except OSError as why:
                aside = f"it could not be moved ({why}), and nothing is written"
                self._store = None
        else:
            self._store = None
        log.warning("peaks.unreadable error=%s %s", error, aside)
        self._written.clear()
        self._changed.update(self._peaks)

    def _keep(self, peak: Peak) -> None:
        key = peak.key
        self._peaks[key] = peak
        self._peaks.move_to_end(key)
        self._alike.setdefault(_alike(key), set()).add(key)
        while len(self._peaks) > KEPT:
            gone, _ = self._peaks.popitem(last=False)
            self._written.pop(gone, None)
            self._changed.discard(gone)
            group = self._alike[_alike(gone)]
            group.discard(gone)
            if not group:
                del self._alike[_alike(gone)]


def _both(one: Peak, two: Peak) -> Peak:
    """Two records of one key as one, whichever came first."""
    higher = max(one, two, key=lambda p: (p.peak_gb, -p.at, p.node))
    times = [p.load_time_s for p in (one, two) if p.load_time_s is not None]
    return replace(
        higher,
        load_time_s=max(times, default=None),
        samples=one.samples + two.samples,
        seen_at=max(one.seen_at, two.seen_at),
    )


def _alike(key: PeakKey) -> PeakKey:
    """The key without what may differ between neighbours."""
    return replace(key, build=None, devices=())


def _is_broken(error: Exception) -> bool:
    """Whether the file itself is bad, and not only locked, full or out of reach."""
    return isinstance(error, sqlite3.DatabaseError) and not isinstance(
        error, sqlite3.OperationalError
    )
