"""What ``serve.plan`` answers: the plan, the form that it fills, and what would happen.

Keys ending in ``_gb`` are GiB, in ``_bytes`` bytes, in ``_s`` seconds; None is unknown.
"""

from __future__ import annotations

import msgspec


class MemoryPartView(msgspec.Struct, frozen=True):
    """One summand of the estimate."""

    name: str
    """weights, kv, state, engine, prompt_cache, checkpoints, mmproj."""
    bytes: int
    text: str


class MeasuredView(msgspec.Struct, frozen=True):
    """What a replica of this file with these settings really used."""

    peak_gb: float
    node: str
    at: float
    exact: bool = True
    """False where another build of the engine, or other devices, used it."""
    load_time_s: float | None = None


class WhereView(msgspec.Struct, frozen=True):
    """What would happen with the first replica."""

    node: str | None
    """Where it would go; None where it fits nowhere."""
    why: str = ""
    obstacles: tuple[tuple[str, str], ...] = ()
    """Node and reason, for each that cannot take it."""
    held_by: tuple[str, ...] = ()
    """Nodes that hold the weights already."""
    evicts: tuple[str, ...] = ()
    fetch_bytes: int | None = None
    """What the chosen node would have to fetch; 0 where it has all."""
    load_time_s: float | None = None
    """How long a load took before, there or on another node."""


class ServePlanView(msgspec.Struct, frozen=True):
    """A serve plan with everything that a dialog shows."""

    model: str
    version: str
    source: str
    engine: str
    profile: str
    files: int
    ctx_pool: int
    min_memory_gb: int
    memory_basis: str
    cpu_cores: int
    refusal: str
    warning: str
    already: bool
    bytes: int | None = None
    parallel: int = 4
    unified: bool = True
    kv_type: str = "f16"
    slot_context: int | None = None
    """Tokens that one client may use while others are idle."""
    context_length: int | None = None
    """What the model was trained for."""
    cores_basis: str = ""
    parts: tuple[MemoryPartView, ...] = ()
    architecture: str = ""
    file_type: str = ""
    parameters: int | None = None
    in_mirror: bool = False
    engine_nodes: tuple[str, ...] = ()
    """Nodes that have the engine."""
    measured: MeasuredView | None = None
    where: WhereView | None = None
    """None where no controller was asked."""
    form: dict[str, str] = {}
    """The fields as they are now: what was typed, else what the plan fills in."""
    filled: dict[str, str] = {}
    """The fields as the plan fills them."""
    problems: dict[str, str] = {}
    """What is wrong with fields, by field."""
    toml: str = ""
    """The catalog entry; empty while there are problems."""
    classes: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    gpu_classes: tuple[str, ...] = ()
