"""Who serves a request: pure decisions over the table and the load. The clock is passed in.

``RoutingPolicy`` chooses among the candidates and sees the request, so that affinity can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

import msgspec

from llmgw_core.gateway.body import Ask
from llmgw_core.gateway.errors import unknown_model
from llmgw_core.gateway.table import RouteModel, Table, Target


@dataclass(slots=True)
class Load:
    """What the gateway knows of one target's load. Kept by the gateway's state."""

    outstanding: int = 0
    picked: int = 0
    """Sequence number of the last request that went there; 0 for never."""
    avoid_until: float = 0.0
    """Monotonic time until which others are preferred, because it failed."""


IDLE = Load()


def in_force(table: Table, before: Table) -> Table:
    """The table, with the targets of the one before for models of which nobody knows better yet.

    A controller that takes over a gateway in service learns only bit by bit what runs where.
    """
    known = {model.name: model for model in before.models}
    models = tuple(
        msgspec.structs.replace(model, targets=old.targets, state=old.state, reason=old.reason)
        if model.held and (old := known.get(model.name)) is not None
        else model
        for model in table.models
    )
    if not any(model.held for model in models):
        return table
    tunnels = {**before.tunnels, **table.tunnels}
    return msgspec.structs.replace(table, models=models, tunnels=tunnels)


class Directory:
    """A table, indexed by every name that a client may use."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.lost = frozenset(table.lost)
        self.names: dict[str, RouteModel] = {}
        for model in table.models:
            for alias in model.aliases:
                self.names.setdefault(alias, model)
        # a name always wins over an alias
        self.names.update((model.name, model) for model in table.models)
        self.targets: dict[str, Target] = {
            target.id: target for model in table.models for target in model.targets
        }

    def find(self, name: str) -> RouteModel | None:
        """The model of this name or alias."""
        return self.names.get(name)

    def resolve(self, name: str, shown: AbstractSet[str] | None = None) -> RouteModel:
        """The model of this name or alias.

        Args:
            name: as the client wrote it.
            shown: the only models that this client may hear of; None is all.

        Raises:
            ApiError: no model has it.
        """
        model = self.names.get(name)
        if model is None or (shown is not None and model.name not in shown):
            names = [model.name for model in self.table.models]
            raise unknown_model(name, [n for n in names if shown is None or n in shown])
        return model


class RoutingPolicy(Protocol):
    """Chooses one of the targets that may serve a request."""

    def pick(self, ask: Ask, candidates: Sequence[Target], loads: Mapping[str, Load]) -> Target:
        """One of ``candidates``, which holds at least one."""
        ...


class LeastOutstanding:
    """The target with the fewest requests in flight for its weight; among equals, in turn."""

    def pick(self, ask: Ask, candidates: Sequence[Target], loads: Mapping[str, Load]) -> Target:
        """One of ``candidates``, which holds at least one."""
        if len(candidates) == 1:
            return candidates[0]

        def cost(target: Target) -> tuple[float, int]:
            load = loads.get(target.id, IDLE)
            weight = target.weight if target.weight > 0 else 1e-6
            return (load.outstanding + 1) / weight, load.picked

        return min(candidates, key=cost)


def candidates(
    targets: Sequence[Target],
    loads: Mapping[str, Load],
    now: float,
    tried: AbstractSet[str] = frozenset(),
) -> list[Target]:
    """The targets that a request may go to now.

    Those it was tried on are out; those that failed a moment ago are out if others are left.
    """
    left = [target for target in targets if target.id not in tried]
    well = [target for target in left if loads.get(target.id, IDLE).avoid_until <= now]
    return well or left


def with_room(targets: Sequence[Target], loads: Mapping[str, Load]) -> list[Target]:
    """Those that work on fewer requests than they can."""
    return [
        target
        for target in targets
        if target.slots is None or loads.get(target.id, IDLE).outstanding < target.slots
    ]
