"""What is known about a node. Values only; None where the node did not say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from llmgw_core.errors import RefusedBecause


class NodeState(StrEnum):
    """Where a node's connection stands."""

    CONNECTING = "connecting"
    READY = "ready"
    CORDONED = "cordoned"
    DRAINING = "draining"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU as its driver reports it; memory in GiB."""

    uuid: str
    index: int
    vendor: str
    name: str
    memory_gb: float | None = None
    memory_used_gb: float | None = None
    utilization: float | None = None
    """0 to 1."""
    driver: str | None = None
    healthy: bool | None = None


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """An engine found on a node."""

    name: str
    """An engine's name: ``llamacpp``, ``vllm``."""
    kind: str
    """``llama-server``, ``xllamacpp`` or ``vllm``: what is started."""
    path: str
    """The program, or the Python interpreter that can import the package."""
    version: str | None = None

    @property
    def build(self) -> str:
        """What is started and its version, in words; empty where the version is not known."""
        return f"{self.kind} {self.version}" if self.version else ""


@dataclass(frozen=True, slots=True)
class Facts:
    """One probe's answer. Memory in GiB; cgroup limits are honoured where the node has them."""

    os: str | None = None
    arch: str | None = None
    cores_logical: float | None = None
    cores_physical: float | None = None
    memory_gb: float | None = None
    memory_available_gb: float | None = None
    disk_free_gb: float | None = None
    gpus: tuple[GpuFacts, ...] | None = None
    """None where nothing could be asked; empty where there are none."""
    engines: tuple[EngineFacts, ...] | None = None
    boot_id: str | None = None
    clock_skew_s: float | None = None
    """The node's clock less ours."""
    home: str | None = None
    state_dir: str | None = None
    """llmgw's directory on this node, absolute."""
    hostname: str | None = None
    state_writable: bool | None = None
    """Whether files can be made in the state directory."""
    state_there: bool | None = None
    """Whether that directory is there, or could be made."""
    state_trouble: str | None = None
    """Why it could not be made, or nothing be written in it, as the node says it."""
    state_executable: bool | None = None
    """Whether programs there can be run (not so on a noexec mount)."""
    unusable: tuple[str, ...] = ()
    """Engines that are configured or installed there and cannot be run, each with why."""
    weights: frozenset[str] | None = None
    """Versions of the mirror that lie there whole, as ``MODEL/VERSION``."""

    ephemeral_ports: tuple[int, int] | None = None
    """First and last port that the kernel takes for outgoing connections."""

    def engine(self, name: str) -> EngineFacts | None:
        """The first engine of that name, or None."""
        return next((e for e in self.engines or () if e.name == name), None)


@dataclass(frozen=True, slots=True)
class HostSample:
    """One line of a node's live stream."""

    cpu: float | None
    """Busy share of all cores since the sample before, 0 to 1."""
    memory_used_gb: float | None
    memory_available_gb: float | None
    load1: float | None = None
    gpus: tuple[GpuFacts, ...] | None = None


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node's state, with why and since when (Unix seconds)."""

    state: NodeState
    since: float
    reason: str = ""
    because: RefusedBecause | None = None
    """Of a node that is refused: what kind of thing a person has to see to."""
    rtt_s: float | None = None
    fingerprint: str | None = None
    """SHA256 of the host key that waits for a person's trust."""
    old_fingerprint: str | None = None
    """Where the key changed: the one that was trusted."""
    retry_at: float | None = None
    holder: str | None = None
    """The other controller that holds the node's lease, in words."""
