"""Asks each running replica how it is: health while it loads, health and numbers when ready."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from llmgw_core.controller.liveness import Pulse, Try
from llmgw_core.controller.replica import Health, Phase, Replica
from llmgw_core.controller.roster import Roster
from llmgw_core.errors import LlmgwError
from llmgw_core.nodes.api import FleetHandle
from llmgw_core.nodes.instance import Endpoint

log = logging.getLogger(__name__)

LOADING_INTERVAL_S = 0.5
SERIES_LENGTH = 120


@dataclass(frozen=True, slots=True)
class Numbers:
    """One scrape: gauges now, and rates since the scrape before; None where unknown."""

    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What one round of questions gave."""

    health: Health
    numbers: Numbers | None
    pulse: Pulse | None = None
    """None where its health check was not answered well."""


class Prober(Protocol):
    """Asks one replica; keeps what it needs to turn counters into rates."""

    async def ask(self, *, at: float) -> Reading:
        """One bounded round of questions; never raises for an engine that does not answer."""
        ...

    async def one_token(self) -> str:
        """Ask for one token, within bounds: why that failed, or nothing."""
        ...


MakeProber = Callable[[Replica, Endpoint], Prober]


@dataclass(slots=True)
class Watched:
    """What is known of one replica's engine."""

    token: str | None
    health: Health | None = None
    numbers: Numbers | None = None
    pulse: Pulse | None = None
    found: Try | None = None
    """What came of the newest request for one token."""
    prober: Prober | None = None
    trying: asyncio.Task[None] | None = None
    tokens: deque[float | None] = field(default_factory=lambda: deque(maxlen=SERIES_LENGTH))
    running: deque[float | None] = field(default_factory=lambda: deque(maxlen=SERIES_LENGTH))
    waiting: deque[float | None] = field(default_factory=lambda: deque(maxlen=SERIES_LENGTH))


class Watcher:
    """One task for each replica that has a port; ``sync`` makes and ends them."""

    def __init__(
        self,
        roster: Roster,
        fleet: FleetHandle,
        make_prober: MakeProber,
        *,
        interval_s: float,
        kick: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.interval_s = interval_s
        self._roster = roster
        self._fleet = fleet
        self._make_prober = make_prober
        self._kick = kick
        self._clock = clock
        self._watched: dict[str, Watched] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def of(self, replica: Replica) -> Watched | None:
        """What is known of the replica's present run, or None."""
        watched = self._watched.get(replica.id)
        return watched if watched is not None and watched.token == replica.token else None

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Where each watched replica is reached, by replica id."""
        return self._endpoints

    def try_one(self, replica: Replica) -> None:
        """Begin to ask the replica's engine for one token, unless that is under way."""
        watched = self.of(replica)
        if watched is None or watched.prober is None or watched.trying is not None:
            return
        task = asyncio.create_task(self._try(watched, watched.prober), name=f"try {replica.id}")
        watched.trying = task

    async def _try(self, watched: Watched, prober: Prober) -> None:
        try:
            error = await prober.one_token()
            watched.found = Try(self._clock(), error)
        finally:
            watched.trying = None
            self._kick()

    def sync(self) -> None:
        """Watch what runs, and nothing else."""
        wanted = {
            replica.id: replica
            for replica in self._roster
            if replica.port is not None and replica.phase in _WATCHED
        }
        for replica_id in list(self._tasks):
            replica = wanted.get(replica_id)
            if replica is None or self._watched[replica_id].token != replica.token:
                self._tasks.pop(replica_id).cancel()
                watched = self._watched.pop(replica_id, None)
                if watched is not None and watched.trying is not None:
                    watched.trying.cancel()
                self._endpoints.pop(replica_id, None)
        for replica_id, replica in wanted.items():
            if replica_id not in self._tasks:
                self._watched[replica_id] = Watched(replica.token)
                name = f"watch {replica_id}"
                self._tasks[replica_id] = asyncio.create_task(self._watch(replica), name=name)

    async def aclose(self) -> None:
        """End every task."""
        tasks = list(self._tasks.values())
        tasks += [w.trying for w in self._watched.values() if w.trying is not None]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, replica: Replica) -> None:
        prober: Prober | None = None
        while True:
            try:
                if prober is None:
                    prober = await self._connect(replica)
                self._lend(replica, prober)
                if prober is not None:
                    self._keep(replica, await prober.ask(at=self._clock()))
            except Exception:
                # the boundary of this task: a bug in one answer must not blind the others
                log.exception("watch.broke replica=%s", replica.id)
                prober = None
            current = self._roster.get(replica.id)
            ready = current is not None and current.phase is Phase.READY
            await asyncio.sleep(self.interval_s if ready else LOADING_INTERVAL_S)

    def _lend(self, replica: Replica, prober: Prober | None) -> None:
        watched = self._watched.get(replica.id)
        if watched is not None and watched.token == replica.token:
            watched.prober = prober

    async def _connect(self, replica: Replica) -> Prober | None:
        node = self._fleet.nodes.get(replica.node)
        if node is None or replica.port is None:
            return None
        try:
            endpoint = await node.endpoint(replica.port)
        except LlmgwError as error:
            log.info("watch.no_endpoint replica=%s error=%s", replica.id, error)
            return None
        self._endpoints[replica.id] = endpoint
        return self._make_prober(replica, endpoint)

    def _keep(self, replica: Replica, reading: Reading) -> None:
        watched = self._watched.get(replica.id)
        if watched is None or watched.token != replica.token:
            return
        before = watched.health
        watched.health = reading.health
        watched.numbers = reading.numbers
        watched.pulse = reading.pulse or watched.pulse
        numbers = reading.numbers or Numbers()
        watched.tokens.append(numbers.tokens_per_s)
        watched.running.append(numbers.running)
        watched.waiting.append(numbers.waiting)
        if before is None or before.healthy != reading.health.healthy:
            self._kick()


_WATCHED = frozenset({Phase.LOADING, Phase.READY, Phase.DRAINING, Phase.UNKNOWN})
