"""What faces see: one immutable snapshot of everything, and events.

Sent over the socket as JSON (msgspec) and used as they are in the console. Keys ending in ``_s``
are seconds, in ``_gb`` GiB; ``since`` and ``time`` are Unix seconds. None is unknown, shown as –.
"""

from __future__ import annotations

from typing import Any

import msgspec


class EngineView(msgspec.Struct, frozen=True):
    """An engine found on a node."""

    name: str
    kind: str
    version: str | None = None
    path: str = ""


class GpuView(msgspec.Struct, frozen=True):
    """One GPU."""

    index: int
    name: str
    memory_gb: float | None = None
    memory_used_gb: float | None = None
    utilization: float | None = None
    healthy: bool | None = None


class NodeView(msgspec.Struct, frozen=True):
    """One row of the fleet."""

    name: str
    host: str
    state: str
    reason: str = ""
    since: float = 0.0
    retry_at: float | None = None
    local: bool = False
    cores: float | None = None
    cores_booked: float | None = None
    memory_gb: float | None = None
    memory_free_gb: float | None = None
    """Available as measured now."""
    memory_booked_gb: float | None = None
    """Reserved by replicas placed here."""
    cpu: float | None = None
    """Busy share, 0 to 1."""
    cpu_history: tuple[float | None, ...] = ()
    """One value per sample, oldest first, about 2 s apart."""
    load1: float | None = None
    gpu_class: str | None = None
    gpus_total: int | None = None
    gpus_free: int | None = None
    gpus: tuple[GpuView, ...] = ()
    engines: tuple[EngineView, ...] | None = None
    labels: dict[str, str] = {}
    fabric: str | None = None
    replicas: int = 0
    rtt_s: float | None = None
    os: str | None = None
    arch: str | None = None
    disk_free_gb: float | None = None
    clock_skew_s: float | None = None
    fingerprint: str | None = None
    old_fingerprint: str | None = None
    holder: str | None = None
    """The other controller that leads the node, in words; None where there is none."""


class ReplicaView(msgspec.Struct, frozen=True):
    """One running (or wanted) copy of a model."""

    id: str
    model: str
    profile: str
    nodes: tuple[str, ...]
    state: str
    """pending, fetching, starting, loading, ready, draining, stopping, stopped, failed, unknown."""
    reason: str = ""
    since: float = 0.0
    progress: float | None = None
    """Of fetching or loading, 0 to 1."""
    fetched_bytes: int | None = None
    """While it fetches: what lies on the node, of ``fetch_bytes``, at ``fetch_rate`` a second."""
    fetch_bytes: int | None = None
    fetch_rate: float | None = None
    port: int | None = None
    pid: int | None = None
    revision: str | None = None
    exit_status: int | None = None
    log_tail: str | None = None
    """Where it failed: the last lines of its log."""
    failures: int = 0
    retry_at: float | None = None
    argv: tuple[str, ...] = ()
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    outstanding: int | None = None
    """Requests in flight as the gateway counts them."""
    memory_gb: float | None = None
    """Resident memory of the engine, measured."""
    peak_gb: float | None = None
    """The most that this run has used so far."""
    load_time_s: float | None = None
    tokens_history: tuple[float | None, ...] = ()


class ProfileView(msgspec.Struct, frozen=True):
    """A profile as the catalog has it, normalised."""

    name: str
    engine: str
    gpu_class: str | None
    tp: int
    pp: int
    nodes: int
    gpus_per_node: int
    args: tuple[str, ...]
    env: dict[str, str]
    """Values of variables that look like secrets are shown as ``•••``."""
    weight: float
    priority: int
    startup_timeout_s: float
    min_memory_gb: float | None
    cpu_cores: float | None
    node_selector: dict[str, str]


class ScalingView(msgspec.Struct, frozen=True):
    """Run mode in numbers."""

    min: int
    max: int
    idle_timeout_s: float


class ReplicaCount(msgspec.Struct, frozen=True):
    """Replicas of a model: ready of total."""

    ready: int
    total: int


class Headroom(msgspec.Struct, frozen=True):
    """How many more replicas would fit now."""

    free: int | None = None
    by_preemption: int | None = None


class SloView(msgspec.Struct, frozen=True):
    """Promised latencies."""

    ttft_p99_s: float | None = None
    tpot_p99_s: float | None = None


class ModelView(msgspec.Struct, frozen=True, rename={"model_class": "class"}):
    """One row of the catalog."""

    name: str
    aliases: tuple[str, ...]
    mode: str
    scaling: ScalingView
    model_class: str
    owner: str | None
    replicas: ReplicaCount
    headroom: Headroom
    profiles: tuple[ProfileView, ...]
    declared: bool
    source: str
    description: str | None = None
    context_length: int | None = None
    max_output: int | None = None
    slo: SloView = SloView()
    fallbacks: tuple[str, ...] = ()
    routing_profile: str = "chat"
    state: str = ""
    """A word for the row: ready, starting, failed, pending, stopped, on demand."""
    reason: str = ""
    """Why it is not what was asked for; empty where it is."""
    running: int | None = None
    waiting: int | None = None
    tokens_per_s: float | None = None
    requests_total: int | None = None
    tokens_history: tuple[float | None, ...] = ()
    running_history: tuple[float | None, ...] = ()
    waiting_history: tuple[float | None, ...] = ()
    changed_by: str | None = None
    changed_at: float | None = None
    architecture: str = ""
    """Of the weights' header; empty where nobody has looked."""
    estimate_gb: float | None = None
    """What a replica will use by the formula."""
    memory_basis: str = ""
    measured_gb: float | None = None
    """The most that a replica of these weights with these settings really used."""


class GatewayView(msgspec.Struct, frozen=True):
    """The gateway process."""

    state: str
    """starting, serving, draining, down."""
    address: str | None = None
    pid: int | None = None
    requests_per_s: float | None = None
    requests_total: int | None = None
    open_connections: int | None = None
    reason: str = ""


class MirrorFileView(msgspec.Struct, frozen=True):
    """One file of a version; sizes in bytes, rate in bytes a second."""

    file: str
    bytes_done: int
    bytes_total: int | None
    state: str
    """waiting, fetching, checking, done, failed, damaged."""
    sha256: str | None = None
    rate: float | None = None
    error: str = ""


class MirrorVersionView(msgspec.Struct, frozen=True):
    """One version of a model's weights in the mirror."""

    model: str
    version: str
    files: tuple[MirrorFileView, ...]
    source: str = ""
    revision: str = ""
    state: str = "done"
    """pulling, done, failed, damaged, incomplete."""
    bytes_done: int = 0
    bytes_total: int | None = None
    rate: float | None = None
    error: str = ""
    created: float | None = None
    used_by: tuple[str, ...] = ()
    """Models of the catalog that need it."""
    nodes: tuple[str, ...] = ()
    """Nodes that hold it whole."""


class MirrorView(msgspec.Struct, frozen=True):
    """The mirror: its process, its disk, and what it holds."""

    state: str = "down"
    """starting, serving, down."""
    address: str | None = None
    pid: int | None = None
    root: str = ""
    disk_free_gb: float | None = None
    versions: tuple[MirrorVersionView, ...] = ()
    reason: str = ""


class ControllerView(msgspec.Struct, frozen=True):
    """Who runs this cluster."""

    mode: str
    """``console`` or ``daemon``."""
    pid: int
    host: str
    started: float
    version: str = ""
    config_file: str | None = None
    state_dir: str = ""
    loop_lag_s: float | None = None
    tick_s: float | None = None
    """How long the last tick took."""
    config_errors: tuple[str, ...] = ()
    """Where a reload failed: the sentences; the old configuration stays in force."""
    frozen: str = ""
    """Why replicas on nodes that are away are not replaced: this machine itself is suspected."""


class Snapshot(msgspec.Struct, frozen=True):
    """Everything at one moment. ``version`` grows with every change."""

    version: int
    time: float
    cluster: str
    controller: ControllerView
    gateway: GatewayView
    nodes: tuple[NodeView, ...] = ()
    replicas: tuple[ReplicaView, ...] = ()
    models: tuple[ModelView, ...] = ()
    mirror: MirrorView = MirrorView()


class EventView(msgspec.Struct, frozen=True):
    """Something that happened, who did it and why: ``text`` is plain, one sentence."""

    seq: int
    time: float
    kind: str
    """A constant dotted name: ``replica.ready``, ``node.unreachable``, ``model.scaled``…"""
    text: str
    actor: str = "controller"
    severity: str = "info"
    """info, warning, error."""
    node: str | None = None
    model: str | None = None
    replica: str | None = None


class Command(msgspec.Struct, frozen=True):
    """One change that a person or script asks for."""

    name: str
    """See ``llmgw_core.api.commands``."""
    args: dict[str, Any] = {}
    actor: str = "you"


class CommandResult(msgspec.Struct, frozen=True):
    """What came of it: ``text`` is one sentence, ``data`` what ``--json`` prints."""

    text: str
    data: Any = None


class ErrorBody(msgspec.Struct, frozen=True):
    """An error over the socket (see ``errors.BY_CODE``)."""

    code: str
    message: str


class LogLines(msgspec.Struct, frozen=True):
    """A batch of log lines (plain text, no newline at the end)."""

    lines: tuple[str, ...]
