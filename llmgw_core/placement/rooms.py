"""What each node has left for replicas. Pure values; memory in GiB, None where unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from llmgw_core.nodes.facts import NodeState


@dataclass(frozen=True, slots=True)
class Booking:
    """What one replica holds on its node, whether or not it runs yet."""

    replica: str
    node: str
    memory_gb: float | None = None
    cores: float | None = None
    gpus: int = 0
    resident_gb: float | None = None
    """Memory that its process really has now; None where it was not measured."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What a node must have, or fetch, before a replica of a model can start there."""

    key: str
    """``MODEL/VERSION`` in the mirror."""
    size_gb: float | None = None
    missing: str = ""
    """Why they cannot be fetched now, although a node that holds them can do without."""


@dataclass(frozen=True, slots=True)
class Room:
    """A node as the planner sees it: totals, and what replicas and the node itself hold."""

    name: str
    state: NodeState = NodeState.READY
    reason: str = ""
    closed: str = ""
    """Why nothing new can be started here although it is connected; empty where it can."""
    labels: Mapping[str, str] = field(default_factory=dict)
    engines: frozenset[str] | None = None
    """None where the node was not asked, which counts as maybe."""
    builds: Mapping[str, str] = field(default_factory=dict)
    """By engine: what would be started here (``EngineFacts.build``), where that is known."""
    memory_gb: float | None = None
    available_gb: float | None = None
    """Measured free memory, which foreign processes may have taken."""
    cores: float | None = None
    gpu_class: str | None = None
    gpus: int | None = None
    fabric: str | None = None
    reserve_memory_gb: float = 0.0
    reserve_cores: float = 0.0
    booked_memory_gb: float = 0.0
    booked_cores: float = 0.0
    booked_gpus: int = 0
    unclaimed_gb: float = 0.0
    """Booked memory that its replicas have not taken yet."""
    replicas: int = 0
    weights: frozenset[str] = frozenset()
    """Versions of the mirror that lie here whole, as ``MODEL/VERSION``."""
    disk_free_gb: float | None = None
    """Where weights go."""

    @property
    def free_memory_gb(self) -> float | None:
        """Memory for another replica: by the books, and by what is measured, the smaller."""
        if self.memory_gb is None:
            return None
        by_books = self.memory_gb - self.reserve_memory_gb - self.booked_memory_gb
        if self.available_gb is None:
            return by_books
        return min(by_books, self.available_gb - self.unclaimed_gb)

    @property
    def free_cores(self) -> float | None:
        """Cores that no replica computes on."""
        if self.cores is None:
            return None
        return self.cores - self.reserve_cores - self.booked_cores

    @property
    def free_gpus(self) -> int | None:
        """GPUs that no replica holds."""
        return None if self.gpus is None else self.gpus - self.booked_gpus

    def holds(self, weights: Weights | None) -> bool:
        """Whether nothing has to be fetched here."""
        return weights is None or weights.key in self.weights

    def with_booking(self, booking: Booking) -> Room:
        """This room after one more replica."""
        memory = booking.memory_gb or 0.0
        return replace(
            self,
            booked_memory_gb=self.booked_memory_gb + memory,
            booked_cores=self.booked_cores + (booking.cores or 0.0),
            booked_gpus=self.booked_gpus + booking.gpus,
            unclaimed_gb=self.unclaimed_gb + max(memory - (booking.resident_gb or 0.0), 0.0),
            replicas=self.replicas + 1,
        )

    def without(self, booking: Booking) -> Room:
        """This room once one of its replicas has gone, and has given back what it was using."""
        memory, resident = booking.memory_gb or 0.0, booking.resident_gb or 0.0
        free = self.available_gb
        return replace(
            self,
            available_gb=None if free is None else free + resident,
            booked_memory_gb=self.booked_memory_gb - memory,
            booked_cores=self.booked_cores - (booking.cores or 0.0),
            booked_gpus=self.booked_gpus - booking.gpus,
            unclaimed_gb=self.unclaimed_gb - max(memory - resident, 0.0),
            replicas=self.replicas - 1,
        )


def book(rooms: Iterable[Room], bookings: Iterable[Booking]) -> dict[str, Room]:
    """Rooms by name with all bookings entered; those for unknown nodes are ignored."""
    by_name = {room.name: room for room in rooms}
    for booking in bookings:
        room = by_name.get(booking.node)
        if room is not None:
            by_name[booking.node] = room.with_booking(booking)
    return by_name
