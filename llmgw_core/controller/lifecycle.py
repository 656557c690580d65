"""How a replica's phase follows from what is observed. Pure: one value in, one value out.

Nothing here waits or asks. ``advance`` may be called any number of times with the same
observation; a late, lost or repeated one delays a change and never corrupts it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmgw_core.controller.replica import (
    ADOPTED,
    BACKOFF_RESET_S,
    Health,
    Phase,
    Replica,
    backoff_s,
)
from llmgw_core.nodes.instance import InstanceState, InstanceStatus


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that a replica is held to, in seconds."""

    startup_s: float
    """Loading without visible progress."""
    unresponsive_s: float
    """A ready engine that answers nothing."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of one replica now."""

    node_ready: bool
    node_reason: str
    instance: InstanceStatus | None
    """None where the node has no such record."""
    fresh: bool
    """Whether the node's list was read after the replica was last acted upon."""
    health: Health | None
    load_progress: float | None = None
    stuck: str = ""
    """Why it is known to make no token, although it answers."""


def advance(replica: Replica, seen: Observation, limits: Limits, now: float) -> Replica:
    """The replica after this observation; the same object where nothing changed."""
    if replica.phase in (Phase.STARTING, Phase.FETCHING, Phase.STOPPED):
        return replica  # an action owns it, or none has begun
    if not seen.node_ready:
        return _node_away(replica, seen, now)
    if replica.phase is Phase.UNKNOWN:
        replica = _node_back(replica, now)
    waits = replica.phase in (Phase.PENDING, Phase.FAILED)
    if replica.phase.ending or waits or not seen.fresh:
        return replica
    status = seen.instance
    if status is None or status.token != replica.token:
        return failed(replica, "its record is gone from the node", now=now)
    if not status.state.alive:
        return _gone(replica, status, now)
    replica = _measured(replica, status)
    replica = _progressed(replica, status, seen, now)
    replica = _answered(replica, seen.health, now)
    return _overdue(replica, seen, limits, now)


def failed(
    replica: Replica,
    reason: str,
    *,
    now: float,
    exit_status: int | None = None,
    log_tail: str | None = None,
) -> Replica:
    """The replica after a failure, with the time of its next start."""
    count = 1 if _was_stable(replica, now) else replica.failures + 1
    return replace(
        replica,
        phase=Phase.FAILED,
        since=now,
        reason=reason,
        failures=count,
        retry_at=now + backoff_s(count),
        exit_status=exit_status,
        log_tail=log_tail,
        pid=None,
        resident_gb=None,
        peak_gb=None,
        ready_at=None,
        progress=None,
        fetched=None,
    )


def _was_stable(replica: Replica, now: float) -> bool:
    return replica.ready_at is not None and now - replica.ready_at >= BACKOFF_RESET_S


def _node_away(replica: Replica, seen: Observation, now: float) -> Replica:
    if replica.phase is Phase.UNKNOWN:
        return replica
    return replace(
        replica,
        phase=Phase.UNKNOWN,
        phase_before=replica.phase,
        since=now,
        lost_at=now,
        reason=f"node {replica.node} {seen.node_reason}".strip(),
    )


def _node_back(replica: Replica, now: float) -> Replica:
    before = replica.phase_before or Phase.LOADING
    if before is Phase.FETCHING:
        before = Phase.PENDING  # whoever waited for it was cut off; the fetch itself goes on there
    return replace(
        replica, phase=before, phase_before=None, lost_at=None, since=now, reason="node is back"
    )


def _gone(replica: Replica, status: InstanceStatus, now: float) -> Replica:
    match status.state:
        case InstanceState.ENDING:
            return replica
        case InstanceState.EXITED:
            how = f"exited with status {status.exit_status}"
        case InstanceState.REBOOTED:
            how = "node was rebooted"
        case _:
            how = "process is gone and nobody saw it end"
    return failed(replica, how, now=now, exit_status=status.exit_status)


def _measured(replica: Replica, status: InstanceStatus) -> Replica:
    resident = status.rss_gb if status.rss_gb is not None else replica.resident_gb
    peak = status.peak_gb if status.peak_gb is not None else replica.peak_gb
    known = (replica.pid, replica.resident_gb, replica.peak_gb)
    if known == (status.pid, resident, peak):
        return replica
    return replace(replica, pid=status.pid, resident_gb=resident, peak_gb=peak)


def _progressed(replica: Replica, status: InstanceStatus, seen: Observation, now: float) -> Replica:
    if replica.phase is not Phase.LOADING:
        return replica
    mark = (status.log_bytes, status.rss_gb)
    moved = mark != replica.progress_mark or replica.progress_at is None
    if not moved and seen.load_progress == replica.progress:
        return replica
    return replace(
        replica,
        progress_mark=mark,
        progress=seen.load_progress,
        progress_at=now if moved else replica.progress_at,
    )


def _answered(replica: Replica, health: Health | None, now: float) -> Replica:
    if health is None or (replica.answered_at is not None and health.at <= replica.answered_at):
        return replica
    if replica.started is not None and health.at < replica.started:
        return replica  # an answer of the run before
    if health.healthy and health.serves:
        if replica.phase is Phase.READY:
            return replace(replica, answered_at=health.at, reason="")
        was_adopted = replica.reason == ADOPTED
        took = now - replica.started if replica.started is not None else None
        return replace(
            replica,
            phase=Phase.READY,
            since=now,
            ready_at=now,
            answered_at=health.at,
            reason="",
            progress=None,
            exit_status=None,
            log_tail=None,
            retry_at=None,
            load_time_s=replica.load_time_s if replica.load_time_s or was_adopted else took,
        )
    if health.healthy and not health.serves:
        return replace(replica, reason=f"answers, but does not serve {replica.model}")
    if replica.phase is Phase.READY and not health.answered:
        return replace(replica, reason=f"does not answer: {health.error}")
    if replica.phase is Phase.READY:
        return replace(replica, phase=Phase.LOADING, since=now, progress_at=now, reason="reloads")
    return replica


def _overdue(replica: Replica, seen: Observation, limits: Limits, now: float) -> Replica:
    halted = seen.instance is not None and seen.instance.halted
    why = "; its process is stopped by a signal" if halted else ""
    if replica.phase is Phase.LOADING:
        since = replica.progress_at or replica.since
        if now - since > limits.startup_s:
            still = f"no progress for {now - since:.0f} s while loading{why}"
            return failed(replica, still, now=now)
    if replica.phase is Phase.READY and seen.stuck:
        return failed(replica, seen.stuck, now=now)
    if replica.phase is Phase.READY and replica.answered_at is not None:
        silent = now - replica.answered_at
        if silent > limits.unresponsive_s:
            return failed(replica, f"has not answered for {silent:.0f} s{why}", now=now)
    if replica.phase is Phase.READY and replica.failures and _was_stable(replica, now):
        return replace(replica, failures=0)
    return replica
