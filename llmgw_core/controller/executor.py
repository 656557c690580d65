"""Carries out the plan: one operation at a time for each replica, each in a task of its own."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from llmgw_core.catalog.model import Catalog, Model, Profile
from llmgw_core.controller.launching import launch_request
from llmgw_core.controller.lifecycle import failed
from llmgw_core.controller.memory_back import MemoryBack, used_now
from llmgw_core.controller.planner import Action, Kind
from llmgw_core.controller.replica import Phase, Replica, instance_name, record_of
from llmgw_core.controller.roster import Roster
from llmgw_core.controller.stopping import stop_failed
from llmgw_core.controller.weights_handle import Fetched, WeightsHandle
from llmgw_core.engines.base import Engine
from llmgw_core.errors import EngineFailed, LlmgwError, NodeLost, NodeRefused, RemoteFailed
from llmgw_core.nodes.api import FleetHandle, NodeHandle
from llmgw_core.nodes.instance import InstanceSpec, StopResult

log = logging.getLogger(__name__)

LOG_TAIL_BYTES = 4096
KEY_BYTES = 24
DEFAULT_GRACE_S = 30.0


class Drains(Protocol):
    """Knows when the gateway has let go of a replica."""

    async def drained(self, replica_id: str, *, timeout_s: float) -> bool:
        """Wait until no request to it is in flight; False where the time ran out."""
        ...


@dataclass(frozen=True, slots=True)
class Means:
    """What the executor works with."""

    fleet: FleetHandle
    engines: Mapping[str, Engine]
    drains: Drains
    weights: WeightsHandle
    cluster: str
    drain_timeout_s: float
    kick: Callable[[], None]
    """Wake the controller: something changed."""
    clock: Callable[[], float] = time.time


class Executor:
    """Starts, restarts and stops replicas. ``run`` owns every task that it makes."""

    def __init__(self, roster: Roster, means: Means, memory: MemoryBack | None = None) -> None:
        self.roster = roster
        self.means = means
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._fetches: dict[str, tuple[str, str]] = {}
        """Node and version of what replicas wait for: the catalog may say something else by the
        time that it is given up."""
        self._memory = memory or MemoryBack()
        self._closed = False

    @property
    def idle(self) -> bool:
        """Whether no operation is under way."""
        return not self._tasks

    def awaited(self) -> frozenset[str]:
        """Versions of weights that replicas wait for now."""
        return frozenset(key for _, key in self._fetches.values())

    def dispatch(self, actions: tuple[Action, ...], catalog: Catalog) -> None:
        """Begin what can be begun; an action for a busy replica waits for a later plan.

        Stops that were cut off, by a node that went away or an error on it, are gone on with: once
        begun, nothing but its end leaves a stop.
        """
        for action in actions:
            if action.kind is Kind.STOP and self._give_up_fetch(action.replica, action.why):
                continue
            if action.replica in self.roster.busy:
                continue
            match action.kind:
                case Kind.START:
                    self._begin_start(action, catalog)
                case Kind.RETRY:
                    self._begin_retry(action, catalog)
                case Kind.STOP:
                    self.stop(action.replica, action.why, drain=action.drain)
        for replica in self.roster:
            if replica.phase.ending:
                drains = replica.phase is Phase.DRAINING
                self.stop(replica.id, replica.stop_why or replica.reason, drain=drains)

    def stop(self, replica_id: str, why: str, *, drain: bool = True) -> None:
        """Begin to stop a replica; nothing happens where an operation on it is under way, but for
        a fetch, which is given up, and where a stop that failed is tried again later.
        """
        if self._give_up_fetch(replica_id, why):
            return
        replica = self.roster.get(replica_id)
        if replica is None or replica_id in self.roster.busy or replica.phase is Phase.UNKNOWN:
            return
        due = replica.retry_at is None or replica.retry_at <= self.means.clock()
        if due or not replica.phase.ending:
            self._spawn(replica, self._stop(replica, why, drain=drain))

    def can_stop(self, replica_id: str) -> bool:
        """Whether ``stop`` would do anything now."""
        replica = self.roster.get(replica_id)
        busy = replica_id in self.roster.busy
        return replica is not None and (not busy or replica.phase is Phase.FETCHING)

    def _give_up_fetch(self, replica_id: str, why: str) -> bool:
        """End a fetch that is no longer wanted; False where the replica is not fetching."""
        replica, task = self.roster.get(replica_id), self._tasks.get(replica_id)
        if replica is None or task is None or replica.phase is not Phase.FETCHING:
            return False
        now = self.means.clock()
        stopping = replace(replica, phase=Phase.STOPPING, since=now, reason=why, stop_why=why)
        self.roster.put(stopping)

        def then(_: asyncio.Task[None]) -> None:
            if not self._closed and replica_id not in self.roster.busy:
                self._spawn(stopping, self._stop(stopping, why, drain=False))

        task.add_done_callback(then)
        task.cancel()
        return True

    async def _abandon(self, replica_id: str, node: NodeHandle) -> None:
        """End the fetch that a replica waited for, unless another one needs it too."""
        fetch = self._fetches.pop(replica_id, None)
        if fetch is None:
            return
        if not any(self._waits_for(other, fetch) for other in self._fetches):
            await self.means.weights.abandon(node, fetch[1])

    def _waits_for(self, replica_id: str, fetch: tuple[str, str]) -> bool:
        replica = self.roster.get(replica_id)
        alive = replica is not None and replica.phase in (Phase.FETCHING, Phase.STARTING)
        return alive and self._fetches[replica_id] == fetch

    def examine(self, replica: Replica) -> None:
        """Begin to find out from its log why a replica failed."""
        if replica.id not in self.roster.busy:
            self._spawn(replica, self._examine(replica))

    async def aclose(self) -> None:
        """Cancel what is under way; nodes keep what was begun, and it is found again."""
        self._closed = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin_start(self, action: Action, catalog: Catalog) -> None:
        found = _model_and_profile(catalog, action)
        if found is None:
            return
        model, profile = found
        now = self.means.clock()
        replica = Replica(
            id=action.replica,
            model=model.name,
            profile=profile.name,
            node=action.nodes[0],
            revision=profile.revision(model.source),
            phase=Phase.STARTING,
            since=now,
            instance=instance_name(action.replica),
            engine=profile.engine,
            content=self.means.weights.content(model),
            replaces=action.replaces,
            reason=action.why,
            memory_gb=profile.min_memory_gb,
            cores=profile.cpu_cores,
            gpus=profile.gpus_per_node,
            created=now,
        )
        self.roster.put(replica)
        self._spawn(replica, self._start(replica, model, profile))

    def _begin_retry(self, action: Action, catalog: Catalog) -> None:
        replica = self.roster.get(action.replica)
        found = _model_and_profile(catalog, action)
        if replica is None or found is None:
            return
        now = self.means.clock()
        replica = replace(
            replica, phase=Phase.STARTING, since=now, reason=action.why, load_time_s=None
        )
        self.roster.put(replica)
        self._spawn(replica, self._start(replica, *found, again=True))

    def _spawn(self, replica: Replica, operation: Coroutine[None, None, None]) -> None:
        self.roster.busy.add(replica.id)
        task = asyncio.create_task(self._guard(replica, operation), name=f"replica {replica.id}")
        self._tasks[replica.id] = task

        def ended(_: asyncio.Task[None]) -> None:
            if self._tasks.get(replica.id) is task:  # the next one may have begun already
                del self._tasks[replica.id]
            operation.close()  # cancelled before it began, it was not even awaited

        task.add_done_callback(ended)

    async def _guard(self, replica: Replica, operation: Awaitable[None]) -> None:
        """The boundary of every operation: whatever goes wrong becomes the replica's state."""
        try:
            await operation
        except (NodeLost, NodeRefused) as error:
            self._mark_unknown(replica, str(error))
        except LlmgwError as error:
            self._mark_failed(replica, str(error))
        except Exception as error:
            log.exception("replica.operation_broke replica=%s", replica.id)
            self._mark_failed(replica, f"internal error {type(error).__name__}; see the log")
        finally:
            self.roster.acted(replica.id)
            self.roster.busy.discard(replica.id)
            self.means.kick()

    def _mark_unknown(self, replica: Replica, reason: str) -> None:
        current = self.roster.get(replica.id)
        if current is None:
            return
        before = current.phase
        if before is Phase.STARTING:  # whether its engine was asked for before the link went away
            before = Phase.PENDING if current.token == replica.token else Phase.LOADING
        now = self.means.clock()
        self.roster.put(replace(current, phase=Phase.UNKNOWN, phase_before=before, since=now,
                                lost_at=now, reason=reason))  # fmt: skip

    def _mark_failed(self, replica: Replica, reason: str) -> None:
        current, now = self.roster.get(replica.id), self.means.clock()
        if current is None:
            return
        if not current.phase.ending:
            self.roster.put(failed(current, reason, now=now))
            return
        after = stop_failed(current, reason, now=now)
        self.roster.put(after, tell=False)
        if after.reason != current.reason:
            self.roster.tell_stop_failed(after)

    def _node(self, name: str) -> NodeHandle:
        node = self.means.fleet.nodes.get(name)
        if node is None:
            raise NodeLost(f"node {name} is no longer configured")
        return node

    async def _start(
        self, replica: Replica, model: Model, profile: Profile, *, again: bool = False
    ) -> None:
        node = self._node(replica.node)
        engine = self.means.engines[profile.engine]
        if again:
            await self._end(replica, node, engine.stop_grace_s)
        content = self.means.weights.content(model)  # asked first: what changes meanwhile is old
        source = await self._locate(replica, node, model)
        await self._memory_back(replica, node)
        port = await self._port(replica, node)
        key = secrets.token_urlsafe(KEY_BYTES)
        request = launch_request(node, model, profile, source, port, key)
        launch = engine.launch(request)
        now = self.means.clock()
        replica = replace(
            self.roster.get(replica.id) or replica,
            port=port,
            token=secrets.token_hex(8),
            api_key=key,
            argv=launch.argv,
            content=content,
            build=request.found.build,
            started=now,
            progress_at=now,
            answered_at=None,
            ready_at=None,
            pid=None,
        )
        self.roster.put(replica)
        spec = InstanceSpec(
            name=replica.instance,
            token=replica.token or "",
            argv=launch.argv,
            env=launch.env,
            files=launch.files,
            record=record_of(replica, cluster=self.means.cluster, started=now),
            port=port,
        )
        status = await node.start_instance(spec)
        loading = replace(replica, phase=Phase.LOADING, since=now, pid=status.pid, reason="")
        self.roster.put(loading)

    async def _end(self, replica: Replica, node: NodeHandle, grace_s: float) -> StopResult:
        """End a replica's processes, and note the GPU memory that is to come back."""
        status = (node.instances or {}).get(replica.instance) if replica.gpus else None
        before = used_now(node.sample) if replica.gpus else None
        result = await node.stop_instance(replica.instance, grace_s=grace_s)
        if status is not None and status.state.alive and not result.left:
            self._memory.released(replica.node, replica.id, before)
        return result

    async def _memory_back(self, replica: Replica, node: NodeHandle) -> None:
        """Wait until the GPU memory of who was stopped on the node before is back."""
        other = self._memory.pending(replica.node) if replica.gpus else ""
        current = self.roster.get(replica.id)
        if not other or current is None:
            return
        why = f"waits until the GPU memory of {other} is back"
        self.roster.put(replace(current, reason=why))
        if not await self._memory.wait(replica.node, lambda: used_now(node.sample)):
            self.roster.tell_memory_held(replica, other)

    async def _port(self, replica: Replica, node: NodeHandle) -> int:
        """A port for its next run: one that nobody had a moment ago, and where the range has
        nothing else, one that nobody else has."""
        taken = self.roster.ports_on(replica.node)
        try:
            return await node.free_port(taken | self.roster.resting_ports_on(replica.node))
        except RemoteFailed as error:
            log.info("replica.ports_rest replica=%s error=%s", replica.id, error)
            own = frozenset() if replica.port is None else frozenset((replica.port,))
            return await node.free_port(taken - own)

    async def _locate(self, replica: Replica, node: NodeHandle, model: Model) -> str:
        """Where the weights lie on the node, after fetching what is missing there."""

        def progress(fetched: Fetched) -> None:
            current = self.roster.get(replica.id)
            if current is None or current.phase not in (Phase.STARTING, Phase.FETCHING):
                return
            if current.phase is Phase.STARTING and fetched.done == fetched.total:
                return  # all of it is there
            since = current.since if current.phase is Phase.FETCHING else self.means.clock()
            self.roster.put(replace(current, phase=Phase.FETCHING, since=since, fetched=fetched))

        need = self.means.weights.need(model)
        if need is not None:
            self._fetches[replica.id] = (replica.node, need.key)
        path = await self.means.weights.locate(node, model, progress)
        self._fetches.pop(replica.id, None)
        current = self.roster.get(replica.id)
        if current is not None and current.phase is Phase.FETCHING:
            now = self.means.clock()
            self.roster.put(replace(current, phase=Phase.STARTING, since=now, fetched=None))
        return path

    async def _stop(self, replica: Replica, why: str, *, drain: bool) -> None:
        now, again = self.means.clock(), replica.phase.ending
        replica = replace(replica, stop_why=why, reason=replica.reason if again else why)
        if drain and replica.phase in (Phase.READY, Phase.DRAINING):
            self.roster.put(replace(replica, phase=Phase.DRAINING, since=now))
            self.means.kick()
            await self.means.drains.drained(replica.id, timeout_s=self.means.drain_timeout_s)
        self.roster.put(replace(replica, phase=Phase.STOPPING, since=now))
        self.means.kick()
        node = self._node(replica.node)
        await self._abandon(replica.id, node)
        engine = self.means.engines.get(replica.engine)
        grace = engine.stop_grace_s if engine else DEFAULT_GRACE_S
        result = await self._end(replica, node, grace)
        if result.left:
            pids = ", ".join(map(str, result.left))
            raise EngineFailed(f"processes {pids} on {replica.node} do not end, even when killed")
        await node.forget_instance(replica.instance)
        how = f"{why}; it ignored SIGTERM for {grace:.0f} s and was killed"
        self.roster.remove(replica, how if result.killed else why)

    async def _examine(self, replica: Replica) -> None:
        """Read the log of a replica that failed; without an answer the first reason stays."""
        reason, tail = replica.reason, replica.log_tail
        engine = self.means.engines.get(replica.engine)
        try:
            chunk = await self._node(replica.node).read_log(replica.instance, limit=LOG_TAIL_BYTES)
            tail = chunk.data.decode(errors="replace")
            if engine is not None and replica.exit_status is not None:
                reason = engine.failure_reason(tail, replica.exit_status)
        except LlmgwError as error:
            log.info("replica.log_unread replica=%s error=%s", replica.id, error)
        current = self.roster.get(replica.id)
        if current is not None and current.phase is Phase.FAILED:
            current = replace(current, reason=reason, log_tail=tail)
            self.roster.put(current)
            self.roster.tell(current)


def _model_and_profile(catalog: Catalog, action: Action) -> tuple[Model, Profile] | None:
    model = catalog.find(action.model)
    profile = model.profile(action.profile) if model else None
    return (model, profile) if model and profile else None
