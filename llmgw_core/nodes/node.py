"""One node: the task that keeps its link alive, and everything that is asked of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace

from llmgw_core.config import DataPath, NodeConfig
from llmgw_core.engines.verdict import Verdict
from llmgw_core.errors import LlmgwError, NodeLost, NodeRefused, Refused
from llmgw_core.gateway.table import Tunnel
from llmgw_core.nodes.clock import Clock, Rng, retry_delay_s
from llmgw_core.nodes.dial import Dialer
from llmgw_core.nodes.facts import EngineFacts, Facts, HostSample, NodeState, NodeStatus
from llmgw_core.nodes.held import list_held, remove_held
from llmgw_core.nodes.host_keys import fingerprint as fingerprint_of
from llmgw_core.nodes.instance import Endpoint, InstanceSpec, InstanceStatus, LogChunk, StopResult
from llmgw_core.nodes.instances import Instances
from llmgw_core.nodes.link import Link, linked
from llmgw_core.nodes.live import Live
from llmgw_core.nodes.probe import ProbeHints
from llmgw_core.nodes.provision import provision
from llmgw_core.nodes.route import Hop
from llmgw_core.nodes.session import Session
from llmgw_core.nodes.trouble import HostKeyRefused
from llmgw_core.nodes.tunnel import SocketFolder
from llmgw_core.nodes.verdicts import Verdicts
from llmgw_core.nodes.weights import HeldVersion, weights_path

log = logging.getLogger(__name__)

STEADY_S = 20.0
"""A link that lasted so long was a good one: the next failure counts as the first."""
ATTEMPT_TIMEOUT_S = 60.0
"""How long ``probe`` waits for a connection that is being tried."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the nodes of a fleet have in common."""

    dialer: Dialer
    sockets: SocketFolder
    route: Callable[[NodeConfig], Awaitable[Hop]]
    """The way to a node; raises NodeRefused."""
    clock: Clock
    rng: Rng
    engine_pythons: tuple[str, ...]
    """Interpreters of this machine that may hold an engine; for local nodes."""
    notify: Callable[[str], None]


class Node:
    """A ``NodeHandle`` over SSH. ``run`` is its one task; all else may be called at any time."""

    def __init__(self, config: NodeConfig, shared: Shared) -> None:
        self._config = config
        self._shared = shared
        self._live = Live()
        self._verdicts = Verdicts()
        self._session: Session | None = None
        self._hop: Hop | None = None
        self._status = NodeStatus(NodeState.CONNECTING, shared.clock.wall())
        self._error: LlmgwError | None = None
        self._ready_at: float | None = None
        self._wake = asyncio.Event()
        self._attempt_over = asyncio.Event()

    # --- what is known

    @property
    def config(self) -> NodeConfig:
        """See ``NodeHandle``."""
        return self._config

    @property
    def status(self) -> NodeStatus:
        """See ``NodeHandle``."""
        session = self._session
        return replace(self._status, rtt_s=session.rtt_s) if session is not None else self._status

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
        await self._connected().refresh()
        return self._live.instances or {}

    async def start_instance(self, spec: InstanceSpec) -> InstanceStatus:
        """See ``NodeHandle``."""
        session = self._connected()
        status = await session.instances.start(spec)
        self._acted(session, status)
        return status

    async def stop_instance(self, name: str, *, grace_s: float) -> StopResult:
        """See ``NodeHandle``."""
        session = self._connected()
        result = await session.instances.stop(name, grace_s)
        self._acted(session, result.status)
        return result

    async def forget_instance(self, name: str) -> None:
        """See ``NodeHandle``."""
        session = self._connected()
        await session.instances.forget(name)
        if session is self._session:
            self._live.forgot(name, self._shared.clock.monotonic())
            self._shared.notify(self._config.name)

    def _acted(self, session: Session, status: InstanceStatus) -> None:
        if session is self._session:  # not after a loss: then nothing is known until read again
            self._live.acted(status, self._shared.clock.monotonic())
            self._shared.notify(self._config.name)

    async def read_log(
        self, name: str, *, offset: int | None = None, limit: int = 65536, previous: bool = False
    ) -> LogChunk:
        """See ``NodeHandle``."""
        return await self._connected().instances.read_log(name, offset, limit, previous)

    async def follow_log(self, name: str, *, offset: int) -> AsyncIterator[bytes]:
        """See ``NodeHandle``."""
        async with aclosing(self._connected().instances.follow_log(name, offset)) as pieces:
            async for piece in pieces:
                yield piece

    async def free_port(self, taken: frozenset[int]) -> int:
        """See ``NodeHandle``."""
        return await self._connected().instances.free_port(self._config.port_range, taken)

    async def stat_file(self, path: str) -> int | None:
        """See ``NodeHandle``."""
        return await self._connected().instances.stat_file(path)

    async def read_file(self, path: str, *, offset: int, length: int) -> bytes:
        """See ``NodeHandle``."""
        return await self._connected().instances.read_file(path, offset=offset, length=length)

    async def knows_architecture(self, engine: EngineFacts, architecture: str) -> Verdict:
        """See ``NodeHandle``."""
        return await self._verdicts.ask(self._connected().link.exec, engine, architecture)

    async def list_files(self, path: str) -> Mapping[str, int] | None:
        """See ``NodeHandle``."""
        return await self._connected().instances.list_files(path)

    async def weights(self) -> Mapping[str, HeldVersion]:
        """See ``NodeHandle``. The facts are brought up to date by the way."""
        session = self._connected()
        held = await list_held(session.link.exec, session.state_dir)
        if session is self._session and (facts := self._live.facts) is not None:
            whole = frozenset(key for key, version in held.items() if version.complete)
            self._live.facts = replace(facts, weights=whole)
            self._shared.notify(self._config.name)
        return held

    async def remove_weights(self, key: str) -> None:
        """See ``NodeHandle``."""
        session = self._connected()
        await remove_held(session.link.exec, session.state_dir, key)
        await self.weights()

    def weights_path(self, key: str, file: str = "") -> str | None:
        """See ``NodeHandle``."""
        state_dir = self._live.facts.state_dir if self._live.facts is not None else None
        return None if state_dir is None else weights_path(state_dir, key, file)

    async def provision(self, engine: str, *, progress: Callable[[str], None]) -> str:
        """See ``NodeHandle``. The node is probed anew afterwards, so that the engine is seen."""
        session = self._connected()
        version = await provision(
            session.link.exec, engine, progress=progress, state_dir=session.state_dir
        )
        await self.probe()
        return version

    # --- where it is reached

    async def endpoint(self, port: int) -> Endpoint:
        """See ``NodeHandle``."""
        if self._config.local or self._config.data_path is DataPath.DIRECT:
            return Endpoint(await self._address(), port)
        path = await self._connected().link.forwards.socket_to(port)
        return Endpoint("127.0.0.1", port, uds=str(path))

    async def _address(self) -> str:
        if self._config.serve_address is not None:
            return self._config.serve_address
        if self._config.local:
            return "127.0.0.1"
        hop = self._hop or await self._shared.route(self._config)
        return hop.target.host

    def tunnel(self) -> Tunnel | None:
        """See ``NodeHandle``. None also until the node was reached once."""
        direct = self._config.local or self._config.data_path is DataPath.DIRECT
        return None if direct else self.ssh_route()

    def ssh_route(self) -> Tunnel | None:
        """See ``NodeHandle``."""
        return None if self._hop is None else self._shared.dialer.tunnel(self._hop)

    # --- what a person asks for

    async def probe(self) -> Facts:
        """See ``NodeHandle``. A node that is away is tried at once."""
        if self._session is None:
            self._attempt_over.clear()
            self._wake.set()
            try:
                async with asyncio.timeout(ATTEMPT_TIMEOUT_S):
                    await self._attempt_over.wait()
            except TimeoutError:
                log.info("%s is still being tried", self._config.name)
            self._connected()
        else:
            await self._session.ask(self._hints)
            self._shared.notify(self._config.name)
        if self._live.facts is None:
            raise NodeLost(f"{self._config.name} has not answered yet")
        return self._live.facts

    async def trust(self, fingerprint: str | None = None) -> str:
        """See ``NodeHandle``. Where the way leads over jump hosts, the first whose key is not
        trusted is the one that is meant."""
        dialer, name = self._shared.dialer, self._config.name
        hop = await self._shared.route(self._config)
        try:
            async with dialer.connected(hop) as connection:
                key = connection.host_key
        except HostKeyRefused as refused:
            shown = refused.fingerprint
            self._check_trust(refused, fingerprint)
            await asyncio.to_thread(dialer.store.add, refused.hop.alias, refused.key)
        else:
            shown = fingerprint_of(key) if key is not None else ""
            if fingerprint is not None and fingerprint != shown:
                raise Refused(f"{name} shows the key {shown}, which is trusted, not {fingerprint}")
        if self._session is None:
            self._set(NodeState.CONNECTING)
            self._wake.set()
        return shown

    def _check_trust(self, refused: HostKeyRefused, fingerprint: str | None) -> None:
        where, shown = refused.hop.label, refused.fingerprint
        if fingerprint is None and refused.old_fingerprint is not None:
            raise Refused(
                f"{where} was known by another key ({refused.old_fingerprint})",
                hint=f"if you know why it changed, trust it with its new fingerprint {shown}",
            )
        # without a fingerprint, what the person saw last is what is meant
        expected = fingerprint or self._status.fingerprint
        if expected is not None and expected != shown:
            raise Refused(
                f"{where} shows the host key {shown}, not {expected}",
                hint="somebody may be in between; look at the host itself",
            )

    # --- the actor

    def reconfigure(self, config: NodeConfig) -> None:
        """Take over what of an entry does not touch the link."""
        self._config = config

    async def run(self) -> None:
        """Keep the node connected until cancelled."""
        failures = 0
        while True:
            self._wake.clear()
            self._status = replace(self._status, retry_at=None)
            self._ready_at = None
            error = await self._attempt()
            if self._ready_at is not None and self._now() - self._ready_at > STEADY_S:
                failures = 0
            failures += 1
            if await self._rest(error, failures):
                failures = 0

    async def _attempt(self) -> LlmgwError:
        """Connect and stay connected; returns why that ended."""
        name = self._config.name
        try:
            hop = await self._shared.route(self._config)
            if self._hop is not None and self._hop != hop:
                self._shared.dialer.forget(self._hop)
            self._hop = hop
            async with linked(self._shared.dialer, hop, name, self._shared.sockets) as link:
                error = await self._use(link)
                self._down(error)  # now, and not after the connection was closed politely
        except LlmgwError as error_:
            error = error_
        except Exception as fault:  # the task's boundary: a fault of one node stays its own
            log.exception("%s: connecting failed", name)
            error = NodeLost(f"{name} could not be connected: {type(fault).__name__}: {fault}")
        self._down(error)
        return error

    async def _use(self, link: Link) -> LlmgwError:
        shared, name = self._shared, self._config.name
        hints = self._hints
        session = Session(
            name,
            link,
            self._live,
            shared.clock,
            lambda: shared.notify(name),
            Instances(link.exec, hints.state_dir),
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(session.lost())
                await session.ask(hints)
                self._session = session
                self._ready_at = self._now()
                self._set(NodeState.READY)
                self._attempt_over.set()
                group.create_task(session.measure())
                group.create_task(session.follow())
        except ExceptionGroup as group_error:
            return self._first(group_error)
        finally:
            self._session = None
            self._live.away()
        return NodeLost(f"The connection to {name} ended")

    def _first(self, group: ExceptionGroup[Exception]) -> LlmgwError:
        """Of several errors at once the one that says most."""
        for kind in (NodeRefused, LlmgwError):
            found = group.subgroup(kind)
            if found is not None:
                error: BaseException = found
                while isinstance(error, BaseExceptionGroup):
                    error = error.exceptions[0]
                if isinstance(error, LlmgwError):
                    return error
        log.error("%s: the link's task failed", self._config.name, exc_info=group)
        return NodeLost(f"{self._config.name} could not be handled: {group.exceptions[0]}")

    def _down(self, error: LlmgwError) -> None:
        """The link is not there, for this reason."""
        self._error = error
        refused = isinstance(error, NodeRefused)
        key = error if isinstance(error, HostKeyRefused) else None
        self._set(
            NodeState.REFUSED if refused else NodeState.UNREACHABLE,
            reason=str(error),
            fingerprint=key.fingerprint if key is not None else None,
            old_fingerprint=key.old_fingerprint if key is not None else None,
        )

    async def _rest(self, error: LlmgwError, failures: int) -> bool:
        """Wait for the next try; returns whether somebody asked for it."""
        delay_s = retry_delay_s(
            failures, refused=isinstance(error, NodeRefused), rng=self._shared.rng
        )
        self._status = replace(self._status, retry_at=self._shared.clock.wall() + delay_s)
        self._attempt_over.set()
        self._shared.notify(self._config.name)
        try:
            async with asyncio.timeout(delay_s):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    def _set(
        self,
        state: NodeState,
        *,
        reason: str = "",
        fingerprint: str | None = None,
        old_fingerprint: str | None = None,
    ) -> None:
        old = self._status
        since = old.since if old.state is state else self._shared.clock.wall()
        self._status = NodeStatus(
            state, since, reason, fingerprint=fingerprint, old_fingerprint=old_fingerprint
        )
        if self._status != old:
            self._shared.notify(self._config.name)

    def _now(self) -> float:
        return self._shared.clock.monotonic()

    @property
    def _hints(self) -> ProbeHints:
        return ProbeHints(
            state_dir=self._config.state_dir,
            engine_paths=self._config.engines,
            engine_pythons=self._shared.engine_pythons if self._config.local else (),
        )

    def _connected(self) -> Session:
        """The session, or an error that says why there is none."""
        if self._session is not None:
            return self._session
        error, name = self._error, self._config.name
        if isinstance(error, NodeRefused) and self._status.state is NodeState.REFUSED:
            raise NodeRefused(error.because, error.message, hint=error.hint)
        if error is None:
            raise NodeLost(f"{name} is not connected yet")
        raise NodeLost(f"{name} is not connected: {error}")
