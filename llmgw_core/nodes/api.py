"""What the controller asks of a node. ``nodes.node.Node`` is the real one; tests bring others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol

from llmgw_core.config import NodeConfig
from llmgw_core.engines.verdict import Verdict
from llmgw_core.gateway.table import Tunnel
from llmgw_core.nodes.facts import EngineFacts, Facts, HostSample, NodeStatus
from llmgw_core.nodes.instance import (
    Endpoint,
    InstanceSpec,
    InstanceStatus,
    LogChunk,
    Reaped,
    StopResult,
)
from llmgw_core.nodes.lease import Holder
from llmgw_core.nodes.weights import HeldVersion


class NodeHandle(Protocol):
    """One node. Properties answer from memory at once; methods go over the link.

    Every method raises ``NodeLost`` where the link is gone or goes away, ``NodeRefused`` where the
    node does not let us in, ``RemoteFailed`` where the node reports failure, and is safe to repeat.
    """

    @property
    def config(self) -> NodeConfig:
        """Its entry in the configuration."""
        ...

    @property
    def status(self) -> NodeStatus:
        """Of the link: connecting, ready, unreachable or refused (cordons are the controller's)."""
        ...

    @property
    def facts(self) -> Facts | None:
        """The newest probe's answer; kept while the node is away."""
        ...

    @property
    def sample(self) -> HostSample | None:
        """The newest host metrics; None while the node is away."""
        ...

    @property
    def cpu_history(self) -> tuple[float | None, ...]:
        """The last 120 samples' CPU share, oldest first; None for gaps."""
        ...

    @property
    def instances(self) -> Mapping[str, InstanceStatus] | None:
        """As the live stream reported last (about 2 s old); None until first read or while away."""
        ...

    @property
    def instances_at(self) -> float | None:
        """Monotonic time of that reading, so that a reader can tell it from one before its act."""
        ...

    async def refresh_instances(self) -> Mapping[str, InstanceStatus]:
        """Read every record on the node now."""
        ...

    async def start_instance(self, spec: InstanceSpec) -> InstanceStatus:
        """Make it so that this spec's process runs; the same token twice is one start.

        An instance of that name under another token must have ended first. The log of the run
        before is kept as the previous log.
        """
        ...

    async def stop_instance(self, name: str, *, grace_s: float) -> StopResult:
        """SIGTERM to the group, SIGKILL to all members after the grace; none other is touched."""
        ...

    async def strays(self) -> Mapping[str, tuple[int, ...]]:
        """Pids that carry the mark of an instance whose engine is gone, by the instance's name."""
        ...

    async def reap(self, name: str, *, grace_s: float) -> Reaped:
        """End the strays of that name; nothing is done where an engine lives under it."""
        ...

    async def forget_instance(self, name: str) -> None:
        """Remove the record and logs of an instance that has ended."""
        ...

    async def read_log(
        self, name: str, *, offset: int | None = None, limit: int = 65536, previous: bool = False
    ) -> LogChunk:
        """Bytes of a log from an offset, or its last ``limit`` bytes with None."""
        ...

    def follow_log(self, name: str, *, offset: int) -> AsyncIterator[bytes]:
        """What is appended from an offset on, through rotations, until cancelled."""
        ...

    async def free_port(self, taken: frozenset[int]) -> int:
        """A port of the node's range that nothing listens on and that is not in ``taken``."""
        ...

    async def stat_file(self, path: str) -> int | None:
        """Size in bytes of a file (of all files, for a folder); None where it is not there."""
        ...

    async def read_file(self, path: str, *, offset: int, length: int) -> bytes:
        """At most ``length`` bytes (8 MiB) of a file; fewer only where it ends."""
        ...

    async def knows_architecture(self, engine: EngineFacts, architecture: str) -> Verdict:
        """Whether this engine here can load an architecture, as it says itself; at most 30 s.

        ``known`` is None where the engine cannot be asked. An answer is remembered until the
        engine has another version.
        """
        ...

    async def list_files(self, path: str) -> Mapping[str, int] | None:
        """Bytes of every file below a folder by path below it (for a file, of the empty path);
        None where nothing is there."""
        ...

    async def weights(self) -> Mapping[str, HeldVersion]:
        """The versions of weights that it holds, by ``MODEL/VERSION``; half fetched ones too."""
        ...

    async def remove_weights(self, key: str) -> None:
        """Remove a version with its half files; refused while it is fetched."""
        ...

    def weights_path(self, key: str, file: str = "") -> str | None:
        """Where a version, or a file of it, lies there; None until the node was probed."""
        ...

    async def endpoint(self, port: int) -> Endpoint:
        """Where this port of the node is reached from here."""
        ...

    def ssh_route(self) -> Tunnel | None:
        """How another process reaches it by SSH; None until it was reached, and where it is
        this machine."""
        ...

    def tunnel(self) -> Tunnel | None:
        """What the gateway needs to reach the node by itself; None where it goes direct."""
        ...

    async def probe(self) -> Facts:
        """Ask everything again."""
        ...

    async def provision(self, engine: str, *, progress: Callable[[str], None]) -> str:
        """Install an engine into a venv of llmgw's own on the node; returns its version."""
        ...

    async def trust(self, fingerprint: str | None = None) -> str:
        """Accept the host key that the node shows (it must have this fingerprint, where given).

        Returns the fingerprint; a changed key needs its fingerprint spelled out.
        """
        ...

    async def takeover(self) -> Holder | None:
        """Take the node's lease from another controller, which stops acting there.

        Returns who that was; None where it was nobody else.
        """
        ...


class FleetHandle(Protocol):
    """All nodes of a configuration, with what they share: keys, host keys, the connect gate."""

    @property
    def nodes(self) -> Mapping[str, NodeHandle]:
        """By name, in order of declaration."""
        ...

    async def run(self) -> None:
        """Keep every node connected until cancelled."""
        ...

    def apply(self, nodes: tuple[NodeConfig, ...]) -> None:
        """Bring the fleet to this list; nodes whose entry did not change keep their link."""
        ...

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Call with the node's name whenever its status, facts or instances change."""
        ...
