"""From the controller's state to the snapshot that faces see. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from llmgw_core.api.views import (
    EngineView,
    GpuView,
    Headroom,
    ModelView,
    NodeView,
    ReplicaCount,
    ReplicaView,
)
from llmgw_core.catalog.model import Model
from llmgw_core.catalog.normalise import view
from llmgw_core.config import NodeConfig
from llmgw_core.controller.replica import Phase, Replica
from llmgw_core.controller.routes import model_state
from llmgw_core.controller.watch import Numbers, Watched
from llmgw_core.controller.weights_handle import Fetched
from llmgw_core.nodes.cautions import cannot_start, cautions
from llmgw_core.nodes.facts import Facts, GpuFacts, HostSample, NodeState, NodeStatus
from llmgw_core.placement.rooms import Room

HISTORY = 60
"""Values of a series that a snapshot carries."""


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node as the controller sees it at one moment."""

    config: NodeConfig
    status: NodeStatus
    state: NodeState
    """The link's state, or the cordon over it."""
    facts: Facts | None
    sample: HostSample | None
    cpu_history: tuple[float | None, ...]


def node_view(seen: NodeSeen, room: Room | None) -> NodeView:
    """A node's row; ``room`` has what is booked on it."""
    facts, sample, status = seen.facts or Facts(), seen.sample, seen.status
    gpus = (sample.gpus if sample and sample.gpus is not None else facts.gpus) or ()
    free = sample.memory_available_gb if sample else facts.memory_available_gb
    return NodeView(
        name=seen.config.name,
        host=seen.config.host or "this machine",
        state=seen.state.value,
        reason=status.reason or "; ".join(_cautions(seen)),
        since=status.since,
        retry_at=status.retry_at,
        local=seen.config.local,
        cores=facts.cores_logical,
        cores_booked=room.booked_cores if room else None,
        memory_gb=facts.memory_gb,
        memory_free_gb=free,
        memory_booked_gb=room.booked_memory_gb if room else None,
        cpu=sample.cpu if sample else None,
        cpu_history=seen.cpu_history[-HISTORY:],
        load1=sample.load1 if sample else None,
        gpu_class=gpu_class(seen.config, facts),
        gpus_total=len(facts.gpus) if facts.gpus is not None else None,
        gpus_free=room.free_gpus if room else None,
        gpus=tuple(map(_gpu, gpus)),
        engines=None
        if facts.engines is None
        else tuple(EngineView(e.name, e.kind, e.version, e.path) for e in facts.engines),
        labels=dict(seen.config.labels),
        fabric=seen.config.fabric,
        replicas=room.replicas if room else 0,
        rtt_s=status.rtt_s,
        os=facts.os,
        arch=facts.arch,
        disk_free_gb=facts.disk_free_gb,
        clock_skew_s=facts.clock_skew_s,
        fingerprint=status.fingerprint,
        old_fingerprint=status.old_fingerprint,
        holder=status.holder,
    )


def _cautions(seen: NodeSeen) -> tuple[str, ...]:
    ready = seen.status.state is NodeState.READY
    return cautions(seen.facts) if ready and seen.facts is not None else ()


def gpu_class(config: NodeConfig, facts: Facts) -> str | None:
    """The configured GPU class, else the name of the first GPU in a short form."""
    if config.gpu_class is not None or not facts.gpus:
        return config.gpu_class
    words = facts.gpus[0].name.lower().replace("nvidia", "").replace("geforce", "").split()
    return words[0] if words else None


def room_of(seen: NodeSeen) -> Room:
    """A node as the planner sees it, before bookings."""
    facts, sample, config = seen.facts or Facts(), seen.sample, seen.config
    engines = None if facts.engines is None else frozenset(e.name for e in facts.engines)
    return Room(
        name=config.name,
        state=seen.state,
        reason=seen.status.reason,
        labels=config.labels,
        engines=engines,
        builds={e.name: e.build for e in reversed(facts.engines or ()) if e.build},
        memory_gb=facts.memory_gb,
        available_gb=sample.memory_available_gb if sample else facts.memory_available_gb,
        cores=facts.cores_logical,
        gpu_class=gpu_class(config, facts),
        gpus=len(facts.gpus) if facts.gpus is not None else None,
        fabric=config.fabric,
        reserve_memory_gb=config.reserve.memory_gb,
        reserve_cores=config.reserve.cores,
        disk_free_gb=facts.disk_free_gb,
        weights=facts.weights or frozenset(),
        closed=cannot_start(facts),
    )


def replica_view(replica: Replica, watched: Watched | None, outstanding: int | None) -> ReplicaView:
    """A replica's row; numbers are shown while it is up."""
    up = replica.phase in (Phase.READY, Phase.DRAINING)
    numbers = (watched.numbers if watched and up else None) or Numbers()
    fetched = replica.fetched
    return ReplicaView(
        id=replica.id,
        model=replica.model,
        profile=replica.profile,
        nodes=(replica.node,),
        state=replica.phase.value,
        reason=replica.reason,
        since=replica.since,
        progress=replica.progress if fetched is None else _share(fetched),
        fetched_bytes=fetched.done if fetched else None,
        fetch_bytes=fetched.total if fetched else None,
        fetch_rate=fetched.rate if fetched else None,
        port=replica.port,
        pid=replica.pid,
        revision=replica.revision,
        exit_status=replica.exit_status,
        log_tail=replica.log_tail,
        failures=replica.failures,
        retry_at=replica.retry_at,
        argv=replica.argv,
        running=_whole(numbers.running),
        waiting=_whole(numbers.waiting),
        kv_usage=numbers.kv_usage,
        tokens_per_s=numbers.tokens_per_s,
        prompt_tokens_per_s=numbers.prompt_tokens_per_s,
        outstanding=outstanding,
        memory_gb=replica.resident_gb,
        peak_gb=replica.peak_gb,
        load_time_s=replica.load_time_s,
        tokens_history=tuple(watched.tokens)[-HISTORY:] if watched else (),
    )


def _share(fetched: Fetched) -> float | None:
    return fetched.done / fetched.total if fetched.total else None


def model_view(
    model: Model,
    replicas: Sequence[Replica],
    watched: Mapping[str, Watched],
    *,
    reason: str,
    headroom: int | None,
    requests_total: int | None,
) -> ModelView:
    """A model's row, its numbers summed over its replicas that are up."""
    present = [r for r in replicas if r.phase is not Phase.STOPPED]
    up = [r for r in present if r.phase in (Phase.READY, Phase.DRAINING)]
    seen = [watched[r.id] for r in up if r.id in watched]
    numbers = [w.numbers for w in seen if w.numbers is not None]
    trouble = [f"{r.id}: {r.reason}" for r in present if r.phase is Phase.FAILED]
    return view(
        model,
        replicas=ReplicaCount(sum(r.phase is Phase.READY for r in present), len(present)),
        headroom=Headroom(free=headroom),
        state=model_state(model, present),
        reason=reason or (trouble[0] if trouble else ""),
        running=_whole(total(n.running for n in numbers)),
        waiting=_whole(total(n.waiting for n in numbers)),
        tokens_per_s=total(n.tokens_per_s for n in numbers),
        requests_total=requests_total,
        tokens_history=_summed([w.tokens for w in seen]),
        running_history=_summed([w.running for w in seen]),
        waiting_history=_summed([w.waiting for w in seen]),
    )


def total(values: Iterable[float | None]) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _summed(series: Sequence[Iterable[float | None]]) -> tuple[float | None, ...]:
    """Several series added up, aligned at their newest values."""
    tails = [tuple(one)[-HISTORY:] for one in series]
    longest = max((len(tail) for tail in tails), default=0)
    padded = [(None,) * (longest - len(tail)) + tail for tail in tails]
    return tuple(total(column) for column in zip(*padded, strict=True))


def _gpu(gpu: GpuFacts) -> GpuView:
    return GpuView(
        gpu.index, gpu.name, gpu.memory_gb, gpu.memory_used_gb, gpu.utilization, gpu.healthy
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
