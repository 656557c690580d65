"""Where one more replica of a model goes, or, node by node, why it fits nowhere. Pure.

GPU profiles pack (the fullest node that still fits); CPU profiles spread (fewest replicas, then
most free memory), since nothing else keeps two replicas from sharing a machine's cores. Among
nodes that are as good, one that holds the weights already comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from llmgw_core.catalog.model import Model, Profile
from llmgw_core.nodes.facts import NodeState
from llmgw_core.placement.rooms import Booking, Room, Weights

NOBODY: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Placed:
    """A profile and the nodes it takes, the leader first."""

    profile: Profile
    nodes: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why one profile does not fit on one node; node is None where it concerns none."""

    profile: str
    node: str | None
    reason: str


def booking_for(replica: str, node: str, profile: Profile) -> Booking:
    """What a replica of this profile holds on its node."""
    return Booking(
        replica, node, profile.min_memory_gb, profile.cpu_cores, gpus=profile.gpus_per_node
    )


def place(
    model: Model,
    rooms: Mapping[str, Room],
    weights: Weights | None = None,
    barred: Mapping[str, str] = NOBODY,
) -> tuple[Placed | None, tuple[Obstacle, ...]]:
    """The first profile by priority that fits, with its node; and what spoke against the others.

    The obstacles are complete where nothing fits; profiles after the winner are not examined.
    ``weights`` is what has to be fetched; None where it lies on the nodes in any case. ``barred``
    has nodes that cannot run it for reasons of their own.
    """
    obstacles: list[Obstacle] = []
    by_priority = sorted(model.profiles, key=lambda profile: -profile.priority)
    for profile in by_priority:
        placed, against = place_profile(profile, rooms.values(), weights, barred)
        obstacles += against
        if placed is not None:
            return placed, tuple(obstacles)
    return None, tuple(obstacles)


def place_profile(
    profile: Profile,
    rooms: Iterable[Room],
    weights: Weights | None = None,
    barred: Mapping[str, str] = NOBODY,
) -> tuple[Placed | None, tuple[Obstacle, ...]]:
    """Where one replica of this profile goes, and which nodes cannot take it."""
    if profile.nodes > 1:
        reason = f"a gang over {profile.nodes} nodes cannot be placed by this version"
        return None, (Obstacle(profile.name, None, reason),)
    fits: list[Room] = []
    obstacles: list[Obstacle] = []
    for room in rooms:
        reasons = refusals(profile, room, weights)
        if room.name in barred:
            reasons.append(barred[room.name])
        if reasons:
            obstacles.append(Obstacle(profile.name, room.name, ", ".join(reasons)))
        else:
            fits.append(room)
    if not fits:
        if not obstacles:
            obstacles.append(Obstacle(profile.name, None, "no node is configured"))
        return None, tuple(obstacles)
    if profile.on_cpu:
        best = min(
            fits,
            key=lambda room: (
                room.replicas, not room.holds(weights), -(room.free_memory_gb or 0.0)
            ),
        )  # fmt: skip
        why = f"spread: {_replicas(best.replicas)} there before"
    else:
        best = min(
            fits, key=lambda room: (room.free_gpus or 0, not room.holds(weights), room.replicas)
        )
        why = f"packed: {best.free_gpus} of {best.gpus} GPUs were free"
    if weights is not None and best.holds(weights):
        why += ", and the weights are there"
    return Placed(profile, (best.name,), why), tuple(obstacles)


def refusals(profile: Profile, room: Room, weights: Weights | None = None) -> list[str]:
    """Every reason why this node cannot take the profile now; empty where it can."""
    if room.state is not NodeState.READY:
        return [f"node is {room.state}" + (f" ({room.reason})" if room.reason else "")]
    reasons = [room.closed] if room.closed else []
    reasons += [
        f"label {key} is {room.labels.get(key, 'not set')}, not {value}"
        for key, value in profile.node_selector.items()
        if room.labels.get(key) != value
    ]
    if room.engines is not None and profile.engine not in room.engines:
        reasons.append(
            f"engine {profile.engine} is not installed (llmgw run node provision {room.name})"
        )
    reasons += _gpu_refusals(profile, room)
    memory, cores = room.free_memory_gb, room.free_cores
    if profile.min_memory_gb and memory is not None and memory < profile.min_memory_gb:
        reasons.append(
            f"needs {profile.min_memory_gb:g} GiB of memory, {max(memory, 0):.1f} are free"
        )
    if profile.cpu_cores and cores is not None and cores < profile.cpu_cores:
        reasons.append(f"needs {profile.cpu_cores:g} cores, {max(cores, 0):g} are free")
    return reasons + _disk_refusals(room, weights)


def _disk_refusals(room: Room, weights: Weights | None) -> list[str]:
    """Whether the weights can be fetched and fit on its disk, where they are not there."""
    if weights is not None and weights.missing and not room.holds(weights):
        return [weights.missing]
    if weights is None or weights.size_gb is None or room.holds(weights):
        return []
    free = room.disk_free_gb
    if free is None or free >= weights.size_gb:
        return []
    return [f"needs {_disk(weights.size_gb)} of disk for the weights, {_disk(free)} are free"]


def _disk(gb: float) -> str:
    return f"{gb:.1f} GiB" if gb >= 1 else f"{gb * 1024:.0f} MiB"


def _gpu_refusals(profile: Profile, room: Room) -> list[str]:
    if profile.gpu_class is None:
        return []
    if room.gpu_class != profile.gpu_class:
        return [f"has GPU class {room.gpu_class or 'none'}, not {profile.gpu_class}"]
    free = room.free_gpus
    if free is not None and free < profile.gpus_per_node:
        return [f"needs {profile.gpus_per_node} GPUs, {free} are free"]
    return []


def headroom_free(
    model: Model,
    rooms: Mapping[str, Room],
    weights: Weights | None = None,
    barred: Mapping[str, str] = NOBODY,
    *,
    limit: int = 1000,
) -> int | None:
    """How many more replicas ``place`` would find room for now.

    None where no bound shows: the profile that wins reserves neither memory, cores nor GPUs, so
    that counting would never end.
    """
    left = dict(rooms)
    for count in range(limit):
        placed, _ = place(model, left, weights, barred)
        if placed is None:
            return count
        profile = placed.profile
        if not (profile.min_memory_gb or profile.cpu_cores or profile.gpus_per_node):
            return None
        node = placed.nodes[0]
        left[node] = left[node].with_booking(booking_for(f"?{count}", node, profile))
    return limit


def _replicas(count: int) -> str:
    return "no replica" if count == 0 else "1 replica" if count == 1 else f"{count} replicas"
