"""The revision fence: which replicas are of an old revision, and how they give way. Pure.

A revision is everything that makes a running engine differ: profile, arguments, environment and
source (``Profile.revision``), the content of the weights, the build of the engine, and whether a
person asked for a restart. What is not known on either side is never a difference, so that records
of an earlier llmgw do not make a whole cluster roll.

The rule, for a model that wants N replicas:

1. One successor is started first, and nothing else is touched until it is ready: a revision that
   does not start costs at most one replica. It comes before an old one goes where there is room;
   where there is none, one old replica ends for it, and no second one before it is ready.
2. Once one is ready the rest follow, as many at once as there is room for. Restarts that a person
   asked for change nothing that could be mixed, and stay one at a time.
3. With each new one that is ready an old one takes no new request, finishes those it has, and goes:
   old ones that are asked never outnumber N less the new ones that are ready. With N ready none of
   the old is asked any more, even one that comes back with its node later.

So the fence falls replica by replica. At once with the first would lose most of the capacity; only
with the last would let two models answer under one name for as long as a roll takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmgw_core.catalog.model import Model
from llmgw_core.controller.replica import Phase, Replica
from llmgw_core.controller.world import Asked, World
from llmgw_core.nodes.facts import NodeState
from llmgw_core.placement.rooms import Room


def outdated(world: World, model: Model, replica: Replica, room: Room | None) -> str:
    """Why this replica must be replaced; empty where it is as it should be.

    Args:
        world: what is wanted and known.
        model: the replica's model.
        replica: the replica.
        room: its node, or None where that is configured no longer.
    """
    return (
        _differs(world, model, replica, room)
        or _asked(world, replica)
        or _must_leave(replica, room)
    )


def _differs(world: World, model: Model, replica: Replica, room: Room | None) -> str:
    profile = model.profile(replica.profile)
    if profile is None:
        return f"profile {replica.profile} is gone"
    if profile.revision(model.source) != replica.revision:
        return f"profile {replica.profile} has changed"
    content = world.contents.get(model.name, "")
    if content and replica.content and content != replica.content:
        return "its weights have changed in the mirror"
    build = room.builds.get(replica.engine, "") if room is not None else ""
    if build and replica.build and build != replica.build:
        return f"the engine on {replica.node} is {build} now, and it runs {replica.build}"
    return ""


def _asked(world: World, replica: Replica) -> str:
    mark = world.marks.get(replica.run)
    return mark.why if mark is not None and mark.asked is Asked.RESTART else ""


def _must_leave(replica: Replica, room: Room | None) -> str:
    if room is None:
        return f"node {replica.node} is no longer configured"
    return f"node {replica.node} is draining" if room.state is NodeState.DRAINING else ""


@dataclass(frozen=True, slots=True)
class Roll:
    """A model's replicas on both sides of the fence; what is ending stands on neither."""

    current: tuple[Replica, ...]
    old: tuple[Replica, ...]
    why: dict[str, str]
    """By old replica: why it is old."""
    changed: bool
    """Whether an old one differs from what would be started now: not where all of them only have
    to move or were asked to start anew."""
    restarts: bool
    """Whether all old ones are here because a person asked for a restart."""
    freeing: bool
    """Whether one of the model's replicas is ending, so that room is about to come."""

    @property
    def slots(self) -> int:
        """How many replicas these stand for: one and its successor count once."""
        there = {replica.id for replica in self.old}
        return len(self.old) + sum(r.replaces not in there for r in self.current)

    @property
    def ready(self) -> int:
        """Replicas of the new revision that answer."""
        return sum(r.phase is Phase.READY for r in self.current)

    @property
    def proven(self) -> bool:
        """Whether what would be started now is known to start."""
        return self.ready > 0 or (
            not self.changed and any(r.phase is Phase.READY for r in self.old)
        )

    @property
    def unready(self) -> Replica | None:
        """One of the new revision that is not ready, or is away."""
        return next((r for r in self.current if r.phase is not Phase.READY), None)

    def at_once(self, count: int) -> int:
        """How many replicas may start now, of ``count`` that are wanted, where there is room."""
        if self.proven and not self.restarts:
            return count
        more = max(count - self.slots, 0) if self.proven else 0
        return more + (0 if self.unready is not None else 1)

    @property
    def may_end_first(self) -> bool:
        """Whether an old one may end before its successor is there."""
        return self.unready is None and not self.freeing

    def unreplaced(self) -> list[Replica]:
        """Old ones that nothing on its way replaces yet, the least useful first."""
        taken = {replica.replaces for replica in self.current}
        return sorted((r for r in self.old if r.id not in taken), key=worth)

    def useless(self) -> list[Replica]:
        """Old ones that serve nobody and whose successor is on its way, or that have failed: what
        still loads would only take room and bandwidth, and be of one revision more.
        """
        return [
            r for r in self.old
            if r.phase is Phase.FAILED or (self.current and r.phase.coming)
        ]  # fmt: skip

    def retired(self, count: int) -> list[Replica]:
        """Old ones that go now, of ``count`` replicas that are wanted."""
        useless = self.useless()
        useful = [r for r in self.old if r not in useless]
        spare = len(useful) - max(count - self.ready, 0)
        ready = {r.replaces for r in self.current if r.phase is Phase.READY}
        order = sorted(
            useful, key=lambda r: (r.phase is Phase.READY and r.id not in ready, worth(r))
        )
        return useless + order[: max(spare, 0)]


def divide(world: World, model: Model, counted: Sequence[Replica], rooms: dict[str, Room]) -> Roll:
    """Put a model's replicas on the two sides of the fence."""
    why = {r.id: outdated(world, model, r, rooms.get(r.node)) for r in counted}
    old = tuple(r for r in counted if why[r.id])
    return Roll(
        current=tuple(r for r in counted if not why[r.id]),
        old=old,
        why=why,
        changed=any(_differs(world, model, r, rooms.get(r.node)) for r in old),
        restarts=bool(old) and all(_asked(world, r) == why[r.id] for r in old),
        freeing=any(r.model == model.name and _frees(r) for r in world.replicas),
    )


def _frees(replica: Replica) -> bool:
    return replica.phase in (Phase.DRAINING, Phase.STOPPING)


_WORTH = {Phase.FAILED: 0, Phase.UNKNOWN: 1, Phase.PENDING: 2, Phase.FETCHING: 3,
          Phase.STARTING: 4, Phase.LOADING: 5, Phase.READY: 6}  # fmt: skip


def worth(replica: Replica) -> tuple[int, float, str]:
    """Order in which replicas are given up: the least useful first, then the youngest."""
    return _WORTH.get(replica.phase, 0), -replica.created, replica.id


def keep(replicas: Iterable[Replica], count: int) -> list[Replica]:
    """The most useful ``count`` of them."""
    return sorted(replicas, key=worth, reverse=True)[: max(count, 0)]
