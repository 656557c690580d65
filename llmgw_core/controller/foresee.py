"""What the planner will do about a change, before it is made. Pure.

The same ``plan`` runs forward over a world in which everything goes well: what starts becomes
ready, what stops has finished its requests by the next step. Time stands still, so that pauses
after failures and the grace of nodes that are away do not end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from llmgw_core.controller.planner import plan
from llmgw_core.controller.replica import Phase, Replica
from llmgw_core.controller.world import (
    Action,
    Asked,
    Kind,
    Mark,
    Pending,
    World,
    booking_of,
    holds,
)
from llmgw_core.nodes.facts import NodeState
from llmgw_core.placement.place import headroom_free
from llmgw_core.placement.rooms import Room, book

STEPS_MOST = 200
_AWAY = (NodeState.CONNECTING, NodeState.UNREACHABLE, NodeState.REFUSED)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Where a world goes by itself."""

    steps: tuple[tuple[Action, ...], ...]
    """Actions by step; those of one step happen together."""
    pending: tuple[Pending, ...]
    """What still has no place at the end."""
    end: World
    settled: bool
    """Whether it came to rest within ``STEPS_MOST`` steps."""


def foresee(world: World) -> Foreseen:
    """Plan and carry out until nothing is left to do."""
    steps: list[tuple[Action, ...]] = []
    for _ in range(STEPS_MOST):
        planned = plan(world)
        moving = any(_moves(r) for r in world.replicas)
        if not planned.actions and not moving:
            return Foreseen(tuple(steps), planned.pending, world, settled=True)
        if planned.actions:
            steps.append(planned.actions)
        world = _after(world, planned.actions)
    return Foreseen(tuple(steps), plan(world).pending, world, settled=False)


def of_change(before: Foreseen, after: Foreseen) -> Foreseen:
    """What the second holds that the first does not: the part that a change is to blame for."""
    known = {(a.kind, a.replica, a.nodes) for step in before.steps for a in step}
    steps = (
        tuple(a for a in step if (a.kind, a.replica, a.nodes) not in known) for step in after.steps
    )
    touched = {a.model for step in after.steps for a in step}
    pending = (p for p in after.pending if p.model in touched or p not in before.pending)
    return replace(after, steps=tuple(s for s in steps if s), pending=tuple(pending))


def _moves(replica: Replica) -> bool:
    return replica.phase in (
        Phase.FETCHING, Phase.STARTING, Phase.LOADING, Phase.DRAINING, Phase.STOPPING,
    )  # fmt: skip


def _after(world: World, actions: Iterable[Action]) -> World:
    """One step on: what was on its way has arrived, and what is planned is on its way."""
    rooms = {room.name: room for room in world.rooms}
    by_id = {action.replica: action for action in actions}
    replicas: list[Replica] = []
    for replica in world.replicas:
        action = by_id.pop(replica.id, None)
        if replica.phase in (Phase.DRAINING, Phase.STOPPING):
            _give_back(rooms, replica)
        elif action is not None and action.kind is Kind.STOP:
            replicas.append(replace(replica, phase=Phase.STOPPING))
        elif action is not None or _moves(replica):
            loading = action is not None
            replicas.append(replace(replica, phase=Phase.LOADING if loading else Phase.READY))
            if not loading:
                _take(rooms, replica)
        else:
            replicas.append(replica)
    replicas += [_begun(world, a) for a in by_id.values() if a.kind is Kind.START]
    return replace(world, rooms=tuple(rooms.values()), replicas=tuple(replicas))


def _begun(world: World, action: Action) -> Replica:
    model = next(m for m in world.models if m.name == action.model)
    profile = next(p for p in model.profiles if p.name == action.profile)
    room = next(r for r in world.rooms if r.name == action.nodes[0])
    return Replica(
        id=action.replica, model=model.name, profile=profile.name, node=room.name,
        revision=profile.revision(model.source), phase=Phase.LOADING, since=world.now,
        instance="", engine=profile.engine, content=world.contents.get(model.name, ""),
        build=room.builds.get(profile.engine, ""), replaces=action.replaces,
        token=f"foreseen {action.replica}", memory_gb=profile.min_memory_gb,
        cores=profile.cpu_cores, gpus=profile.gpus_per_node, created=world.now,
    )  # fmt: skip


def _take(rooms: dict[str, Room], replica: Replica) -> None:
    """A replica that is ready has taken from the measured memory what it had only booked."""
    _move(rooms, replica.node, -max((replica.memory_gb or 0.0) - (replica.resident_gb or 0.0), 0.0))


def _give_back(rooms: dict[str, Room], replica: Replica) -> None:
    _move(rooms, replica.node, replica.resident_gb or 0.0)


def _move(rooms: dict[str, Room], name: str, gb: float) -> None:
    room = rooms.get(name)
    if room is not None and room.available_gb is not None:
        rooms[name] = replace(room, available_gb=room.available_gb + gb)


# Changes


def asked_of(world: World, replicas: Iterable[Replica], asked: Asked, why: str) -> World:
    """The world once a person has asked that of these replicas."""
    marks = {r.run: Mark(r.id, asked, why, world.now) for r in replicas}
    return replace(world, marks={**world.marks, **marks})


def with_node(world: World, name: str, state: NodeState) -> World:
    """The world with a node cordoned, draining, or ready again; one that is away stays so."""
    rooms = (
        replace(room, state=state) if room.name == name and room.state not in _AWAY else room
        for room in world.rooms
    )
    return replace(world, rooms=tuple(rooms))


def headroom(world: World, model: str, *, limit: int) -> int | None:
    """How many more replicas of a model would fit, counted up to a limit."""
    found = next((m for m in world.models if m.name == model), None)
    if found is None:
        return None
    rooms = book(world.rooms, map(booking_of, filter(holds, world.replicas)))
    barred = world.barred.get(model, {})
    return headroom_free(found, rooms, world.weights.get(model), barred, limit=limit)
