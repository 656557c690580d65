"""Answers ``serve.plan``: looks at the weights, asks the fleet, fills the form."""

from __future__ import annotations

import time
import tomllib

import msgspec

from llmgw_core.api.serve_views import MeasuredView, ServePlanView, WhereView
from llmgw_core.catalog.model import Model
from llmgw_core.catalog.parse import parse_model
from llmgw_core.controller.core import Controller
from llmgw_core.controller.render import NodeSeen, gpu_class
from llmgw_core.controller.verdicts import ask_engines
from llmgw_core.mirror.inspect import look
from llmgw_core.mirror.looked import Looked
from llmgw_core.placement.place import place
from llmgw_core.placement.rooms import Weights
from llmgw_core.serve.plan import FleetNode
from llmgw_core.serve.view import Around, view_of

REMEMBER_S = 60.0
REMEMBER_MOST = 64
GIB = 1024**3


class Serving:
    """Serve plans for one controller; what was looked at is remembered for a minute."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._looked: dict[str, tuple[float, Looked]] = {}

    async def plan(self, source: str, typed: dict[str, str]) -> ServePlanView:
        """A plan for a source, with the fields that a person has typed so far.

        Raises:
            InvalidInput: the source says nothing, or there is no such field.
            NotFound: nothing is there.
            LlmgwError: it cannot be looked at.
        """
        looked = await self._look(source)
        seen = self._controller.observer.seen_nodes()
        name = looked.header.architecture if looked.header else ""
        opinion, _ = await ask_engines(name, seen, self._controller.fleet.nodes)
        around = self._around(seen)
        view = view_of(looked, typed, around, opinion)
        measured = self._measured(model_in(view.toml), looked)
        if measured is not None:
            view = view_of(looked, typed, around, opinion, measured)
        model = model_in(view.toml)
        where = self._where(model, view, looked) if model else None
        return msgspec.structs.replace(view, where=where)

    def _around(self, seen: list[NodeSeen]) -> Around:
        config, catalog = self._controller.config, self._controller.keeper.catalog
        classes = {gpu_class(n.config, n.facts) for n in seen if n.facts}
        return Around(
            fleet=tuple(map(fleet_node, seen)),
            declared={name for m in config.models for name in (m.name, *m.aliases)},
            added={name for m in catalog for name in (m.name, *m.aliases) if not m.declared},
            classes=tuple(c.name for c in config.classes),
            owners=tuple(o.name for o in config.owners),
            gpu_classes=tuple(sorted(c for c in classes if c)),
        )

    async def _look(self, source: str) -> Looked:
        text = source.strip()
        kept = self._looked.get(text)
        if kept is not None and time.monotonic() - kept[0] < REMEMBER_S:
            return kept[1]
        looked = await look(text, self._controller.places())
        while len(self._looked) >= REMEMBER_MOST:
            del self._looked[next(iter(self._looked))]
        if looked.version.complete or not looked.in_mirror:
            self._looked[text] = (time.monotonic(), looked)
        return looked

    def _measured(self, model: Model | None, looked: Looked) -> MeasuredView | None:
        """What a replica of this file with these settings really used, on any node's engine."""
        if model is None:
            return None
        facts = [seen.facts for seen in self._controller.observer.seen_nodes()]
        found = self._controller.peaks.of_model(model, looked.version, facts)
        if found is None:
            return None
        peak = found.peak
        return MeasuredView(peak.peak_gb, peak.node, peak.at, found.exact, peak.load_time_s)

    def _where(self, model: Model, view: ServePlanView, looked: Looked) -> WhereView:
        """What would happen with the first replica, by the code that places."""
        weights = self._weights(looked)
        rooms = self._controller.booked()
        placed, obstacles = place(model, rooms, weights)
        node = placed.nodes[0] if placed else None
        held = looked.on_nodes or tuple(n for n, r in rooms.items() if weights and r.holds(weights))
        fetch = 0 if node in held or weights is None else view.bytes
        return WhereView(
            node=node,
            why=placed.why if placed else "",
            obstacles=tuple((o.node or "", o.reason) for o in obstacles),
            held_by=held,
            fetch_bytes=fetch if node else None,
            load_time_s=self._load_time(model),
        )

    def _weights(self, looked: Looked) -> Weights | None:
        if looked.on_nodes:
            return None
        total = looked.version.bytes_total
        return Weights(looked.version.name, total / GIB if total else None)

    def _load_time(self, model: Model) -> float | None:
        """How long a replica with this source took to load, where one is known."""
        catalog = self._controller.keeper.catalog
        alike = {m.name for m in catalog if m.source == model.source}
        times = [r.load_time_s for r in self._controller.roster if r.model in alike]
        return max((t for t in times if t is not None), default=None)


def model_in(toml: str) -> Model | None:
    """The model of an entry's text; None where there is none."""
    if not toml:
        return None
    (raw,) = tomllib.loads(toml)["models"]
    return parse_model(raw, declared=False).model


def fleet_node(seen: NodeSeen) -> FleetNode:
    """A node as a serve plan looks at it."""
    facts = seen.facts
    if facts is None:
        return FleetNode(seen.config.name, seen.state.value)
    return FleetNode(
        name=seen.config.name,
        state=seen.state.value,
        memory_gb=facts.memory_gb,
        cores=facts.cores_logical,
        engines=None if facts.engines is None else tuple(e.name for e in facts.engines),
        gpus_total=None if facts.gpus is None else len(facts.gpus),
    )
