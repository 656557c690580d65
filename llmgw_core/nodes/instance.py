"""An instance: one process group that llmgw keeps on a node, and its record there.

The node holds the truth: everything the controller needs to adopt an instance stands in its record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """What is asked of a node: run this, under this name.

    ``env`` and ``files`` may hold secrets: they travel on stdin and lie in files of mode 0600.
    """

    name: str
    """Directory under ``run/``; only ``[A-Za-z0-9_.@%+=,-]``."""
    token: str
    """Unique per start: a second start under the same token is the same start."""
    argv: tuple[str, ...]
    """``{dir}`` in an element stands for the instance's directory on the node."""
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Files to lie beside the record, by name (0600), such as a key file or our launcher."""
    record: Mapping[str, str | int | float] = field(default_factory=dict, repr=False)
    """Kept as spec.json and given back on every listing: replica, model, profile, port…"""
    port: int | None = None
    log_limit_mb: float = 16.0


class InstanceState(StrEnum):
    """What the record and the process table say together."""

    RUNNING = "running"
    ORPHAN = "orphan"
    """The engine lives, its supervisor does not."""
    ENDING = "ending"
    EXITED = "exited"
    REBOOTED = "rebooted"
    LOST = "lost"
    """The engine is gone and nobody wrote down how."""
    NONE = "none"

    @property
    def alive(self) -> bool:
        """Whether the engine's process exists."""
        return self in (InstanceState.RUNNING, InstanceState.ORPHAN)


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """One instance as read back from its node."""

    name: str
    state: InstanceState
    pid: int | None = None
    start_time: int | None = None
    """Field 22 of /proc/PID/stat: clock ticks since boot."""
    boot_id: str | None = None
    token: str | None = None
    exit_status: int | None = None
    """As a shell says it: above 128 is 128 + signal."""
    age_s: float | None = None
    """How long the process runs, by the node's own clock."""
    rss_gb: float | None = None
    peak_gb: float | None = None
    """The most that its living processes have held, in GiB; what they share counts once."""
    cpu_s: float | None = None
    """Processor seconds that its living processes have used."""
    halted: bool = False
    """Whether its engine is stopped by a signal: it lives and does nothing."""
    log_bytes: int | None = None
    record: Mapping[str, str | int | float] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of an instance's log and where the next one starts."""

    data: bytes
    next_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class StopResult:
    """How a stop ended."""

    status: InstanceStatus
    killed: bool
    """Whether SIGKILL was needed."""
    left: tuple[int, ...] = ()
    """Pids that would not die."""


@dataclass(frozen=True, slots=True)
class Reaped:
    """What became of processes that outlived their instance."""

    found: tuple[int, ...]
    """Pids of those that were there."""
    killed: bool
    """Whether SIGKILL was needed."""
    left: tuple[int, ...] = ()
    """Pids that would not die."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an engine's port is reached from here: TCP, or a Unix socket to a tunnel."""

    host: str
    port: int
    uds: str | None = None
