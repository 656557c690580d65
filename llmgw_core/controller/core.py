"""The controller: observes, plans, acts, publishes; the same in a console and in a daemon."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import llmgw_core
from llmgw_core.api.views import ControllerView, Snapshot
from llmgw_core.catalog.model import Model
from llmgw_core.config import Config
from llmgw_core.controller.appraisals import Appraiser
from llmgw_core.controller.demand import DemandMeter
from llmgw_core.controller.executor import Executor, Means
from llmgw_core.controller.failures import FailureBook
from llmgw_core.controller.gateway_handle import GatewayHandle
from llmgw_core.controller.keeper import Keeper
from llmgw_core.controller.marks import MarkBook
from llmgw_core.controller.mirror_handle import MirrorHandle
from llmgw_core.controller.observer import Observer
from llmgw_core.controller.peak_watch import PeakWatch
from llmgw_core.controller.planner import Plan, World, booking_of, holds, plan
from llmgw_core.controller.publish import Publisher
from llmgw_core.controller.reaper import Reaper
from llmgw_core.controller.render import room_of
from llmgw_core.controller.replica import Replica
from llmgw_core.controller.roster import Roster
from llmgw_core.controller.routes import out_of_touch, route_models
from llmgw_core.controller.snapshots import SnapshotMaker
from llmgw_core.controller.watch import MakeProber, Watcher
from llmgw_core.controller.weights import WeightsKeeper
from llmgw_core.engines.base import Engine
from llmgw_core.engines.registry import ENGINES
from llmgw_core.ledger.events import EventLog, SqliteEventStore
from llmgw_core.ledger.peaks import PeakLog, SqlitePeakStore
from llmgw_core.mirror.inspect import Places
from llmgw_core.mirror.store import Store
from llmgw_core.nodes.api import FleetHandle
from llmgw_core.nodes.facts import NodeState
from llmgw_core.placement.rooms import Room, book

log = logging.getLogger(__name__)

KICK_INTERVAL_S = 0.1
"""Ticks are never closer together than this, however often something changes."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a controller is made of; tests bring their own fleet, gateway and prober."""

    state: Path
    keeper: Keeper
    fleet: FleetHandle
    gateway: GatewayHandle
    mirror: MirrorHandle
    make_prober: MakeProber
    mode: str
    clock: Callable[[], float] = time.time


class Controller:
    """One cluster's loop. ``run`` owns every task; cancelling it leaves the replicas running."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.keeper = parts.keeper
        self.fleet = parts.fleet
        self.gateway = parts.gateway
        self.mirror = parts.mirror
        self.weights = WeightsKeeper(parts.mirror, self.config.cluster)
        self.peaks = PeakWatch(PeakLog(SqlitePeakStore(parts.state / "peaks.db")), self.weights)
        self.events = EventLog(SqliteEventStore(parts.state / "events.db"), parts.clock)
        self.publisher = Publisher()
        self.roster = Roster(self.events, parts.clock)
        self.watcher = Watcher(
            self.roster,
            parts.fleet,
            parts.make_prober,
            interval_s=self.config.controller.health_interval_s,
            kick=self.kick,
            clock=parts.clock,
        )
        self.executor = Executor(
            self.roster,
            Means(
                fleet=parts.fleet,
                engines=ENGINES,
                drains=parts.gateway,
                weights=self.weights,
                cluster=self.config.cluster,
                drain_timeout_s=self.config.gateway.drain_timeout_s,
                kick=self.kick,
                clock=parts.clock,
            ),
        )
        self.observer = Observer(
            keeper=parts.keeper,
            fleet=parts.fleet,
            roster=self.roster,
            watcher=self.watcher,
            events=self.events,
            examine=self.executor.examine,
            clock=parts.clock,
        )
        self.reaper = Reaper(
            fleet=parts.fleet,
            roster=self.roster,
            events=self.events,
            cluster=self.config.cluster,
            needed=self._needed_weights,
        )
        self.marks = MarkBook(parts.state)
        self._demand = DemandMeter()
        self.appraiser = Appraiser(
            models=lambda: self.keeper.catalog,
            nodes=self.observer.seen_nodes,
            handles=lambda: self.fleet.nodes,
            places=self.places,
            kick=self.kick,
            look_at=self.weights.look_at,
        )
        self._snapshots = SnapshotMaker(
            keeper=parts.keeper,
            roster=self.roster,
            watcher=self.watcher,
            gateway=parts.gateway,
            mirror=parts.mirror,
            weights=self.weights,
            appraiser=self.appraiser,
            peaks=self.peaks,
        )
        self.stopping = asyncio.Event()
        """Set by a command that ends the engine; whoever runs the controller waits for it."""
        self.plan = Plan((), ())
        self.config_errors: tuple[str, ...] = ()
        self._failures = FailureBook()
        self.frozen = ""
        """Why this machine is suspected to be cut off, and nothing is replaced."""
        self.halted = False
        """No more planning: replicas are being stopped for good."""
        self.handed_over = False
        self._kicked = asyncio.Event()
        self._started = parts.clock()
        self._tick_s: float | None = None
        self._lag_s: float | None = None

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.keeper.config

    @property
    def engines(self) -> dict[str, Engine]:
        """Engines by name."""
        return dict(ENGINES)

    def now(self) -> float:
        """Unix seconds, by the clock that the controller was given."""
        return self.parts.clock()

    def kick(self) -> None:
        """Have the next tick soon: something changed."""
        self._kicked.set()

    async def run(self) -> None:
        """Observe, plan and act until cancelled."""
        await self.events.load()
        await self.peaks.log.load()
        await self.marks.load()
        self.mirror.attach(self.events, self.kick)
        self.fleet.on_change(lambda _: self.kick())
        self._told_start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.events.run(), name="events")
                group.create_task(self.peaks.log.run(), name="peaks")
                group.create_task(self.fleet.run(), name="fleet")
                group.create_task(self.gateway.run(), name="gateway")
                group.create_task(self.mirror.run(), name="mirror")
                group.create_task(self.appraiser.run(), name="appraiser")
                group.create_task(self._measure_lag(), name="loop lag")
                group.create_task(self._loop(), name="controller")
        finally:
            await self.executor.aclose()
            await self.reaper.aclose()
            await self.watcher.aclose()

    def _told_start(self) -> None:
        where = self.keeper.config_file or "no configuration file"
        self.events.add("controller.started", f"controller started ({self.parts.mode}, {where})")
        for problem in self.keeper.problems:
            self.events.add("catalog.problem", problem.message, severity="warning")

    async def _loop(self) -> None:
        while True:
            self._kicked.clear()
            began = time.perf_counter()
            try:
                self.tick()
            except Exception:
                # the boundary of the loop: the next tick starts again from what is observed
                log.exception("controller.tick_broke")
            self._tick_s = time.perf_counter() - began
            await asyncio.sleep(KICK_INTERVAL_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._kicked.wait(), self.config.controller.tick_s)

    async def _measure_lag(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.5)
            self._lag_s = max(time.perf_counter() - began - 0.5, 0.0)

    def tick(self) -> None:
        """One round: observe, plan, act, publish. Never waits."""
        self.observer.observe()
        self._suspect()
        self.weights.want(filter(self.appraiser.may_pull, self.keeper.catalog))
        self.plan = plan(self.world())
        if not self.halted:
            self.executor.dispatch(self.plan.actions, self.keeper.catalog)
            self.reaper.sweep()
        self.watcher.sync()
        self._measure()
        self._route()
        self.publisher.publish(self.snapshot())

    def _measure(self) -> None:
        """Keep what each replica has used."""
        for replica in self.roster:
            node = self.fleet.nodes.get(replica.node)
            model = self.keeper.catalog.find(replica.model)
            self.peaks.record(replica, model, node.facts if node else None, self.now())

    def _suspect(self) -> None:
        """Freeze where many nodes went away at once, and say so."""
        frozen = self.observer.suspicion()
        if bool(frozen) != bool(self.frozen):
            kind = "controller.frozen" if frozen else "controller.thawed"
            text = frozen or "the nodes are back: replicas are replaced again where they are lost"
            self.events.add(kind, text, severity="warning" if frozen else "info")
        self.frozen = frozen

    def _waiting(self, models: tuple[Model, ...]) -> dict[str, str]:
        """Why models cannot start anywhere yet: what has to be fetched is looked at first."""
        away = [model for model in models if self.weights.is_fetched(model)]
        return {
            **self.appraiser.unseen(away),
            **self.weights.waits(models),
            **self.appraiser.refusals(away),
        }

    def places(self) -> Places:
        """Where weights are looked at."""
        ready = {
            name: node
            for name, node in self.fleet.nodes.items()
            if node.status.state is NodeState.READY
        }
        endpoint = self.config.mirror.hub_endpoint or os.environ.get("HF_ENDPOINT")
        return Places(Store(self.mirror.root), endpoint, ready)

    # What is planned

    def rooms(self) -> tuple[Room, ...]:
        """Every node's room before bookings."""
        return tuple(room_of(seen) for seen in self.observer.seen_nodes())

    def booked(self) -> dict[str, Room]:
        """Every node's room with its replicas entered."""
        return book(self.rooms(), map(booking_of, filter(holds, self.roster)))

    def world(self, models: tuple[Model, ...] | None = None) -> World:
        """All that a plan depends on, now; replicas under way are counted as they will be.

        With ``models`` as it would be if the catalog were those.
        """
        catalog = self.keeper.catalog.models if models is None else models
        return World(
            now=self.now(),
            models=catalog,
            rooms=self.rooms(),
            replicas=tuple(self.roster),
            demand=self._demand.read(self.gateway.report, self.now()),
            ranks={c.name: c.rank for c in self.config.classes},
            node_grace_s=self.config.controller.node_grace_s,
            unread=tuple(self.observer.unread()),
            weights=self.weights.needs(catalog),
            waiting=self._waiting(catalog),
            avoid=self._failures.read(self.roster, self.now()),
            frozen=self.frozen,
            barred=self.appraiser.barred(catalog),
            contents=self.weights.contents(catalog),
            marks=self.marks.marks,
        )

    def _needed_weights(self) -> frozenset[str]:
        """Versions that a fetch may be for."""
        running = (model for model in self.keeper.catalog if model.scaling.max > 0)
        return self.executor.awaited() | self.weights.users(running).keys()

    # What is told

    def _route(self) -> None:
        tunnels = {}
        for name, node in self.fleet.nodes.items():
            tunnel = node.tunnel()
            if tunnel is not None:
                tunnels[name] = tunnel
        reasons = {m.name: self.plan.pending_reason(m.name) for m in self.keeper.catalog}
        endpoints = self.watcher.endpoints
        unsettled = self.observer.unsettled()
        fenced = frozenset() if self.halted else self.plan.fenced
        models = route_models(
            self.keeper.catalog, self.roster, endpoints, tunnels, reasons, unsettled,
            {known.name: known.rank for known in self.config.classes}, fenced,
        )  # fmt: skip
        lost = tuple(sorted(r.id for r in self.roster if self._is_lost(r)))
        self.gateway.publish(models, tunnels, lost)

    def _is_lost(self, replica: Replica) -> bool:
        """Whether what is under way there had better be asked of another."""
        if not replica.phase.ending:
            return out_of_touch(replica, self.now(), self.config.controller.unresponsive_s / 2)
        node = self.fleet.nodes.get(replica.node)
        return node is None or node.status.state is NodeState.UNREACHABLE

    def snapshot(self) -> Snapshot:
        """Everything that faces see, now."""
        nodes = self.observer.seen_nodes()
        return self._snapshots.make(self._view(), nodes, self.booked(), self.plan, self.now())

    def _view(self) -> ControllerView:
        return ControllerView(
            mode=self.parts.mode,
            pid=os.getpid(),
            host=socket.gethostname(),
            started=self._started,
            version=llmgw_core.__version__,
            config_file=str(self.keeper.config_file) if self.keeper.config_file else None,
            state_dir=str(self.parts.state),
            loop_lag_s=self._lag_s,
            tick_s=self._tick_s,
            config_errors=self.config_errors,
            frozen=self.frozen,
        )
