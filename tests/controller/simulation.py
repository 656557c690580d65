"""A cluster without machines: planner, executor and observer over nodes that fail as they are told.

Everything awaits ``asyncio.sleep(0)`` where a real node would take its time, so that a fault can
come between any two steps. The clock only moves when the test moves it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast

from llmgw_core.catalog.model import Catalog, Model
from llmgw_core.config import Config, NodeConfig
from llmgw_core.controller.executor import Executor, Means
from llmgw_core.controller.keeper import Keeper
from llmgw_core.controller.liveness import Pulse
from llmgw_core.controller.observer import Observer
from llmgw_core.controller.planner import World, plan
from llmgw_core.controller.render import room_of
from llmgw_core.controller.replica import Health, Phase, Replica
from llmgw_core.controller.roster import Roster
from llmgw_core.controller.watch import Watched, Watcher
from llmgw_core.controller.weights_handle import Fetched
from llmgw_core.engines.registry import ENGINES
from llmgw_core.errors import NodeLost, RemoteFailed
from llmgw_core.ledger.events import EventLog
from llmgw_core.nodes.api import FleetHandle, NodeHandle
from llmgw_core.nodes.facts import EngineFacts, Facts, HostSample, NodeState, NodeStatus
from llmgw_core.nodes.instance import (
    InstanceSpec,
    InstanceState,
    InstanceStatus,
    LogChunk,
    StopResult,
)
from llmgw_core.placement.rooms import Weights

CLUSTER = "sim"
FOREIGN = "theirs.1"
"""An instance of another cluster, on every node: nothing may touch it."""
STAYS = 20
"""Rounds in which nothing may change any more."""


@dataclass
class SimNode:
    """A node: its records and processes, and a link that comes and goes."""

    name: str
    rng: random.Random
    clock: Callable[[], float]
    trouble: float = 0.0
    """How likely each step of an act is to fail."""
    up: bool = True
    records: dict[str, InstanceStatus] = field(default_factory=dict)
    touched: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    """Starts that would have run a second process under a name."""
    instances: Mapping[str, InstanceStatus] | None = None
    instances_at: float | None = None
    lost_at: float = 0.0

    def __post_init__(self) -> None:
        self.config = NodeConfig(self.name)
        self.sample = HostSample(None, None, None)
        self.cpu_history: tuple[float | None, ...] = ()
        self.facts = Facts(
            cores_logical=4,
            memory_gb=8,
            engines=(EngineFacts("llamacpp", "llama-server", "/bin/llama-server"),),
            weights=frozenset(),
        )
        self.records[FOREIGN] = InstanceStatus(
            FOREIGN, InstanceState.RUNNING, token="t", record={"cluster": "other"}
        )

    @property
    def status(self) -> NodeStatus:
        state = NodeState.READY if self.up else NodeState.UNREACHABLE
        return NodeStatus(state, self.lost_at, "" if self.up else "does not answer")

    @property
    def running(self) -> dict[str, InstanceStatus]:
        """What runs for this cluster."""
        return {n: s for n, s in self.records.items() if s.state.alive and n != FOREIGN}

    def look(self) -> None:
        """What the live stream brings, or its absence."""
        self.instances = dict(self.records) if self.up else None
        self.instances_at = time.monotonic() if self.up else None

    def cut(self) -> None:
        self.up, self.lost_at = False, self.clock()
        self.look()

    def heal(self) -> None:
        self.up = True
        self.look()

    def die(self, name: str) -> None:
        """An engine ends by itself."""
        if self.records[name].state.alive:
            ended = replace(self.records[name], state=InstanceState.EXITED, exit_status=1)
            self.records[name] = ended

    def reboot(self) -> None:
        for name, status in self.running.items():
            self.records[name] = replace(status, state=InstanceState.REBOOTED)

    async def _step(self, *, may_fail: bool = True) -> None:
        for _ in range(self.rng.randrange(3)):
            await asyncio.sleep(0)
        if not self.up:
            raise NodeLost(f"the link to {self.name} is gone")
        if self.rng.random() < self.trouble:
            if self.rng.random() < 0.5:
                self.cut()
                raise NodeLost(f"the link to {self.name} went away")
            if may_fail:
                raise RemoteFailed("the node's disk is full", exit_status=74)

    async def start_instance(self, spec: InstanceSpec) -> InstanceStatus:
        await self._step()
        self._touch(spec.name)
        before = self.records.get(spec.name)
        if before is not None and before.state.alive and before.token != spec.token:
            self.doubled.append(spec.name)
            raise RemoteFailed("it runs under another start", exit_status=73)
        status = InstanceStatus(
            spec.name, InstanceState.RUNNING, pid=1, token=spec.token, record=spec.record
        )
        self.records[spec.name] = status
        await self._step(may_fail=False)
        return status

    async def stop_instance(self, name: str, *, grace_s: float) -> StopResult:
        await self._step()
        self._touch(name)
        none = InstanceStatus(name, InstanceState.NONE)
        if self.rng.random() < self.trouble:
            return StopResult(self.records.get(name, none), killed=True, left=(7,))
        if name in self.records:
            self.die(name)
        await self._step(may_fail=False)
        return StopResult(self.records.get(name, none), killed=False)

    async def forget_instance(self, name: str) -> None:
        await self._step()
        self._touch(name)
        if name in self.records and self.records[name].state.alive:
            raise RemoteFailed("it is running", exit_status=73)
        self.records.pop(name, None)
        await self._step(may_fail=False)

    def _touch(self, name: str) -> None:
        if name == FOREIGN:
            self.touched.append(name)

    async def free_port(self, taken: frozenset[int]) -> int:
        await self._step()
        return next(port for port in range(18000, 19000) if port not in taken)

    async def read_log(
        self, name: str, *, offset: int | None = None, limit: int = 0, previous: bool = False
    ) -> LogChunk:
        await self._step()
        return LogChunk(b"", 0, 0)


class SimWeights:
    """Weights that take a few steps to come."""

    def need(self, model: Model) -> Weights | None:
        return Weights(f"{model.name}/v1")

    def waiting(self, model: Model) -> str:
        return ""

    def content(self, model: Model) -> str:
        return ""

    async def locate(
        self, node: NodeHandle, model: Model, progress: Callable[[Fetched], None]
    ) -> str:
        sim = cast(SimNode, node)
        for done in range(sim.rng.randrange(4)):
            progress(Fetched(done, 10))
            await sim._step()
        return f"/w/{model.name}.gguf"

    async def abandon(self, node: NodeHandle, key: str) -> None:
        await cast(SimNode, node)._step()


class SimDrains:
    """A gateway whose requests end after a few steps."""

    async def drained(self, replica_id: str, *, timeout_s: float) -> bool:
        for _ in range(3):
            await asyncio.sleep(0)
        return True


class SimWatcher:
    """Engines answer while they run."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim

    def of(self, replica: Replica) -> Watched:
        node = self._sim.nodes.get(replica.node)
        status = node.records.get(replica.instance) if node else None
        alive = status is not None and status.state.alive and status.token == replica.token
        now = self._sim.now
        return Watched(replica.token, Health(now, alive, alive, alive), pulse=Pulse(now, True, 0.0))


class Simulation:
    """A controller, as often as it is started anew, over the same nodes."""

    def __init__(self, names: str, models: tuple[Model, ...], rng: random.Random) -> None:
        self.now = 1000.0
        self.rng = rng
        self.nodes = {name: SimNode(name, rng, lambda: self.now) for name in names}
        self.models = models
        self.cordons: dict[str, str] = {}
        self.events = EventLog(None, lambda: self.now)
        self.start()

    def start(self) -> None:
        """A controller that knows nothing but what the nodes say."""
        self.roster = Roster(self.events, lambda: self.now)
        fleet = cast(FleetHandle, SimpleNamespace(nodes=self.nodes))
        weights = SimWeights()
        means = Means(
            fleet=fleet, engines=ENGINES, drains=SimDrains(), weights=weights, cluster=CLUSTER,
            drain_timeout_s=1.0, kick=lambda: None, clock=lambda: self.now,
        )  # fmt: skip
        self.executor = Executor(self.roster, means)
        self.keeper = SimpleNamespace(
            config=replace(Config(), cluster=CLUSTER), catalog=Catalog(()), cordons=self.cordons
        )
        self.observer = Observer(
            keeper=cast(Keeper, self.keeper), fleet=fleet, roster=self.roster,
            watcher=cast(Watcher, SimWatcher(self)), events=self.events,
            examine=self.executor.examine, clock=lambda: self.now,
        )  # fmt: skip

    async def crash(self) -> None:
        """The controller ends at once, whatever is under way, and another one starts."""
        await self.executor.aclose()
        self.start()

    def tick(self) -> None:
        """One round of the controller, as ``core`` does it."""
        for node in self.nodes.values():
            node.look()
        self.keeper.catalog = Catalog(self.models)
        self.observer.observe()
        world = World(
            now=self.now,
            models=self.models,
            rooms=tuple(room_of(seen) for seen in self.observer.seen_nodes()),
            replicas=tuple(self.roster),
            unread=tuple(self.observer.unread()),
            node_grace_s=60.0,
        )
        self.executor.dispatch(plan(world).actions, self.keeper.catalog)

    async def settle_operations(self) -> None:
        """Wait until nothing is under way."""
        while not self.executor.idle:
            await asyncio.sleep(0)

    async def calm(self, rounds: int = 300) -> None:
        """No more faults: ticks, and time, until what is there is what is wanted, and stays so."""
        good = 0
        for node in self.nodes.values():
            node.trouble = 0.0
            node.heal()
        for _ in range(rounds):
            self.now += 7.0
            self.tick()
            await self.settle_operations()
            good = good + 1 if is_settled(self) else 0
            if good > STAYS:
                return

    @property
    def wanted(self) -> int:
        """Replicas that should run in the end."""
        return sum(model.scaling.min for model in self.models)

    @property
    def story(self) -> str:
        """What happened, for a test that fails."""
        replicas = [f"{r.id}@{r.node} {r.phase} {r.reason}" for r in self.roster]
        running = {n.name: sorted(n.running) for n in self.nodes.values()}
        return "\n".join([*(e.text for e in self.events.recent()[-40:]), *replicas, str(running)])


def is_settled(sim: Simulation) -> bool:
    """Whether exactly what is wanted runs, all of it is ready, and every record is a replica's."""
    ready = {(r.node, r.instance) for r in sim.roster if r.phase is Phase.READY}
    there = {(n.name, name) for n in sim.nodes.values() for name in n.records if name != FOREIGN}
    running = {(n.name, name) for n in sim.nodes.values() for name in n.running}
    return len(sim.roster) == len(ready) == sim.wanted and ready == there == running
