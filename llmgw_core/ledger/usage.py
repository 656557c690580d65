"""Who used how many tokens of what: sums by day, owner, key and model, in SQLite.

The gateway adds to them as requests end; anybody may read meanwhile (WAL). A commit waits for no
disk: what was added survives the end of the process, however it comes, and a power cut may cost the
last seconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from pathlib import Path

from llmgw_core.errors import InvalidInput, LlmgwError

FILE = "usage.db"
BUSY_S = 10.0
DIMENSIONS = ("day", "owner", "key", "key_name", "model", "requested")
_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class UsageKey:
    """What sums are kept apart by."""

    day: str
    """UTC, as ``2026-11-30``."""
    owner: str = ""
    """Whom it is charged to; empty for nobody."""
    key: str = ""
    """The key's id; empty where none was needed."""
    key_name: str = ""
    model: str = ""
    """The catalog's name of what served."""
    requested: str = ""
    """The name that the client asked for."""


@dataclass(frozen=True, slots=True)
class UsageSum:
    """Sums over requests that a replica was asked."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Of the prompts' tokens: those that a replica held already."""
    untold: int = 0
    """Requests whose tokens no engine told: they are in ``requests`` and in no other sum."""
    cut: int = 0
    """Answers that broke off, or whose client left."""
    refused: int = 0
    """Requests that were refused here; they are not in ``requests``."""

    def __add__(self, other: UsageSum) -> UsageSum:
        pairs = zip(self._values(), other._values(), strict=True)
        return UsageSum(*(one + two for one, two in pairs))

    def _values(self) -> Sequence[int]:
        return [getattr(self, name) for name in SUMS]


SUMS = tuple(column.name for column in fields(UsageSum))


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One line of an account: what it is grouped by, and the sums."""

    by: dict[str, str]
    sums: UsageSum


class UsageStore:
    """The ledger's file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db: sqlite3.Connection | None = None

    def add(self, entries: Iterable[tuple[UsageKey, UsageSum]]) -> None:
        """Add to the sums, all or nothing. To be called by one thread at a time.

        Raises:
            sqlite3.Error: the disk is full, or the file is no ledger; nothing was added.
        """
        if self._db is None:
            self._db = _opened(self.path)
        columns = ", ".join((*DIMENSIONS, *SUMS))
        marks = ", ".join("?" * (len(DIMENSIONS) + len(SUMS)))
        grown = ", ".join(f"{name} = {name} + excluded.{name}" for name in SUMS)
        rows = [
            (*(getattr(key, name) for name in DIMENSIONS), *(getattr(add, n) for n in SUMS))
            for key, add in entries
        ]
        # every name is a constant of this module; values are passed apart
        query = (
            f"insert into usage ({columns}) values ({marks}) "  # noqa: S608
            f"on conflict ({', '.join(DIMENSIONS)}) do update set {grown}"
        )
        with self._db:
            self._db.executemany(query, rows)

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def read(
        self, by: Sequence[str], *, since: str = "", only: dict[str, str] | None = None
    ) -> list[UsageRow]:
        """Sums grouped by some of ``DIMENSIONS``, largest first; none where there is no file.

        Args:
            by: dimensions to keep apart.
            since: the first day that counts.
            only: values that dimensions must have.

        Raises:
            InvalidInput: there is no such dimension.
            LlmgwError: the file cannot be read.
        """
        unknown = [name for name in (*by, *(only or {})) if name not in DIMENSIONS]
        if unknown:
            raise InvalidInput(
                f"usage is not kept by {unknown[0]!r}; it is by {', '.join(DIMENSIONS)}"
            )
        if not self.path.exists():
            return []
        wanted = {name: value for name, value in (only or {}).items() if value}
        where = " and ".join(["day >= ?", *(f"{name} = ?" for name in wanted)])
        groups = ", ".join(by)
        sums = ", ".join(f"sum({name})" for name in SUMS)
        order = f"group by {groups} order by sum(prompt_tokens + completion_tokens) desc, {groups}"
        # every name is one of DIMENSIONS or SUMS; values are passed apart
        query = f"select {', '.join((*by, sums))} from usage where {where} "  # noqa: S608
        try:
            with closing(sqlite3.connect(self.path, timeout=BUSY_S)) as db:
                db.execute("pragma query_only = true")
                values = (since, *wanted.values())
                rows = db.execute(query + (order if by else ""), values).fetchall()
        except sqlite3.Error as error:
            raise LlmgwError(f"the usage in {self.path} cannot be read: {error}") from error
        count = len(by)
        return [
            UsageRow(dict(zip(by, row[:count], strict=True)), UsageSum(*row[count:]))
            for row in rows
            if row[count] is not None
        ]


def _opened(path: Path) -> sqlite3.Connection:
    path.touch(mode=0o600, exist_ok=True)
    db = sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False)
    try:
        db.execute("pragma journal_mode = wal")
        db.execute("pragma synchronous = normal")
        texts = ", ".join(f"{name} text not null" for name in DIMENSIONS)
        numbers = ", ".join(f"{name} integer not null default 0" for name in SUMS)
        key = ", ".join(DIMENSIONS)
        with db:
            db.execute(
                f"create table if not exists usage ({texts}, {numbers}, primary key ({key})) "
                "without rowid"
            )
            db.execute(f"pragma user_version = {_SCHEMA_VERSION}")
    except BaseException:
        db.close()
        raise
    return db
