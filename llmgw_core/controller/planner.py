"""From what is wanted and what is there to what must be done, with reasons. Pure.

``plan`` looks at one immutable ``World`` and nothing else: called again on the same world it gives
the same plan, and on a world in which its actions were carried out it gives none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from llmgw_core.catalog.model import Mode, Model
from llmgw_core.controller.replica import Phase, Replica
from llmgw_core.nodes.facts import NodeState
from llmgw_core.placement.place import Obstacle, booking_for, place
from llmgw_core.placement.rooms import Booking, Room, Weights, book


@dataclass(frozen=True, slots=True)
class Demand:
    """What clients want of a model: requests now, and seconds since the last one ended or asked."""

    running: int = 0
    waiting: int = 0
    idle_s: float | None = None
    """None where nobody has asked yet."""


@dataclass(frozen=True, slots=True)
class World:
    """Everything that a plan depends on."""

    now: float
    models: tuple[Model, ...]
    rooms: tuple[Room, ...]
    """Without bookings: those follow from the replicas."""
    replicas: tuple[Replica, ...] = ()
    demand: Mapping[str, Demand] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    node_grace_s: float = 60.0
    unread: tuple[str, ...] = ()
    """Nodes whose replicas are not known yet: nothing is started while there are some, since it
    may run there already."""
    weights: Mapping[str, Weights] = field(default_factory=dict)
    """By model: what a node must hold or fetch. Models whose weights are on the nodes lack."""
    barred: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By model: nodes that cannot run it, and why."""
    avoid: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By model: nodes where it failed lately, and how; used only where nothing else fits."""
    frozen: str = ""
    """Why replicas on nodes that are away are not replaced, however long that lasts."""
    waiting: Mapping[str, str] = field(default_factory=dict)
    """By model: why it cannot start anywhere yet, such as weights that the mirror still pulls."""


class Kind(StrEnum):
    """What an action does."""

    START = "start"
    RETRY = "retry"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do, and why."""

    kind: Kind
    replica: str
    model: str
    profile: str
    nodes: tuple[str, ...]
    why: str
    drain: bool = True
    """For a stop: let requests finish first."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Why a replica that is wanted cannot be placed: one line a node."""

    model: str
    profile: str
    node: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and what cannot be done."""

    actions: tuple[Action, ...]
    pending: tuple[Pending, ...]

    def pending_reason(self, model: str) -> str:
        """One sentence on why this model lacks a replica; empty where it lacks none."""
        mine = [item for item in self.pending if item.model == model]
        return "; ".join(
            f"{item.node}: {item.reason}" if item.node else item.reason for item in mine[:4]
        ) + (f"; and {len(mine) - 4} more" if len(mine) > 4 else "")


def plan(world: World) -> Plan:
    """What must be done to bring the replicas to what the catalog wants."""
    return _Planner(world).run()


def wanted(model: Model, demand: Demand | None, present: int) -> tuple[int, str]:
    """How many replicas a model should have now, and why."""
    scaling = model.scaling
    match scaling.mode:
        case Mode.STOPPED:
            return 0, "the model is stopped"
        case Mode.ALWAYS:
            return scaling.min, f"the model always has {scaling.min}"
        case Mode.ON_DEMAND:
            if demand is None or demand.idle_s is None:
                return 0, "on demand, and nobody has asked"
            if demand.running or demand.waiting or demand.idle_s < scaling.idle_timeout_s:
                return max(1, min(present, scaling.max)), "on demand, and it is used"
            return 0, f"on demand, and idle for {demand.idle_s:.0f} s"


class _Planner:
    """One run of ``plan``: the rooms left, and the actions so far."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rooms = book(world.rooms, map(booking_of, filter(holds, world.replicas)))
        self.actions: list[Action] = []
        self.pending: list[Pending] = []
        self.taken = {replica.id for replica in world.replicas}

    def run(self) -> Plan:
        names = {model.name for model in self.world.models}
        for replica in self.world.replicas:
            if replica.model not in names and not replica.phase.ending:
                self.stop(replica, "its model is no longer in the catalog")
        rank = self.world.ranks
        order = sorted(self.world.models, key=lambda model: -rank.get(model.model_class, 0))
        for model in order:
            self.model(model)
        return Plan(tuple(self.actions), tuple(self.pending))

    def model(self, model: Model) -> None:
        mine = [r for r in self.world.replicas if r.model == model.name and not r.phase.ending]
        counted = [r for r in mine if not self._given_up(r)]
        count, why = wanted(model, self.world.demand.get(model.name), len(counted))
        current = [r for r in counted if not self._outdated(model, r)]
        old = [r for r in counted if self._outdated(model, r)]
        self._surplus(current, count, why)
        self._retries(model, _keep(current, count))
        lacking = count - len(current)
        if lacking > 0:
            placed = self._start(model, lacking if not old else min(lacking, 1))
            first = None
            if not placed and old and not any(r.phase.coming for r in current):
                first = min(old, key=_worth)
            if first is not None and self._fits_in_place_of(model, first):
                cause = self._outdated(model, first)
                self.stop(first, f"{cause}, and its successor has room only in its place")
        self._retire(model, current, old, count, why)

    def _fits_in_place_of(self, model: Model, old: Replica) -> bool:
        """Whether a successor could start where an old replica is, had that one gone: nobody is
        stopped for one that nothing but room keeps from starting, such as weights on their way.
        """
        room = self.rooms.get(old.node)
        if self._kept_waiting(model):
            return False
        if room is None or room.state is NodeState.DRAINING:
            return True  # the node is to be left in any case
        empty = replace(room, memory_gb=None, available_gb=None, cores=None, gpus=None)
        weights, barred = self._needs(model)
        return place(model, {room.name: empty}, weights, barred)[0] is not None

    def _surplus(self, current: list[Replica], count: int, why: str) -> None:
        kept = {r.id for r in _keep(current, count)}
        for replica in current:
            if replica.id not in kept:
                self.stop(replica, why)

    def _retries(self, model: Model, replicas: Iterable[Replica]) -> None:
        for replica in replicas:
            due = replica.retry_at is None or replica.retry_at <= self.world.now
            cut_off = replica.phase is Phase.PENDING
            if not cut_off and (replica.phase is not Phase.FAILED or not due):
                continue
            room = self.rooms.get(replica.node)
            waits = self.world.waiting.get(replica.model) or _unfetchable(self.world, replica, room)
            barred = self.world.barred.get(replica.model, {}).get(replica.node)
            if barred:
                self.stop(replica, barred)
            elif room is None or room.state is not NodeState.READY:
                did = "it waits" if cut_off else "it failed"
                self.stop(replica, f"{did}, and its node is {_state(room)}")
            elif replica.phase is Phase.FAILED and self._goes_elsewhere(model, replica):
                self.stop(replica, f"it {self._avoided(model)[replica.node]}; another is tried")
            elif waits:
                self.pending.append(Pending(replica.model, replica.profile, None, waits))
            else:
                attempt = f"attempt {replica.failures + 1} after: {replica.reason}"
                why = "its node is back" if cut_off else attempt
                self._act(Kind.RETRY, replica, why)

    def _start(self, model: Model, count: int) -> int:
        why = self._kept_waiting(model)
        if why:
            self.pending.append(Pending(model.name, model.profiles[0].name, None, why))
            return 0
        weights, barred = self._needs(model)
        for number in range(count):
            avoided = {**self._avoided(model), **barred}
            placed, obstacles = place(model, self.rooms, weights, avoided)
            if placed is None and avoided != barred:  # nothing better is left
                placed, obstacles = place(model, self.rooms, weights, barred)
            if placed is None:
                self.pending += [_pending(model, obstacle) for obstacle in obstacles]
                return number
            name = self._new_id(model.name)
            node = placed.nodes[0]
            booking = booking_for(name, node, placed.profile)
            self.rooms[node] = self.rooms[node].with_booking(booking)
            profile = placed.profile.name
            self.actions.append(
                Action(Kind.START, name, model.name, profile, placed.nodes, placed.why)
            )
        return count

    def _needs(self, model: Model) -> tuple[Weights | None, Mapping[str, str]]:
        world = self.world
        return world.weights.get(model.name), world.barred.get(model.name, {})

    def _avoided(self, model: Model) -> Mapping[str, str]:
        return self.world.avoid.get(model.name, {})

    def _goes_elsewhere(self, model: Model, replica: Replica) -> bool:
        """Whether it failed here so often that another node, which would take it, comes first."""
        avoided = self._avoided(model)
        if replica.node not in avoided or self._kept_waiting(model):
            return False
        weights, barred = self._needs(model)
        return place(model, self.rooms, weights, {**avoided, **barred})[0] is not None

    def _kept_waiting(self, model: Model) -> str:
        """Why no replica of it can start anywhere now; empty where room alone decides."""
        if self.world.unread:
            names = ", ".join(self.world.unread)
            return f"waits to hear from {names}, where it may run already"
        waits = self.world.waiting.get(model.name, "")
        weights = self.world.weights.get(model.name)
        if waits or weights is None or any(room.holds(weights) for room in self.rooms.values()):
            return waits
        return weights.missing

    def _retire(
        self, model: Model, current: list[Replica], old: list[Replica], count: int, why: str
    ) -> None:
        """Old revisions go one by one as their successors become ready."""
        ready = sum(r.phase is Phase.READY for r in current)
        useless = {Phase.FAILED}
        if current:  # what still fetches would only take bandwidth from its successor
            useless |= {Phase.FETCHING, Phase.PENDING}
        useful = [r for r in old if r.phase not in useless]
        for replica in old:
            if replica not in useful:
                self.stop(replica, self._outdated(model, replica))
        spare = len(useful) - max(count - ready, 0)
        for replica in sorted(useful, key=_worth)[: max(spare, 0)]:
            self.stop(replica, self._outdated(model, replica) if count else why)

    def stop(self, replica: Replica, why: str) -> None:
        """Stop a replica; one whose node is away is left until the node is back."""
        asked = any(a.kind is Kind.STOP and a.replica == replica.id for a in self.actions)
        if not asked and replica.phase is not Phase.UNKNOWN:
            self._act(Kind.STOP, replica, why)

    def _act(self, kind: Kind, replica: Replica, why: str) -> None:
        drain = replica.phase is Phase.READY
        self.actions.append(
            Action(kind, replica.id, replica.model, replica.profile, (replica.node,), why, drain)
        )

    def _given_up(self, replica: Replica) -> bool:
        """Whether its node is away for so long that it no longer counts."""
        return (
            not self.world.frozen
            and replica.phase is Phase.UNKNOWN
            and replica.lost_at is not None
            and self.world.now - replica.lost_at > self.world.node_grace_s
        )

    def _outdated(self, model: Model, replica: Replica) -> str:
        """Why this replica must be replaced; empty where it is as it should be."""
        profile = model.profile(replica.profile)
        if profile is None:
            return f"profile {replica.profile} is gone"
        if profile.revision(model.source) != replica.revision:
            return f"profile {replica.profile} has changed"
        room = self.rooms.get(replica.node)
        if room is None:
            return f"node {replica.node} is no longer configured"
        return f"node {replica.node} is draining" if room.state is NodeState.DRAINING else ""

    def _new_id(self, model: str) -> str:
        number = 1
        while f"{model}.{number}" in self.taken:
            number += 1
        self.taken.add(f"{model}.{number}")
        return f"{model}.{number}"


def booking_of(replica: Replica) -> Booking:
    """What a replica holds on its node."""
    return Booking(
        replica.id, replica.node, replica.memory_gb, replica.cores, replica.gpus,
        replica.resident_gb if replica.phase is not Phase.READY or replica.resident_gb
        else replica.memory_gb,
    )  # fmt: skip


def holds(replica: Replica) -> bool:
    """Whether it takes room: all but what has ended."""
    return replica.phase is not Phase.STOPPED


_WORTH = {Phase.FAILED: 0, Phase.UNKNOWN: 1, Phase.PENDING: 2, Phase.FETCHING: 3,
          Phase.STARTING: 4, Phase.LOADING: 5, Phase.READY: 6}  # fmt: skip


def _worth(replica: Replica) -> tuple[int, float, str]:
    """Order in which replicas are given up: the least useful first, then the youngest."""
    return _WORTH.get(replica.phase, 0), -replica.created, replica.id


def _keep(replicas: list[Replica], count: int) -> list[Replica]:
    return sorted(replicas, key=_worth, reverse=True)[: max(count, 0)]


def _unfetchable(world: World, replica: Replica, room: Room | None) -> str:
    """Why a replica's node cannot get its weights now; empty where it holds or can get them."""
    weights = world.weights.get(replica.model)
    if weights is None or room is None or room.holds(weights):
        return ""
    return weights.missing


def _state(room: Room | None) -> str:
    return room.state.value if room is not None else "gone"


def _pending(model: Model, obstacle: Obstacle) -> Pending:
    return Pending(model.name, obstacle.profile, obstacle.node, obstacle.reason)
