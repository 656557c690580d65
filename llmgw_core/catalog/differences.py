"""What a reload changes: old and new values in, names of the same and the different out. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from llmgw_core.catalog.model import Catalog, Model
from llmgw_core.config import NodeConfig

Thing = TypeVar("Thing", Model, NodeConfig)


@dataclass(frozen=True, slots=True)
class Difference(Generic[Thing]):
    """By name: what came, what went, what is different now (old, new), and what is the same.

    ``unchanged`` holds the new values, which equal the old ones.
    """

    added: tuple[Thing, ...] = ()
    removed: tuple[Thing, ...] = ()
    changed: tuple[tuple[Thing, Thing], ...] = ()
    unchanged: tuple[Thing, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing is different."""
        return not (self.added or self.removed or self.changed)


CatalogDiff = Difference[Model]
NodesDiff = Difference[NodeConfig]


def diff_models(old: Catalog, new: Catalog) -> CatalogDiff:
    """What of the catalog differs. Who changed a model, and when, makes no difference."""
    return _difference(
        [replace(m, changed_by=None, changed_at=None) for m in old],
        [replace(m, changed_by=None, changed_at=None) for m in new],
    )


def diff_nodes(old: Iterable[NodeConfig], new: Iterable[NodeConfig]) -> NodesDiff:
    """What of the fleet's configuration differs."""
    return _difference(old, new)


def _difference(old: Iterable[Thing], new: Iterable[Thing]) -> Difference[Thing]:
    before = {thing.name: thing for thing in old}
    after = {thing.name: thing for thing in new}
    both = [(before[name], thing) for name, thing in after.items() if name in before]
    return Difference(
        added=tuple(thing for name, thing in after.items() if name not in before),
        removed=tuple(thing for name, thing in before.items() if name not in after),
        changed=tuple((was, now) for was, now in both if was != now),
        unchanged=tuple(now for was, now in both if was == now),
    )
