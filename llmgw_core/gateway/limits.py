"""How much a key and an owner may use: requests and tokens per minute and day, requests at once.

Pure; both clocks are passed in. A minute is any 60 seconds, a day is one of UTC, as in the ledger.
Tokens are known when an answer ends: a request is let in as long as those used so far are below the
limit, so the last one may go beyond it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from llmgw_core.gateway.errors import ApiError
from llmgw_core.gateway.keys import Key
from llmgw_core.gateway.table import UNLIMITED, KeyLimits

MINUTE_S = 60
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Now:
    """One moment: ``mono`` in seconds of a clock that never jumps, ``wall`` in Unix seconds."""

    mono: float
    wall: float

    @property
    def day(self) -> int:
        """Number of the UTC day."""
        return int(self.wall // DAY_S)

    @property
    def day_ends_in_s(self) -> float:
        """Seconds until the next UTC day."""
        return DAY_S - self.wall % DAY_S


class Minute:
    """A sum over the last 60 seconds, kept by whole seconds; never less than the true one."""

    __slots__ = ("_seconds", "total")

    def __init__(self) -> None:
        self.total = 0
        self._seconds: deque[tuple[int, int]] = deque()

    def add(self, amount: int, mono: float) -> None:
        """Add something that happened now."""
        if amount <= 0:
            return
        second = int(mono)
        self.total += amount
        if self._seconds and self._seconds[-1][0] == second:
            amount += self._seconds.pop()[1]
        self._seconds.append((second, amount))

    def read(self, mono: float) -> int:
        """The sum now."""
        while self._seconds and mono - self._seconds[0][0] >= MINUTE_S + 1:
            self.total -= self._seconds.popleft()[1]
        return self.total

    def below_in_s(self, limit: int, mono: float) -> float:
        """Seconds until the sum is below a limit, if nothing is added meanwhile."""
        left = self.read(mono)
        for second, amount in self._seconds:
            if left < limit:
                break
            left -= amount
            freed = second + MINUTE_S + 1 - mono
            if left < limit:
                return max(freed, 0.0)
        return 0.0


@dataclass(slots=True)
class Meter:
    """What one key or owner has used."""

    running: int = 0
    requests: Minute = field(default_factory=Minute)
    tokens: Minute = field(default_factory=Minute)
    day: int = -1
    requests_today: int = 0
    tokens_today: int = 0

    def turn(self, day: int) -> None:
        """Begin a new day where it is one."""
        if day != self.day:
            self.day, self.requests_today, self.tokens_today = day, 0, 0

    def refusal(self, limits: KeyLimits, now: Now) -> tuple[str, float] | None:
        """What is used up and for how many seconds; None where a request may go on."""
        self.turn(now.day)
        found: list[tuple[str, float]] = []
        minutely = (
            (self.requests, limits.requests_per_minute, "requests"),
            (self.tokens, limits.tokens_per_minute, "tokens"),
        )
        for minute, limit, what in minutely:
            if limit is not None and minute.read(now.mono) >= limit:
                wait = minute.below_in_s(limit, now.mono)
                found.append((f"{limit} {what} a minute", wait))
        daily = (
            (self.requests_today, limits.requests_per_day, "requests"),
            (self.tokens_today, limits.tokens_per_day, "tokens"),
        )
        for used, limit, what in daily:
            if limit is not None and used >= limit:
                found.append((f"{limit} {what} a day", now.day_ends_in_s))
        if found:
            return max(found, key=lambda one: one[1])
        if limits.concurrency is not None and self.running >= limits.concurrency:
            return f"{limits.concurrency} requests at once", 1.0
        return None


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request that was let in, and whom its use counts against."""

    meters: tuple[Meter, ...]


class Limiter:
    """All meters of a gateway."""

    def __init__(self) -> None:
        self.owners: Mapping[str, KeyLimits] = {}
        """Limits of owners, by name; those that are missing have none."""
        self._meters: dict[tuple[str, str], Meter] = {}

    def admit(self, key: Key | None, owner: str | None, now: Now) -> Ticket:
        """Let a request in and count it.

        Args:
            key: with which it came.
            owner: whom it is charged to.
            now: the moment.

        Raises:
            ApiError: 429 with the time to wait: a limit of the key or the owner is reached.
        """
        bound: list[tuple[Meter, KeyLimits, str]] = []
        if key is not None and key.limits != UNLIMITED:
            bound.append((self._meter("key", key.id), key.limits, f"The API key {key.hint}"))
        limits = self.owners.get(owner or "", UNLIMITED)
        if owner is not None and limits != UNLIMITED:
            bound.append((self._meter("owner", owner), limits, f"The owner {owner}"))
        for meter, allowed, who in bound:
            refused = meter.refusal(allowed, now)
            if refused is not None:
                raise _too_many(who, *refused)
        for meter, _, _ in bound:
            meter.running += 1
            meter.requests.add(1, now.mono)
            meter.requests_today += 1
        return Ticket(tuple(meter for meter, _, _ in bound))

    def release(self, ticket: Ticket, tokens: int, now: Now) -> None:
        """A request that was let in is over, and has used so many tokens."""
        for meter in ticket.meters:
            meter.turn(now.day)
            meter.running -= 1
            meter.tokens.add(tokens, now.mono)
            meter.tokens_today += tokens

    def begin_day(self, used: Iterable[tuple[str, str, int, int]], now: Now) -> None:
        """Go on from what the ledger holds of today: ``key`` or ``owner``, its id or name,
        requests and tokens."""
        for kind, name, requests, tokens in used:
            meter = self._meter(kind, name)
            meter.turn(now.day)
            meter.requests_today += requests
            meter.tokens_today += tokens

    def _meter(self, kind: str, name: str) -> Meter:
        return self._meters.setdefault((kind, name), Meter())


def _too_many(who: str, limit: str, wait_s: float) -> ApiError:
    seconds = max(1, math.ceil(wait_s))
    return ApiError(
        429,
        f"{who} has reached its limit of {limit}; try again in {_words(seconds)}.",
        kind="rate_limit_error",
        code="rate_limit_exceeded",
        retry_after_s=seconds,
    )


def _words(seconds: int) -> str:
    if seconds < 2 * MINUTE_S:
        return f"{seconds} s"
    if seconds < 2 * 3600:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h"
