"""One node: what is known of it, and everything that is asked of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace

from llmgw_core.config import DataPath, NodeConfig
from llmgw_core.engines.verdict import Verdict
from llmgw_core.errors import NodeLost, RemoteFailed
from llmgw_core.gateway.table import Tunnel
from llmgw_core.nodes.facts import EngineFacts, Facts, HostSample, NodeStatus
from llmgw_core.nodes.held import list_held, remove_held
from llmgw_core.nodes.instance import (
    Endpoint,
    InstanceSpec,
    InstanceStatus,
    LogChunk,
    Reaped,
    StopResult,
)
from llmgw_core.nodes.lease import Holder
from llmgw_core.nodes.link_keeper import LinkKeeper, Shared
from llmgw_core.nodes.live import Live
from llmgw_core.nodes.provision import provision
from llmgw_core.nodes.session import Session
from llmgw_core.nodes.verdicts import Verdicts
from llmgw_core.nodes.weights import HeldVersion, weights_path


class Node:
    """A ``NodeHandle`` over SSH. ``run`` is its one task; all else may be called at any time."""

    def __init__(self, config: NodeConfig, shared: Shared) -> None:
        self._shared = shared
        self._live = Live()
        self._keeper = LinkKeeper(config, shared, self._live)
        self._verdicts = Verdicts()

    # --- what is known

    @property
    def config(self) -> NodeConfig:
        """See ``NodeHandle``."""
        return self._keeper.config

    @property
    def status(self) -> NodeStatus:
        """See ``NodeHandle``."""
        return self._keeper.status

    @property
    def facts(self) -> Facts | None:
        """See ``NodeHandle``."""
        return self._live.facts

    @property
    def sample(self) -> HostSample | None:
        """See ``NodeHandle``."""
        return self._live.sample

    @property
    def cpu_history(self) -> tuple[float | None, ...]:
        """See ``NodeHandle``."""
        return self._live.cpu_history

    @property
    def instances(self) -> Mapping[str, InstanceStatus] | None:
        """See ``NodeHandle``."""
        return self._live.instances

    @property
    def instances_at(self) -> float | None:
        """See ``NodeHandle``."""
        return self._live.instances_at

    # --- what is done there

    async def refresh_instances(self) -> Mapping[str, InstanceStatus]:
        """See ``NodeHandle``."""
        await self._keeper.connected().refresh()
        return self._live.instances or {}

    async def start_instance(self, spec: InstanceSpec) -> InstanceStatus:
        """See ``NodeHandle``."""
        session = self._keeper.connected()
        status = await session.instances.start(spec)
        self._acted(session, status)
        return status

    async def stop_instance(self, name: str, *, grace_s: float) -> StopResult:
        """See ``NodeHandle``."""
        session = self._keeper.connected()
        result = await session.instances.stop(name, grace_s)
        self._acted(session, result.status)
        return result

    async def strays(self) -> Mapping[str, tuple[int, ...]]:
        """See ``NodeHandle``."""
        return await self._keeper.connected().instances.strays()

    async def reap(self, name: str, *, grace_s: float) -> Reaped:
        """See ``NodeHandle``."""
        return await self._keeper.connected().instances.reap(name, grace_s)

    async def forget_instance(self, name: str) -> None:
        """See ``NodeHandle``."""
        session = self._keeper.connected()
        await session.instances.forget(name)
        if session is self._keeper.session:
            self._live.forgot(name, self._shared.clock.monotonic())
            self._shared.notify(self.config.name)

    def _acted(self, session: Session, status: InstanceStatus) -> None:
        # not after a loss: then nothing is known until read again
        if session is self._keeper.session:
            self._live.acted(status, self._shared.clock.monotonic())
            self._shared.notify(self.config.name)

    async def read_log(
        self, name: str, *, offset: int | None = None, limit: int = 65536, previous: bool = False
    ) -> LogChunk:
        """See ``NodeHandle``."""
        return await self._keeper.connected().instances.read_log(name, offset, limit, previous)

    async def follow_log(self, name: str, *, offset: int) -> AsyncIterator[bytes]:
        """See ``NodeHandle``."""
        async with aclosing(self._keeper.connected().instances.follow_log(name, offset)) as pieces:
            async for piece in pieces:
                yield piece

    async def free_port(self, taken: frozenset[int]) -> int:
        """See ``NodeHandle``."""
        return await self._keeper.connected().instances.free_port(self.config.port_range, taken)

    async def stat_file(self, path: str) -> int | None:
        """See ``NodeHandle``."""
        return await self._keeper.connected().instances.stat_file(path)

    async def read_file(self, path: str, *, offset: int, length: int) -> bytes:
        """See ``NodeHandle``."""
        return await self._keeper.connected().instances.read_file(
            path, offset=offset, length=length
        )

    async def knows_architecture(self, engine: EngineFacts, architecture: str) -> Verdict:
        """See ``NodeHandle``."""
        return await self._verdicts.ask(self._keeper.connected().link.exec, engine, architecture)

    async def list_files(self, path: str) -> Mapping[str, int] | None:
        """See ``NodeHandle``."""
        return await self._keeper.connected().instances.list_files(path)

    async def weights(self) -> Mapping[str, HeldVersion]:
        """See ``NodeHandle``. The facts are brought up to date by the way."""
        session = self._keeper.connected()
        held = await list_held(session.link.exec, session.state_dir)
        if session is self._keeper.session and (facts := self._live.facts) is not None:
            whole = frozenset(key for key, version in held.items() if version.complete)
            self._live.facts = replace(facts, weights=whole)
            self._shared.notify(self.config.name)
        return held

    async def remove_weights(self, key: str) -> None:
        """See ``NodeHandle``."""
        session = self._keeper.connected()
        await remove_held(
            session.link.exec,
            session.state_dir,
            key,
            node=self.config.name,
            holder=session.claim.holder.id,
        )
        await self.weights()

    def weights_path(self, key: str, file: str = "") -> str | None:
        """See ``NodeHandle``."""
        state_dir = self._live.facts.state_dir if self._live.facts is not None else None
        return None if state_dir is None else weights_path(state_dir, key, file)

    async def provision(self, engine: str, *, progress: Callable[[str], None]) -> str:
        """See ``NodeHandle``. The node is probed anew afterwards, so that the engine is seen."""
        session, facts = self._keeper.connected(), self.facts
        if facts is not None and facts.state_executable is False:
            raise RemoteFailed(
                f"no program can be run from {facts.state_dir} on {self.config.name} (mounted "
                "noexec); set state_dir in its entry to another place, or name an engine there "
                "under engines",
                exit_status=126,
            )
        version = await provision(
            session.link.exec,
            engine,
            progress=progress,
            state_dir=session.state_dir,
            node=self.config.name,
            holder=session.claim.holder.id,
        )
        await self.probe()
        return version

    # --- where it is reached

    async def endpoint(self, port: int) -> Endpoint:
        """See ``NodeHandle``."""
        if self.config.local or self.config.data_path is DataPath.DIRECT:
            return Endpoint(await self._address(), port)
        path = await self._keeper.connected().link.forwards.socket_to(port)
        return Endpoint("127.0.0.1", port, uds=str(path))

    async def _address(self) -> str:
        if self.config.serve_address is not None:
            return self.config.serve_address
        if self.config.local:
            return "127.0.0.1"
        hop = self._keeper.hop or await self._shared.route(self.config)
        return hop.target.host

    def tunnel(self) -> Tunnel | None:
        """See ``NodeHandle``. None also until the node was reached once."""
        direct = self.config.local or self.config.data_path is DataPath.DIRECT
        return None if direct else self.ssh_route()

    def ssh_route(self) -> Tunnel | None:
        """See ``NodeHandle``."""
        return None if self._keeper.hop is None else self._shared.dialer.tunnel(self._keeper.hop)

    # --- what a person asks for

    async def probe(self) -> Facts:
        """See ``NodeHandle``. A node that is away is tried at once."""
        await self._keeper.probe()
        if self._live.facts is None:
            raise NodeLost(f"{self.config.name} has not answered yet")
        return self._live.facts

    async def trust(self, fingerprint: str | None = None) -> str:
        """See ``NodeHandle``."""
        return await self._keeper.trust(fingerprint)

    async def takeover(self) -> Holder | None:
        """See ``NodeHandle``."""
        return await self._keeper.takeover()

    # --- its life

    def reconfigure(self, config: NodeConfig) -> None:
        """Take over what of an entry does not touch the link."""
        self._keeper.config = config

    async def run(self) -> None:
        """Keep the node connected until cancelled."""
        await self._keeper.run()
