"""The catalog's values: what a model, a profile and a run mode are. Frozen; no I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

DEFAULT_IDLE_TIMEOUT_S = 15 * 60.0
DEFAULT_STARTUP_TIMEOUT_S = 20 * 60.0


class Mode(StrEnum):
    """The three run modes that people choose from."""

    ALWAYS = "always"
    ON_DEMAND = "ondemand"
    STOPPED = "stopped"


class RoutingProfile(StrEnum):
    """How the gateway picks among a model's replicas."""

    CHAT = "chat"
    BATCH = "batch"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True)
class Scaling:
    """How many replicas a model has: 0 ≤ min ≤ max, with max = 0 meaning stopped."""

    min: int = 0
    max: int = 1
    idle_timeout_s: float = DEFAULT_IDLE_TIMEOUT_S

    @property
    def mode(self) -> Mode:
        """The run mode that these numbers mean."""
        if self.min > 0:
            return Mode.ALWAYS
        return Mode.ON_DEMAND if self.max > 0 else Mode.STOPPED

    @classmethod
    def for_mode(
        cls, mode: Mode, replicas: int = 1, idle_timeout_s: float | None = None
    ) -> Scaling:
        """The numbers for a mode; a replica count below 1 counts as 1."""
        count = max(replicas, 1)
        idle = idle_timeout_s or DEFAULT_IDLE_TIMEOUT_S
        match mode:
            case Mode.ALWAYS:
                return cls(count, count, idle)
            case Mode.ON_DEMAND:
                return cls(0, count, idle)
            case Mode.STOPPED:
                return cls(0, 0, idle)


@dataclass(frozen=True, slots=True)
class Slo:
    """The latencies that a model promises, in seconds; None where nothing is promised."""

    ttft_p99_s: float | None = None
    tpot_p99_s: float | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """One way to run a model. Memory in GiB, times in seconds."""

    name: str
    engine: str = "vllm"
    gpu_class: str | None = None
    tp: int = 1
    pp: int = 1
    nodes: int = 1
    gpus_per_node: int = 0
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    weight: float = 1.0
    priority: int = 0
    startup_timeout_s: float = DEFAULT_STARTUP_TIMEOUT_S
    min_memory_gb: float | None = None
    cpu_cores: float | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)

    @property
    def on_cpu(self) -> bool:
        """Whether this profile computes on the processor alone."""
        return self.gpu_class is None

    def revision(self, source: str) -> str:
        """Eight hex digits over everything that makes a running engine differ.

        Weight and priority are left out: they steer routing and placement, not the process.
        """
        spec = asdict(replace(self, weight=1.0, priority=0, startup_timeout_s=0.0))
        spec["source"] = source
        text = json.dumps(spec, sort_keys=True, default=dict)
        return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Model:
    """A catalog entry that clients ask for by name or alias."""

    name: str
    source: str
    profiles: tuple[Profile, ...]
    aliases: tuple[str, ...] = ()
    description: str | None = None
    context_length: int | None = None
    max_output: int | None = None
    scaling: Scaling = Scaling()
    slo: Slo = Slo()
    fallbacks: tuple[str, ...] = ()
    routing_profile: RoutingProfile = RoutingProfile.CHAT
    model_class: str = "standard"
    owner: str | None = None
    declared: bool = True
    """Whether it stands in config.toml (changed there) or was added at run time."""
    changed_by: str | None = None
    changed_at: float | None = None
    """Who changed an added model last, and when (Unix seconds)."""

    def profile(self, name: str) -> Profile | None:
        """The profile of that name, or None."""
        return next((p for p in self.profiles if p.name == name), None)


@dataclass(frozen=True, slots=True)
class CatalogProblem:
    """One thing wrong with the catalog, and where."""

    message: str
    """One sentence naming model, profile and key where they are known."""
    file: str | None = None
    model: str | None = None
    profile: str | None = None
    key: str | None = None


class Catalog:
    """All models, in order of declaration; lookups by name first, then by alias."""

    def __init__(self, models: tuple[Model, ...] = ()) -> None:
        self.models = models
        self._by_name = {m.name: m for m in models}
        self._by_alias = {alias: m for m in models for alias in m.aliases}

    def __iter__(self) -> Iterator[Model]:
        return iter(self.models)

    def __len__(self) -> int:
        return len(self.models)

    def find(self, name: str) -> Model | None:
        """The model that clients mean by this name or alias, or None."""
        return self._by_name.get(name) or self._by_alias.get(name)

    def names(self) -> list[str]:
        """The models' names, sorted."""
        return sorted(self._by_name)
