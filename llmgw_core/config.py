"""The configuration's values. ``llmgw_core.config_file`` reads them from TOML.

Durations are seconds (``_s``), memory is GiB (``_gb``). Everything is frozen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from llmgw_core.catalog.model import Model


class DataPath(StrEnum):
    """How the gateway and the scraper reach engines on a node."""

    DIRECT = "direct"
    TUNNEL = "tunnel"


@dataclass(frozen=True, slots=True)
class Reserve:
    """What of a node is left to the node itself."""

    memory_gb: float = 0.0
    cores: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """One ``[[nodes]]`` entry."""

    name: str
    host: str = ""
    """Address, or an alias from ~/.ssh/config; the node's name where left out."""
    port: int | None = None
    user: str | None = None
    identity_file: str | None = None
    jump: str | None = None
    """Another node's name, or ``[user@]host[:port]``."""
    labels: Mapping[str, str] = field(default_factory=dict)
    gpu_class: str | None = None
    fabric: str | None = None
    serve_address: str | None = None
    """Where engines listen and are reached; the SSH host where left out."""
    port_range: tuple[int, int] = (18000, 18999)
    reserve: Reserve = Reserve()
    data_path: DataPath = DataPath.DIRECT
    local: bool = False
    state_dir: str | None = None
    """llmgw's directory on the node; ``$HOME/.local/state/llmgw`` where left out."""
    engines: Mapping[str, str] = field(default_factory=dict)
    """Paths of engine programs on the node, by engine name, where they are not on PATH."""


@dataclass(frozen=True, slots=True)
class ClassConfig:
    """A ``[[classes]]`` entry: what a model's capacity is worth."""

    name: str
    rank: int


DEFAULT_CLASSES = (
    ClassConfig("critical", 300),
    ClassConfig("standard", 200),
    ClassConfig("best-effort", 100),
)


@dataclass(frozen=True, slots=True)
class OwnerConfig:
    """An ``[[owners]]`` entry: quotas; None is unlimited."""

    name: str
    replicas: int | None = None
    gpus: int | None = None
    memory_gb: float | None = None
    cores: float | None = None
    requests_per_minute: int | None = None
    requests_per_day: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """``[gateway]``: the address that clients use."""

    host: str = "127.0.0.1"
    port: int = 8080
    drain_timeout_s: float = 60.0
    """How long running requests may take to finish when something is drained."""
    connect_timeout_s: float = 5.0
    first_byte_timeout_s: float = 600.0
    idle_timeout_s: float = 300.0
    """Longest gap between two chunks of an upstream's answer."""
    max_body_mb: float = 64.0


@dataclass(frozen=True, slots=True)
class MirrorConfig:
    """``[mirror]``: the store of weights, and how nodes reach it."""

    path: str | None = None
    """Folder of the store; ``mirror`` in the state directory where left out."""
    host: str = "127.0.0.1"
    """Where it listens. Nodes that cannot reach it have weights pushed over SSH."""
    port: int = 0
    """0 takes a free one."""
    url: str | None = None
    """The address that nodes fetch from, where it is not simply host and port."""
    rate_limit_mb_s: float | None = None
    """MB (10^6 bytes) a second that all fetches together may take."""
    hub_endpoint: str | None = None
    """A model hub other than huggingface.co; HF_ENDPOINT says it too."""


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """``[controller]``: how the loop behaves."""

    tick_s: float = 1.0
    node_grace_s: float = 60.0
    health_interval_s: float = 2.0
    health_timeout_s: float = 5.0
    unresponsive_s: float = 60.0
    """A live engine that answers nothing for this long is restarted."""


@dataclass(frozen=True, slots=True)
class ConsoleConfig:
    """``[console]``: how the screen looks."""

    theme: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    """Action id to key, replacing the built-in one."""


@dataclass(frozen=True, slots=True)
class Config:
    """One validated configuration file."""

    path: Path | None = None
    cluster: str = "llmgw"
    gateway: GatewayConfig = GatewayConfig()
    mirror: MirrorConfig = MirrorConfig()
    controller: ControllerConfig = ControllerConfig()
    console: ConsoleConfig = ConsoleConfig()
    nodes: tuple[NodeConfig, ...] = ()
    classes: tuple[ClassConfig, ...] = DEFAULT_CLASSES
    owners: tuple[OwnerConfig, ...] = ()
    models: tuple[Model, ...] = ()

    def rank(self, model_class: str) -> int | None:
        """The rank of a class, or None where there is no such class."""
        return next((c.rank for c in self.classes if c.name == model_class), None)
