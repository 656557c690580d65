"""An imagined fleet out of JSON, for plans without one. Pure."""

from __future__ import annotations

import json

from llmgw_core.errors import InvalidInput
from llmgw_core.serve.plan import READY, FleetNode


def read_fleet(text: str) -> tuple[FleetNode, ...]:
    """The nodes of a fleet file: ``{"nodes": [{name, state, memory_gb, cores, engines, …}]}``.

    What is left out, or null, is unknown; a state left out is ready.

    Raises:
        InvalidInput: it is no such file.
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"the fleet file is no JSON: {error}") from error
    nodes = raw.get("nodes") if isinstance(raw, dict) else None
    if not isinstance(nodes, list):
        raise InvalidInput('a fleet file reads {"nodes": [{"name": …}, …]}')
    return tuple(_node(index, node) for index, node in enumerate(nodes))


def _node(index: int, raw: object) -> FleetNode:
    if not isinstance(raw, dict):
        raise InvalidInput(f"node {index + 1} of the fleet file is no table")
    engines = raw.get("engines")
    name = raw.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"node {index + 1} of the fleet file has no name")
    if engines is not None and not (
        isinstance(engines, list) and all(isinstance(engine, str) for engine in engines)
    ):
        raise InvalidInput(f"engines of {name} in the fleet file must be a list of names")
    gpus = _number(raw, name, "gpus_total")
    return FleetNode(
        name=name,
        state=str(raw.get("state") or READY),
        memory_gb=_number(raw, name, "memory_gb"),
        cores=_number(raw, name, "cores"),
        engines=None if engines is None else tuple(engines),
        gpus_total=None if gpus is None else int(gpus),
    )


def _number(raw: dict[str, object], name: str, key: str) -> float | None:
    value = raw.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidInput(f"{key} of {name} in the fleet file must be a number, 0 or more")
    return value
