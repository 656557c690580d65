"""The controller: observes, plans, acts, publishes; the same in a console and in a daemon."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import llmgw_core
from llmgw_core.api.views import ControllerView, Snapshot
from llmgw_core.catalog.model import DEFAULT_STARTUP_TIMEOUT_S, Model
from llmgw_core.config import Config
from llmgw_core.controller.executor import Executor, Means
from llmgw_core.controller.gateway_handle import GatewayHandle
from llmgw_core.controller.keeper import Keeper
from llmgw_core.controller.lifecycle import Limits, Observation, advance
from llmgw_core.controller.planner import Demand, Plan, World, booking_of, holds, plan
from llmgw_core.controller.publish import Publisher
from llmgw_core.controller.render import (
    NodeSeen,
    model_view,
    node_view,
    replica_view,
    room_of,
)
from llmgw_core.controller.replica import Phase, Replica, adopted
from llmgw_core.controller.roster import Roster
from llmgw_core.controller.routes import route_models
from llmgw_core.controller.watch import MakeProber, Watcher
from llmgw_core.engines.base import Engine
from llmgw_core.engines.registry import ENGINES
from llmgw_core.errors import RefusedBecause
from llmgw_core.ledger.events import EventLog, SqliteEventStore
from llmgw_core.nodes.api import FleetHandle, NodeHandle
from llmgw_core.nodes.facts import NodeState
from llmgw_core.nodes.instance import InstanceStatus
from llmgw_core.placement.place import headroom_free
from llmgw_core.placement.rooms import Room, book

log = logging.getLogger(__name__)

HEADROOM_EVERY_S = 10.0
HEADROOM_MOST = 64
"""Counting goes no further: it places one imagined replica after the other."""
KICK_INTERVAL_S = 0.1
"""Ticks are never closer together than this, however often something changes."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a controller is made of; tests bring their own fleet, gateway and prober."""

    state: Path
    keeper: Keeper
    fleet: FleetHandle
    gateway: GatewayHandle
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
                cluster=self.config.cluster,
                drain_timeout_s=self.config.gateway.drain_timeout_s,
                kick=self.kick,
                clock=parts.clock,
            ),
        )
        self.stopping = asyncio.Event()
        """Set by a command that ends the engine; whoever runs the controller waits for it."""
        self.plan = Plan((), ())
        self.config_errors: tuple[str, ...] = ()
        self.halted = False
        """No more planning: replicas are being stopped for good."""
        self.handed_over = False
        self._kicked = asyncio.Event()
        self._started = parts.clock()
        self._tick_s: float | None = None
        self._lag_s: float | None = None
        self._node_states: dict[str, tuple[NodeState, str]] = {}
        self._asked_at: dict[str, tuple[int, float]] = {}
        self._ever_read: set[str] = set()
        self._headrooms: dict[str, tuple[object, float, int | None]] = {}

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
        self.fleet.on_change(lambda _: self.kick())
        self._told_start()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.events.run(), name="events")
                group.create_task(self.fleet.run(), name="fleet")
                group.create_task(self.gateway.run(), name="gateway")
                group.create_task(self._measure_lag(), name="loop lag")
                group.create_task(self._loop(), name="controller")
        finally:
            await self.executor.aclose()
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
        self._tell_nodes()
        self._adopt()
        for replica in self.roster:
            self._observe(replica)
        self.plan = plan(self.world())
        if not self.halted:
            self.executor.dispatch(self.plan.actions, self.keeper.catalog)
        self.watcher.sync()
        self._route()
        self.publisher.publish(self.snapshot())

    # What is observed

    def seen_nodes(self) -> list[NodeSeen]:
        """Every node as it is now, cordons applied."""
        return [self._seen(node) for node in self.fleet.nodes.values()]

    def _seen(self, node: NodeHandle) -> NodeSeen:
        state = node.status.state
        cordon = self.keeper.cordons.get(node.config.name)
        if state is NodeState.READY and cordon is not None:
            state = NodeState.DRAINING if cordon == "draining" else NodeState.CORDONED
        return NodeSeen(node.config, node.status, state, node.facts, node.sample, node.cpu_history)

    def _tell_nodes(self) -> None:
        for seen in self.seen_nodes():
            name, key = seen.config.name, (seen.state, seen.status.reason)
            before = self._node_states.get(name)
            self._node_states[name] = key
            if before is not None and before[0] is seen.state:
                continue
            if seen.state is NodeState.CONNECTING:
                continue
            bad = seen.state in (NodeState.UNREACHABLE, NodeState.REFUSED)
            reason = f": {seen.status.reason}" if seen.status.reason else ""
            self.events.add(
                f"node.{seen.state}",
                f"node {name} is {seen.state}{reason}",
                severity="warning" if bad else "info",
                node=name,
            )

    def _adopt(self) -> None:
        """Take over what the nodes say runs there and the roster does not know."""
        for name, node in self.fleet.nodes.items():
            if node.instances is None:
                continue
            self._ever_read.add(name)
            for status in node.instances.values():
                known = self.roster.find_instance(name, status.name)
                foreign = status.record.get("cluster") != self.config.cluster
                if known is None and not foreign and not self._just_removed(name, status):
                    self._take_over(name, status)

    def _just_removed(self, node: str, status: InstanceStatus) -> bool:
        """Whether a list that is about to be read anew still shows what was just forgotten."""
        at = self.fleet.nodes[node].instances_at
        gone = self.roster.removed_at(node, status.name)
        return gone is not None and (at is None or at <= gone)

    def _take_over(self, name: str, status: InstanceStatus) -> None:
        replica = adopted(name, status, now=self.now())
        if replica is None:
            log.warning("replica.record_broken node=%s instance=%s", name, status.name)
            return
        if self.roster.get(replica.id) is not None:
            replica = replace(replica, id=f"{replica.id}@{name}")
        self.roster.put(replica, tell=False)
        what = "runs" if status.state.alive else f"was found {status.state}"
        self.events.add(
            "replica.adopted",
            f"{replica.id} {what} on {name} (pid {status.pid}) and was adopted",
            node=name,
            model=replica.model,
            replica=replica.id,
        )

    def _observe(self, replica: Replica) -> None:
        node = self.fleet.nodes.get(replica.node)
        ready = node is not None and node.status.state is NodeState.READY
        read = node.instances if node is not None else None
        watched = self.watcher.of(replica)
        seen = Observation(
            node_ready=ready and read is not None,
            node_reason=self._away(node),
            instance=(read or {}).get(replica.instance),
            fresh=replica.id not in self.roster.busy
            and self.roster.is_fresh(replica.id, node.instances_at if node else None),
            health=watched.health if watched else None,
        )
        if replica.id in self.roster.busy and replica.phase is not Phase.LOADING:
            return
        limits = Limits(self._startup_s(replica), self.config.controller.unresponsive_s)
        after = advance(replica, seen, limits, self.now())
        if after is replica:
            return
        newly_failed = after.phase is Phase.FAILED and replica.phase is not Phase.FAILED
        self.roster.put(after, tell=not newly_failed)
        if newly_failed:
            self.executor.examine(after)

    def _away(self, node: NodeHandle | None) -> str:
        if node is None:
            return "is no longer configured"
        return f"is {node.status.state}: {node.status.reason}".rstrip(": ")

    def _startup_s(self, replica: Replica) -> float:
        model = self.keeper.catalog.find(replica.model)
        profile = model.profile(replica.profile) if model else None
        return profile.startup_timeout_s if profile else DEFAULT_STARTUP_TIMEOUT_S

    # What is planned

    def rooms(self) -> tuple[Room, ...]:
        """Every node's room before bookings."""
        return tuple(room_of(seen) for seen in self.seen_nodes())

    def booked(self) -> dict[str, Room]:
        """Every node's room with its replicas entered."""
        return book(self.rooms(), map(booking_of, filter(holds, self.roster)))

    def world(self) -> World:
        """All that a plan depends on, now; replicas under way are counted as they will be."""
        return World(
            now=self.now(),
            models=self.keeper.catalog.models,
            rooms=self.rooms(),
            replicas=tuple(self.roster),
            demand=self._demand(),
            ranks={c.name: c.rank for c in self.config.classes},
            node_grace_s=self.config.controller.node_grace_s,
            unread=tuple(self._unread()),
        )

    def _unread(self) -> Iterator[str]:
        """Nodes that may hold replicas of ours and were not heard from since the start."""
        if self.now() - self._started > self.config.controller.node_grace_s:
            return
        never_let_in = f"{RefusedBecause.HOST_KEY_UNKNOWN}"
        for name, node in self.fleet.nodes.items():
            if name in self._ever_read:
                continue
            refused = node.status.state is NodeState.REFUSED
            if not (refused and never_let_in in node.status.reason):
                yield name

    def _demand(self) -> dict[str, Demand]:
        report = self.gateway.report
        result = {}
        for model in report.models if report else ():
            count = model.requests_total + model.unserved_total
            before = self._asked_at.get(model.model)
            if before is None or before[0] != count or model.running or model.waiting:
                first = before is None and not (model.running or model.waiting)
                asked = model.last_end or 0.0 if first else self.now()
                self._asked_at[model.model] = (count, asked)
            asked_at = self._asked_at[model.model][1]
            idle = self.now() - asked_at if count and asked_at else None
            result[model.model] = Demand(model.running, model.waiting, idle)
        return result

    # What is told

    def _route(self) -> None:
        tunnels = {}
        for name, node in self.fleet.nodes.items():
            tunnel = node.tunnel()
            if tunnel is not None:
                tunnels[name] = tunnel
        reasons = {m.name: self.plan.pending_reason(m.name) for m in self.keeper.catalog}
        endpoints = self.watcher.endpoints
        models = route_models(self.keeper.catalog, self.roster, endpoints, tunnels, reasons)
        self.gateway.publish(models, tunnels)

    def snapshot(self) -> Snapshot:
        """Everything that faces see, now."""
        rooms = self.booked()
        report = self.gateway.report
        outstanding = {t.id: t.outstanding for t in report.targets} if report else {}
        requests = {m.model: m.requests_total for m in report.models} if report else {}
        replicas = sorted(self.roster, key=lambda r: (r.model, _natural(r.id)))
        watched = {r.id: w for r in replicas if (w := self.watcher.of(r)) is not None}
        by_model: dict[str, list[Replica]] = {}
        for replica in replicas:
            by_model.setdefault(replica.model, []).append(replica)
        return Snapshot(
            version=0,
            time=self.now(),
            cluster=self.config.cluster,
            controller=self._view(),
            gateway=self.gateway.view(),
            nodes=tuple(node_view(s, rooms.get(s.config.name)) for s in self.seen_nodes()),
            replicas=tuple(
                replica_view(r, watched.get(r.id), outstanding.get(r.id)) for r in replicas
            ),
            models=tuple(
                model_view(
                    model,
                    by_model.get(model.name, []),
                    watched,
                    reason=self.plan.pending_reason(model.name),
                    headroom=self._headroom(model, rooms),
                    requests_total=requests.get(model.name),
                )
                for model in self.keeper.catalog
            ),
        )

    def _headroom(self, model: Model, rooms: Mapping[str, Room]) -> int | None:
        """How many more would fit; counted again only now and then, since counting is dear."""
        replicas = tuple(r.id for r in self.roster)
        kept = self._headrooms.get(model.name)
        now = time.monotonic()
        if kept and kept[0] == (model, replicas) and now - kept[1] < HEADROOM_EVERY_S:
            return kept[2]
        count = headroom_free(model, rooms, limit=HEADROOM_MOST)
        self._headrooms[model.name] = ((model, replicas), now, count)
        return count

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
        )


def _natural(text: str) -> tuple[str, int]:
    """Sort key under which .10 comes after .9."""
    stem, _, number = text.rpartition(".")
    return (stem, int(number)) if number.isdigit() else (text, 0)
