"""A replica as the controller knows it. Frozen values; changes make new ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llmgw_core.controller.weights_handle import Fetched
from llmgw_core.nodes.instance import InstanceStatus

BACKOFF_FIRST_S = 10.0
BACKOFF_MOST_S = 600.0
BACKOFF_RESET_S = 600.0
"""This long in ready, and earlier failures are forgotten."""


class Phase(StrEnum):
    """Where a replica's life stands."""

    PENDING = "pending"
    FETCHING = "fetching"
    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    UNKNOWN = "unknown"

    @property
    def ending(self) -> bool:
        """Whether it is on its way out, or out."""
        return self in (Phase.DRAINING, Phase.STOPPING, Phase.STOPPED)

    @property
    def coming(self) -> bool:
        """Whether it is on its way to ready."""
        return self in (Phase.PENDING, Phase.FETCHING, Phase.STARTING, Phase.LOADING)


ADOPTED = "adopted"
"""The reason of a replica that was found running, until its engine has been heard."""


@dataclass(frozen=True, slots=True)
class Replica:
    """One wanted or running copy. Times: ``since``-like ones in Unix seconds."""

    id: str
    model: str
    profile: str
    node: str
    revision: str
    phase: Phase
    since: float
    instance: str
    """Name of its record on the node."""
    engine: str = ""
    content: str = ""
    """Of the weights that it was started with, in 16 hex digits; empty where not known."""
    build: str = ""
    """Of the engine that it was started with; empty where not known."""
    replaces: str = ""
    """The replica that goes once this one is ready; empty where it was started for none."""
    reason: str = ""
    port: int | None = None
    token: str | None = None
    api_key: str = field(default="", repr=False)
    memory_gb: float | None = None
    """Booked, as its profile said when it was placed."""
    cores: float | None = None
    gpus: int = 0
    created: float = 0.0
    started: float | None = None
    ready_at: float | None = None
    answered_at: float | None = None
    """When it last answered its health check."""
    progress_at: float | None = None
    """When loading was last seen to move."""
    progress: float | None = None
    fetched: Fetched | None = None
    """While its weights are fetched: how far that is."""
    progress_mark: tuple[int | None, float | None] = (None, None)
    """Log size and resident memory when last looked at."""
    failures: int = 0
    retry_at: float | None = None
    exit_status: int | None = None
    log_tail: str | None = None
    pid: int | None = None
    resident_gb: float | None = None
    peak_gb: float | None = None
    """The most that this run has used so far."""
    load_time_s: float | None = None
    argv: tuple[str, ...] = ()
    lost_at: float | None = None
    """When its node went away."""
    phase_before: Phase | None = None
    """What it was when its node went away."""
    stop_why: str = ""
    """Why it is being stopped: outlasts the reasons why that takes long."""
    stop_failures: int = 0
    """Stops of it that failed, in a row."""

    @property
    def run(self) -> str:
        """A name for this run of it: a start anew is another one."""
        return self.token or f"{self.id} {self.created}"


@dataclass(frozen=True, slots=True)
class Health:
    """What a replica's engine answered last. ``at`` is Unix seconds."""

    at: float
    healthy: bool
    """Its own health check says that the model is loaded."""
    answered: bool
    """Something answered, if only to say that it loads."""
    serves: bool
    """The model list names this model."""
    error: str = ""


def instance_name(replica_id: str) -> str:
    """A replica's id in the characters that an instance's name may have; one to one."""
    return "".join(
        char if char.isascii() and (char.isalnum() or char in "_.-") else f"%{ord(char):x}%"
        for char in replica_id
    )


def backoff_s(failures: int) -> float:
    """Pause before the next start after that many failures in a row: 10 s doubling to 10 min."""
    return float(min(BACKOFF_FIRST_S * 2 ** max(min(failures, 16) - 1, 0), BACKOFF_MOST_S))


def record_of(replica: Replica, *, cluster: str, started: float) -> Mapping[str, str | int | float]:
    """What stands on the node, from which a controller that lost its disk adopts the replica."""
    return {
        "cluster": cluster,
        "replica": replica.id,
        "model": replica.model,
        "profile": replica.profile,
        "engine": replica.engine,
        "revision": replica.revision,
        "content": replica.content,
        "build": replica.build,
        "replaces": replica.replaces,
        "port": replica.port or 0,
        "key": replica.api_key,
        "memory_gb": replica.memory_gb or 0.0,
        "cores": replica.cores or 0.0,
        "gpus": replica.gpus,
        "started": started,
        "created": replica.created,
        "argv": "\0".join(replica.argv),
    }


def adopted(node: str, status: InstanceStatus, *, now: float) -> Replica | None:
    """The replica that a record on a node describes; None where the record is not whole."""
    record = status.record
    identity = {key: record.get(key) for key in ("replica", "model", "profile", "revision")}
    if not all(isinstance(value, str) and value for value in identity.values()):
        return None
    argv = str(record.get("argv") or "")
    return Replica(
        id=str(identity["replica"]),
        model=str(identity["model"]),
        profile=str(identity["profile"]),
        node=node,
        revision=str(identity["revision"]),
        phase=Phase.LOADING if status.state.alive else Phase.FAILED,
        since=now,
        instance=status.name,
        engine=str(record.get("engine") or ""),
        content=str(record.get("content") or ""),
        build=str(record.get("build") or ""),
        replaces=str(record.get("replaces") or ""),
        reason=ADOPTED if status.state.alive else f"found {status.state}",
        retry_at=None if status.state.alive else now,
        exit_status=status.exit_status,
        port=int(record.get("port") or 0) or None,
        token=status.token,
        api_key=str(record.get("key") or ""),
        memory_gb=float(record.get("memory_gb") or 0) or None,
        cores=float(record.get("cores") or 0) or None,
        gpus=int(record.get("gpus") or 0),
        created=float(record.get("created") or 0) or now,
        started=float(record.get("started") or 0) or now,
        progress_at=now,
        pid=status.pid,
        argv=tuple(argv.split("\0")) if argv else (),
    )
