"""From what is wanted and what is there to what must be done, with reasons. Pure.

``plan`` looks at one immutable ``World`` and nothing else: called again on the same world it gives
the same plan, and on a world in which its actions were carried out it gives none. What makes a
replica give way to a successor, and how fast, stands in ``rolling``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from llmgw_core.catalog.model import Mode, Model
from llmgw_core.controller.replica import Phase, Replica, instance_name
from llmgw_core.controller.rolling import Roll, divide, keep
from llmgw_core.controller.world import (
    Action,
    Asked,
    Demand,
    Kind,
    Pending,
    Plan,
    World,
    booking_of,
    holds,
)
from llmgw_core.nodes.facts import NodeState
from llmgw_core.placement.place import Obstacle, booking_for, place
from llmgw_core.placement.rooms import Room, Weights, book

__all__ = [
    "Action", "Demand", "Kind", "Pending", "Plan", "World", "booking_of", "holds", "plan", "wanted",
]  # fmt: skip


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
        # a record that was found under a name that another replica had keeps that name on its node
        self.taken = {name for r in world.replicas for name in (r.id, r.instance)}

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
        mine = [r for r in mine if not self._stopped_by_hand(r)]
        roll = divide(self.world, model, [r for r in mine if not self._given_up(r)], self.rooms)
        count, why = wanted(model, self.world.demand.get(model.name), roll.slots)
        self._surplus(roll.current, count, why)
        self._retries(model, keep(roll.current, count))
        self._successors(model, roll, count)
        for replica in roll.retired(count):
            self.stop(replica, roll.why[replica.id] if count else why)

    def _stopped_by_hand(self, replica: Replica) -> bool:
        """Whether a person asked for its end: it counts no longer, and its node may be away."""
        mark = self.world.marks.get(replica.run)
        if mark is None or mark.asked is not Asked.STOP:
            return False
        self.stop(replica, mark.why)
        return True

    def _successors(self, model: Model, roll: Roll, count: int) -> None:
        """Start what is lacking: all of it, or for old ones as fast as the roll may go."""
        lacking = count - len(roll.current)
        if lacking <= 0:
            return
        if not roll.old:
            self._start(model, lacking)
            return
        vacant = [""] * (count - roll.slots)  # what went before its successor is there no longer
        replaced = vacant + [r.id for r in roll.unreplaced()]
        if self._start(model, min(lacking, roll.at_once(count)), replaced):
            return
        going = any(r.phase is not Phase.UNKNOWN for r in roll.retired(count))
        if roll.may_end_first and not going:
            self._end_first(model, roll)
        elif (unready := roll.unready) is not None and not unready.phase.coming:
            why = f"{unready.id} is {unready.phase}; those before it stay until it is ready"
            self.pending.append(Pending(model.name, unready.profile, None, why))

    def _end_first(self, model: Model, roll: Roll) -> None:
        """End an old one whose successor has room only in its place."""
        for replica in roll.unreplaced():
            if replica.phase is not Phase.UNKNOWN and self._fits_in_place_of(model, replica):
                cause, room = roll.why[replica.id], self.rooms.get(replica.node)
                leaves = room is None or room.state is NodeState.DRAINING
                where = "no other node can take it" if leaves else (
                    "its successor has room only in its place")  # fmt: skip
                self.stop(replica, f"{cause}, and {where}")
                return

    def _fits_in_place_of(self, model: Model, old: Replica) -> bool:
        """Whether a successor could start where an old replica is, had that one gone: nobody is
        stopped for one that would not start then, for lack of room, of weights or of anything else.
        """
        room = self.rooms.get(old.node)
        if self._kept_waiting(model):
            return False
        if room is None or room.state is NodeState.DRAINING:
            return True  # the node is to be left in any case
        weights, barred = self._needs(model)
        left = {room.name: room.without(booking_of(old))}
        return place(model, left, weights, barred)[0] is not None

    def _surplus(self, current: Iterable[Replica], count: int, why: str) -> None:
        kept = {r.id for r in keep(current, count)}
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

    def _start(self, model: Model, count: int, replaced: Sequence[str] = ()) -> int:
        """Start up to ``count`` replicas, in the place of those; how many there was room for."""
        if count <= 0:
            return 0
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
            replaces = replaced[number] if number < len(replaced) else ""
            self.actions.append(
                Action(Kind.START, name, model.name, profile, placed.nodes, placed.why,
                       replaces=replaces)
            )  # fmt: skip
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

    def _new_id(self, model: str) -> str:
        number = 1
        while {f"{model}.{number}", instance_name(f"{model}.{number}")} & self.taken:
            number += 1
        self.taken.add(f"{model}.{number}")
        return f"{model}.{number}"


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
