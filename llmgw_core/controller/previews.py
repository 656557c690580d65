"""What a command would do, told before it is given: nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from llmgw_core.api.views import CommandResult
from llmgw_core.catalog.model import Model
from llmgw_core.controller.core import Controller
from llmgw_core.controller.foresee import (
    Foreseen,
    asked_of,
    foresee,
    headroom,
    of_change,
    with_node,
)
from llmgw_core.controller.replica_commands import ReplicaCommands
from llmgw_core.controller.world import Action, Asked, Kind, Pending, World
from llmgw_core.errors import InvalidInput, NotFound
from llmgw_core.nodes.facts import NodeState

Args = Mapping[str, Any]

_NODE_STATES = {
    "node.cordon": NodeState.CORDONED,
    "node.drain": NodeState.DRAINING,
    "node.uncordon": NodeState.READY,
}
_CATALOG = ("scale", "resources", "class", "add", "edit", "remove")
COUNTED_MOST = 20
"""Headroom is counted so far."""


class Previews:
    """Answers the command ``preview``."""

    def __init__(self, controller: Controller, replicas: ReplicaCommands) -> None:
        self._controller = controller
        self._replicas = replicas

    async def run(self, args: Args, actor: str) -> CommandResult:
        """What these commands, given together, would start and stop.

        Raises:
            InvalidInput: there is no preview of such a command.
            NotFound: what it is about is not there.
        """
        asked = args.get("commands")
        if not isinstance(asked, list | tuple) or not asked:
            raise InvalidInput("say which commands to preview")
        before = after = self._controller.world()
        for command in asked:
            name, given = str(command.get("name", "")), command.get("args") or {}
            after = self._changed(after, name, given, actor)
        # frozen values, and a while of reckoning: the loop goes on meanwhile
        was, will = await asyncio.to_thread(lambda: (foresee(before), foresee(after)))
        data = self._data(was, will)
        return CommandResult(_summary(data), {"plan": data})

    def _changed(self, world: World, name: str, args: Args, actor: str) -> World:
        why = f"{actor} asked for a {name}"
        if name == "restart":
            return asked_of(world, self._replicas.restarted(args), Asked.RESTART, why)
        if name == "stop":
            return asked_of(world, [self._replicas.replica(args)], Asked.STOP, why)
        if name in _NODE_STATES:
            node = str(args.get("name", ""))
            if node not in self._controller.fleet.nodes:
                raise NotFound(f"there is no node {node!r}")
            return with_node(world, node, _NODE_STATES[name])
        if name in _CATALOG:
            model = self._controller.keeper.preview(name, dict(args), actor)
            return self._controller.world(_with(world.models, model, gone=name == "remove"))
        raise InvalidInput(f"there is no preview of {name!r}")

    def _data(self, was: Foreseen, will: Foreseen) -> dict[str, Any]:
        change = of_change(was, will)
        before = {r.id: r.node for r in was.end.replicas}
        touched = {a.model for step in change.steps for a in step}
        left = {r.name for r in was.end.rooms} - {
            r.name for r in will.end.rooms if r in was.end.rooms
        }
        touched |= {r.model for r in was.end.replicas if before[r.id] in left}
        return {
            "actions": [
                self._action(action, number)
                for number, step in enumerate(change.steps, 1) for action in step
            ],
            "pending": [_pending(p) for p in change.pending],
            "headroom": {
                name: {"free": headroom(will.end, name, limit=COUNTED_MOST),
                       "before": headroom(was.end, name, limit=COUNTED_MOST)}
                for name in sorted(touched)
            },
            "settles": change.settled,
        }  # fmt: skip

    def _action(self, action: Action, step: int) -> dict[str, Any]:
        report = self._controller.gateway.report
        found = {t.id: t.outstanding for t in report.targets} if report else None
        stops = action.kind is Kind.STOP
        return {
            "step": step,
            "kind": str(action.kind),
            "replica": action.replica,
            "model": action.model,
            "profile": action.profile,
            "nodes": list(action.nodes),
            "why": action.why,
            "replaces": action.replaces,
            "in_flight": found.get(action.replica, 0) if found is not None and stops else None,
            "load_time_s": None if stops else self._load_time_s(action),
        }

    def _load_time_s(self, action: Action) -> float | None:
        """How long loading took last, by a replica of now, else by what was measured before."""
        controller = self._controller
        alike = [
            r for r in controller.roster
            if (r.model, r.profile) == (action.model, action.profile) and r.load_time_s is not None
        ]  # fmt: skip
        if alike:
            return max(alike, key=lambda r: (r.node in action.nodes, r.ready_at or 0.0)).load_time_s
        model = controller.keeper.catalog.find(action.model)
        if model is None:
            return None
        facts = (seen.facts for seen in controller.observer.seen_nodes())
        peak = controller.peaks.of_model(model, controller.weights.version(model), facts)
        return peak.peak.load_time_s if peak is not None else None


def _with(models: Iterable[Model], changed: Model, *, gone: bool) -> tuple[Model, ...]:
    if gone:
        return tuple(m for m in models if m.name != changed.name)
    kept = [changed if m.name == changed.name else m for m in models]
    return tuple(kept if changed in kept else [*kept, changed])


def _pending(item: Pending) -> dict[str, Any]:
    return {"model": item.model, "profile": item.profile, "node": item.node, "reason": item.reason}


def _summary(data: Mapping[str, Any]) -> str:
    """One sentence on all of it."""
    stops = [a for a in data["actions"] if a["kind"] == "stop"]
    starts = [a for a in data["actions"] if a["kind"] != "stop"]
    if not stops and not starts:
        return "no replica would be started or stopped"
    flights = [a["in_flight"] for a in stops]
    known = [count for count in flights if count is not None]
    text = f"{_counted(len(starts), 'replica')} would start, {len(stops)} would stop"
    if stops:
        total = str(sum(known)) if len(known) == len(flights) else "–"
        text += f", and {total} requests in flight would be finished first"
    return text


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
