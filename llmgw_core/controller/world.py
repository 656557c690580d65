"""What a plan is made from and what it says. Frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llmgw_core.catalog.model import Model
from llmgw_core.controller.replica import Phase, Replica
from llmgw_core.placement.rooms import Booking, Room, Weights


@dataclass(frozen=True, slots=True)
class Demand:
    """What clients want of a model: requests now, and seconds since the last one ended or asked."""

    running: int = 0
    waiting: int = 0
    idle_s: float | None = None
    """None where nobody has asked yet."""


class Asked(StrEnum):
    """What a person may ask of one run of a replica."""

    RESTART = "restart"
    """To be replaced: its successor comes first where there is room."""
    STOP = "stop"
    """To end, whoever takes its place."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What a person asked of one run of a replica; it is kept until that run has ended."""

    replica: str
    asked: Asked
    why: str
    """A few words for events: ``anna asked for a restart``."""
    at: float = 0.0
    """Unix seconds."""


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
    contents: Mapping[str, str] = field(default_factory=dict)
    """By model: the content of the weights that a replica started now would load (see
    ``Replica.content``). Models lack of which it is not known."""
    marks: Mapping[str, Mark] = field(default_factory=dict)
    """What was asked of replicas, by their run (``Replica.run``)."""


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
    replaces: str = ""
    """For a start: the replica that goes once this one is ready; empty where none does."""


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

    @property
    def fenced(self) -> frozenset[str]:
        """Replicas that take no new request from now on: those that are to stop.

        Here and not only where the stop is carried out: one of an old revision that has just come
        back with its node must not be asked anything while its stop is still to begin.
        """
        return frozenset(a.replica for a in self.actions if a.kind is Kind.STOP)

    def pending_reason(self, model: str) -> str:
        """One sentence on why this model lacks a replica; empty where it lacks none."""
        mine = [item for item in self.pending if item.model == model]
        return "; ".join(
            f"{item.node}: {item.reason}" if item.node else item.reason for item in mine[:4]
        ) + (f"; and {len(mine) - 4} more" if len(mine) > 4 else "")


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
