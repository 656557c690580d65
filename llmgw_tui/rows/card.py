"""What stands on the cards of nodes, replicas and models. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llmgw_core.api.views import (
    EngineView,
    EventView,
    ModelView,
    NodeView,
    ProfileView,
    ReplicaView,
    Snapshot,
)
from llmgw_core.catalog.durations import format_duration
from llmgw_tui.rows import amounts, words
from llmgw_tui.rows.mirror import weights_of
from llmgw_tui.rows.parts import Part, stated

EVENTS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Line:
    """A label and what stands beside it; without a label the whole width."""

    label: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """A curve on a fixed scale, drawn as wide as there is room."""

    label: str
    values: tuple[float | None, ...]
    high: float
    now: str


@dataclass(frozen=True, slots=True)
class Grid:
    """A line of cells under those of the lines above it."""

    cells: tuple[tuple[Part, int], ...]
    """Each with its width; a negative one is aligned to the right, 0 takes the room left."""


@dataclass(frozen=True, slots=True)
class Section:
    """A titled part of a card."""

    title: str
    lines: tuple[Line | Plot | Grid, ...]


def entry(label: str, *texts: str | Part) -> Line:
    """A label and what stands beside it."""
    return Line(label, tuple(Part(t) if isinstance(t, str) else t for t in texts))


def _since(since: float, now: float) -> str:
    if not since:
        return ""
    return f"  for {words.span(now - since)}, since {words.day_and_clock(since, now)}"


def _retry(retry_at: float | None, now: float) -> str:
    return (
        "" if retry_at is None or retry_at <= now else f"  next try in {words.span(retry_at - now)}"
    )


def node_card(
    node: NodeView, snapshot: Snapshot, events: Iterable[EventView], now: float, ascii_only: bool
) -> list[Section]:
    """Everything known about a node."""
    mark = words.mark_of(words.NODE_MARKS, node.state)
    status = [
        entry("state", stated(mark, node.state, ascii_only), Part(_since(node.since, now), "muted"),
              Part(_retry(node.retry_at, now), "muted")),
        *([entry("why", Part(node.reason, mark.style))] if node.reason else []),
        entry("address", node.host, Part("  this machine" if node.local else "", "muted")),
        entry("link", f"round trip {words.millis(node.rtt_s)}"),
    ]  # fmt: skip
    if node.holder:
        status.append(entry("led by", node.holder))
    if node.fingerprint:
        status.append(entry("host key", node.fingerprint))
    if node.old_fingerprint:
        status.append(entry("known key", node.old_fingerprint))
    return [
        Section("Status", tuple(status)),
        Section("Machine", tuple(_machine(node))),
        *_gpus(node),
        Section("Load", tuple(_load(node))),
        Section("Replicas here", _replicas(
            [r for r in snapshot.replicas if node.name in r.nodes], ascii_only,
            "None. Models are placed here when their labels, memory and cores fit.")),
        events_section([e for e in events if e.node == node.name], now),
    ]  # fmt: skip


def _machine(node: NodeView) -> list[Line]:
    engines = "unknown" if node.engines is None else (
        ", ".join(_engine(engine) for engine in node.engines)
        or "none found: :provision installs one")  # fmt: skip
    labels = "  ".join(f"{k}={v}" for k, v in sorted(node.labels.items()))
    return [
        entry("system", f"{node.os or words.UNKNOWN}  {node.arch or ''}"),
        entry("cores", f"{words.number(node.cores_booked)} of {words.number(node.cores)} reserved"),
        entry("memory", f"{words.gib(node.memory_booked_gb)} of {words.gib(node.memory_gb)} GiB "
              f"reserved, {words.gib(node.memory_free_gb)} available"),
        entry("disk", f"{words.gib(node.disk_free_gb)} GiB free"),
        entry("engines", engines),
        entry("labels", labels or "none"),
        entry("fabric", node.fabric or "none"),
        entry("clock", f"off by {words.millis(node.clock_skew_s)}"),
    ]  # fmt: skip


def _engine(engine: EngineView) -> str:
    version = f" {engine.version}" if engine.version else ""
    return f"{engine.name} ({engine.kind}{version})"


def _gpus(node: NodeView) -> list[Section]:
    if not node.gpus:
        return []
    lines = [
        entry(str(gpu.index), gpu.name,
              f"  {words.gib(gpu.memory_used_gb)} of {words.gib(gpu.memory_gb)} GiB"
              f"  {words.share(gpu.utilization)}",
              Part("  unhealthy", "failed") if gpu.healthy is False else "")
        for gpu in node.gpus
    ]  # fmt: skip
    return [Section(f"GPUs  {node.gpu_class or ''}", tuple(lines))]


def _load(node: NodeView) -> list[Line | Plot]:
    return [
        Plot("CPU", node.cpu_history, 1.0, words.share(node.cpu)),
        entry("load", words.number(node.load1, 1)),
    ]


def _replicas(replicas: list[ReplicaView], ascii_only: bool, none: str) -> tuple[Line, ...]:
    if not replicas:
        return (entry("", Part(none, "muted")),)
    return tuple(_replica_line(replica, ascii_only) for replica in replicas)


def _replica_line(replica: ReplicaView, ascii_only: bool) -> Line:
    mark = words.mark_of(words.REPLICA_MARKS, replica.state)
    notes = [f"on {', '.join(replica.nodes) or 'no node'}"]
    if replica.tokens_per_s is not None:
        notes.append(f"{words.number(replica.tokens_per_s)} tok/s")
    if replica.reason:
        notes.append(replica.reason)
    state = stated(mark, state_words(replica), ascii_only)
    return entry(replica.id, state, Part("  " + "  ".join(notes), "muted"))


def state_words(replica: ReplicaView) -> str:
    """A replica's state, with how far it is."""
    share = replica.progress
    if replica.state == "fetching":
        if share is None:
            share = amounts.share_of(replica.fetched_bytes, replica.fetch_bytes)
        share = None if share is None else min(share, amounts.MOST_UNDER_WAY)
    return replica.state if share is None else f"{replica.state} {words.share(share)}"


def fetch_words(replica: ReplicaView, *, short: bool = False) -> str:
    """How a fetch of weights onto the node goes; empty where none does or nothing is known."""
    if replica.state != "fetching" or replica.fetched_bytes is None:
        return ""
    done, total, rate = replica.fetched_bytes, replica.fetch_bytes, replica.fetch_rate
    return amounts.under_way(done, total, rate, short=short)


def replica_card(
    replica: ReplicaView, events: Iterable[EventView], now: float, ascii_only: bool
) -> list[Section]:
    """Everything known about a replica."""
    mark = words.mark_of(words.REPLICA_MARKS, replica.state)
    status = [
        entry("state", stated(mark, state_words(replica), ascii_only),
              Part(_since(replica.since, now) + _retry(replica.retry_at, now), "muted")),
        *([entry("why", Part(replica.reason, mark.style))] if replica.reason else []),
        *([entry("fetched", fetched)] if (fetched := fetch_words(replica)) else []),
        entry("model", f"{replica.model}  profile {replica.profile}"),
        entry("node", ", ".join(replica.nodes) or "not placed"),
        *([entry("failures", str(replica.failures))] if replica.failures else []),
    ]  # fmt: skip
    record = [
        entry("process", f"pid {_known(replica.pid)}   port {_known(replica.port)}   "
              f"exit status {_known(replica.exit_status)}"),
        entry("revision", replica.revision or words.UNKNOWN),
        entry("loaded in", words.millis(replica.load_time_s)),
        entry("memory", f"{words.gib(replica.memory_gb)} GiB resident",
              Part(f"   {words.gib(replica.peak_gb)} at most so far", "muted")),
    ]  # fmt: skip
    sections = [
        Section("Status", tuple(status)), Section("Requests", _work(replica)),
        Section("Record", tuple(record)), Section("Command", _argv(replica.argv)),
    ]  # fmt: skip
    if replica.log_tail:
        tail = replica.log_tail.splitlines()[-20:]
        sections.append(Section("Last lines of its log", tuple(entry("", text) for text in tail)))
    sections.append(events_section([e for e in events if e.replica == replica.id], now))
    return sections


def _known(value: int | None) -> str:
    return words.UNKNOWN if value is None else str(value)


def _work(replica: ReplicaView) -> tuple[Line | Plot, ...]:
    return (
        entry("requests", f"running {words.number(replica.running)}   waiting "
              f"{words.number(replica.waiting)}   from the gateway "
              f"{words.number(replica.outstanding)}"),
        entry("KV cache", words.share(replica.kv_usage)),
        Plot("tokens/s", replica.tokens_history, scale_for(replica.tokens_history),
             words.number(replica.tokens_per_s)),
        entry("prompt/s", words.number(replica.prompt_tokens_per_s)),
    )  # fmt: skip


def _argv(argv: tuple[str, ...]) -> tuple[Line, ...]:
    """One option with its value on a line."""
    if not argv:
        return (entry("", Part("Not started yet.", "muted")),)
    lines: list[list[str]] = []
    for word in argv:
        if not lines or word.startswith("-") or len(lines[-1]) > 1 or len(lines) == 1:
            lines.append([word])
        else:
            lines[-1].append(word)
    return tuple(
        entry("", ("" if i == 0 else "  ") + " ".join(line)) for i, line in enumerate(lines)
    )


def model_card(
    model: ModelView, snapshot: Snapshot, events: Iterable[EventView], now: float, ascii_only: bool
) -> list[Section]:
    """Everything known about a model."""
    mark = words.mark_of(words.MODEL_MARKS, model.state)
    origin = (
        "declared in the configuration: changed there" if model.declared else "added at run time"
    )
    status = [
        entry("state", stated(mark, model.state or words.UNKNOWN, ascii_only)),
        *([entry("why", Part(model.reason, mark.style))] if model.reason else []),
        entry("runs", words.mode_words(model.mode, model.scaling.min, model.scaling.max),
              Part(f"   {model.replicas.ready} of {model.replicas.total} replicas ready", "muted")),
        entry("headroom", f"{words.number(model.headroom.free)} more fit now, "
              f"{words.number(model.headroom.by_preemption)} by preemption"),
        entry("catalog", origin, Part(_changed(model, now), "muted")),
        *memory_of(model),
        *(entry(" " if i % 2 else "weights", *parts)
          for i, parts in enumerate(weights_of(model.name, snapshot.mirror, ascii_only))),
    ]  # fmt: skip
    high = scale_for(model.tokens_history)
    work = (
        Plot("tokens/s", model.tokens_history, high, words.number(model.tokens_per_s)),
        Plot("running", model.running_history, scale_for(model.running_history, 8),
             words.number(model.running)),
        Plot("waiting", model.waiting_history, scale_for(model.waiting_history, 8),
             words.number(model.waiting)),
        entry("requests", f"{words.number(model.requests_total)} since the gateway started"),
    )  # fmt: skip
    own = [r for r in snapshot.replicas if r.model == model.name]
    return [
        Section("Status", tuple(status)),
        Section("Requests", work),
        Section("Replicas", _replicas(own, ascii_only, model.reason or "None.")),
        Section("Specification", tuple(entry("", text) for text in model_toml(model))),
        events_section([e for e in events if e.model == model.name], now),
    ]


def memory_of(model: ModelView) -> list[Line]:
    """What one replica needs: reserved, reckoned, and measured where one ran."""
    reserved = model.profiles[0].min_memory_gb if model.profiles else None
    if reserved is None and model.estimate_gb is None and model.measured_gb is None:
        return []
    lines = [
        entry("memory", f"reserved {words.gib(reserved)} GiB",
              Part(f"   estimate {words.gib(model.estimate_gb)}   "
                   f"measured {words.gib(model.measured_gb)}", "muted"))
    ]  # fmt: skip
    summands = model.memory_basis.split(" + ") if model.memory_basis else []
    for number, text in enumerate(summands):
        lines.append(entry(" ", Part(f"{'+' if number else '='} {text}", "muted")))
    return lines


def _changed(model: ModelView, now: float) -> str:
    if model.changed_at is None:
        return ""
    return f"   last changed by {model.changed_by or '?'} {words.age(model.changed_at, now)} ago"


def model_toml(model: ModelView) -> list[str]:
    """The model as it could stand in the configuration."""
    lines = ["[[models]]", f"name = {_toml(model.name)}"]
    for key, value in (
        ("aliases", model.aliases), ("description", model.description),
        ("context_length", model.context_length), ("max_output", model.max_output),
        ("source", model.source), ("fallbacks", model.fallbacks),
        ("routing_profile", model.routing_profile), ("class", model.model_class),
        ("owner", model.owner),
    ):  # fmt: skip
        if value is not None and value != ():
            lines.append(f"{key} = {_toml(value)}")
    idle = format_duration(model.scaling.idle_timeout_s)
    scaling = f'min = {model.scaling.min}, max = {model.scaling.max}, idle_timeout = "{idle}"'
    lines.append(f"scaling = {{ {scaling} }}")
    promised = [
        f'{key} = "{format_duration(value)}"'
        for key, value in (("ttft_p99", model.slo.ttft_p99_s), ("tpot_p99", model.slo.tpot_p99_s))
        if value is not None
    ]
    if promised:
        lines.append(f"slo = {{ {', '.join(promised)} }}")
    for profile in model.profiles:
        lines += ["", *_profile_toml(profile)]
    return lines


def _profile_toml(profile: ProfileView) -> list[str]:
    lines = ["[[models.profiles]]"]
    for key, value in (
        ("name", profile.name), ("engine", profile.engine), ("gpu_class", profile.gpu_class),
        ("tp", profile.tp if profile.gpu_class else None),
        ("pp", profile.pp if profile.gpu_class else None),
        ("nodes", profile.nodes if profile.nodes > 1 else None),
        ("gpus_per_node", profile.gpus_per_node or None), ("args", profile.args),
        ("env", profile.env), ("weight", profile.weight), ("priority", profile.priority),
        ("startup_timeout", format_duration(profile.startup_timeout_s)),
        ("min_memory_gb", profile.min_memory_gb), ("cpu_cores", profile.cpu_cores),
        ("node_selector", profile.node_selector),
    ):  # fmt: skip
        if value is not None and value != () and value != {}:
            lines.append(f"{key} = {_toml(value)}")
    return lines


def _toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case float():
            return f"{value:g}"
        case tuple():
            return "[" + ", ".join(_toml(item) for item in value) + "]"
        case dict():
            return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    return str(value)


def scale_for(values: Iterable[float | None], least: float = 10) -> float:
    """The top of a curve's scale: the next of 1, 2, 5, 10… above all values, so that it rests."""
    high = max((v for v in values if v is not None), default=0.0)
    step = least
    factors = (2.0, 2.5, 2.0)
    i = 0
    while step < high and i < 60:
        step *= factors[i % 3]
        i += 1
    return step


def events_section(events: list[EventView], now: float) -> Section:
    """What happened to the thing, newest first."""
    newest = list(reversed(events))[:EVENTS_SHOWN]
    if not newest:
        return Section("Events", (entry("", Part("None yet.", "muted")),))
    return Section("Events", tuple(
        entry(words.clock(e.time), Part(e.text, severity_style(e.severity)),
              Part(f"  by {e.actor}" if e.actor != "controller" else "", "muted"))
        for e in newest
    ))  # fmt: skip


def severity_style(severity: str) -> str:
    """The style of an event's text."""
    return {"warning": "loading", "error": "failed"}.get(severity, "")
