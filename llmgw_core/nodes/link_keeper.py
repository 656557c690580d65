"""The task that keeps a node's link alive, and what is known of the link."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from llmgw_core.config import NodeConfig
from llmgw_core.errors import LlmgwError, NodeLost, NodeRefused, Refused, RefusedBecause
from llmgw_core.nodes.clock import Clock, Rng, retry_delay_s
from llmgw_core.nodes.dial import Dialer
from llmgw_core.nodes.facts import NodeState, NodeStatus
from llmgw_core.nodes.host_keys import fingerprint as fingerprint_of
from llmgw_core.nodes.lease import Holder, LeaseHeld, Terms
from llmgw_core.nodes.link import Link, linked
from llmgw_core.nodes.live import Live
from llmgw_core.nodes.probe import ProbeHints
from llmgw_core.nodes.route import Hop
from llmgw_core.nodes.session import Session
from llmgw_core.nodes.trouble import HostKeyRefused
from llmgw_core.nodes.tunnel import SocketFolder

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
    lease: Terms


class LinkKeeper:
    """Keeps one node connected: ``run`` is its one task; all else may be called at any time."""

    def __init__(self, config: NodeConfig, shared: Shared, live: Live) -> None:
        self.config = config
        """Its entry; what of it does not touch the link may be replaced."""
        self._shared = shared
        self._live = live
        self._session: Session | None = None
        self._standby: Session | None = None
        self._hop: Hop | None = None
        self._status = NodeStatus(NodeState.CONNECTING, shared.clock.wall())
        self._error: LlmgwError | None = None
        self._ready_at: float | None = None
        self._wake = asyncio.Event()
        self._attempt_over = asyncio.Event()

    @property
    def status(self) -> NodeStatus:
        """Of the link, as ``NodeHandle`` has it."""
        session = self._session
        return replace(self._status, rtt_s=session.rtt_s) if session is not None else self._status

    @property
    def session(self) -> Session | None:
        """What goes on over the link; None while it is away."""
        return self._session

    @property
    def hop(self) -> Hop | None:
        """The way by which it was tried last."""
        return self._hop

    def connected(self) -> Session:
        """The session.

        Raises:
            NodeLost: there is none, with why.
            NodeRefused: the node does not let us in.
        """
        if self._session is not None:
            return self._session
        error, name = self._error, self.config.name
        if isinstance(error, NodeRefused) and self._status.state is NodeState.REFUSED:
            raise NodeRefused(error.because, error.message, hint=error.hint)
        if error is None:
            raise NodeLost(f"{name} is not connected yet")
        raise NodeLost(f"{name} is not connected: {error}")

    async def probe(self) -> None:
        """Ask everything again; a node that is away is tried at once.

        Raises:
            NodeLost: it cannot be reached.
            NodeRefused: it does not let us in.
        """
        if self._session is not None:
            await self._session.ask()
            self._shared.notify(self.config.name)
            return
        self._attempt_over.clear()
        self._wake.set()
        try:
            async with asyncio.timeout(ATTEMPT_TIMEOUT_S):
                await self._attempt_over.wait()
        except TimeoutError:
            log.info("%s is still being tried", self.config.name)
        self.connected()

    async def takeover(self) -> Holder | None:
        """Take the node from the controller that leads it; who that was, None where nobody did.

        Raises:
            NodeLost: it cannot be reached.
            NodeRefused: it does not let us in, for another reason than a lease.
            RemoteFailed: the node cannot write it down.
        """
        if self._standby is None:
            self.connected()
            return None
        was = await self._standby.take_over()
        try:
            await self.probe()
        except NodeRefused:  # by an answer that was under way before
            await self.probe()
        return was

    async def trust(self, fingerprint: str | None = None) -> str:
        """See ``NodeHandle``. Where the way leads over jump hosts, the first whose key is not
        trusted is the one that is meant."""
        dialer, name = self._shared.dialer, self.config.name
        hop = await self._shared.route(self.config)
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
        name = self.config.name
        try:
            hop = await self._shared.route(self.config)
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
        shared, name = self._shared, self.config.name
        session = Session(
            name,
            link,
            self._live,
            shared.clock,
            lambda: shared.notify(name),
            shared.lease.claim(),
            self._hints,
        )
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(session.lost())
                await session.ask()
                group.create_task(session.measure())
                group.create_task(session.watch_state())
                await self._lead(session)
        except ExceptionGroup as group_error:
            # a group that was cancelled while one of its tasks failed tells of the failure alone
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise asyncio.CancelledError from group_error
            return self._first(group_error)
        except asyncio.CancelledError:
            led = self._session is session
            self._away()
            if led:
                await session.give_back()
            raise
        finally:
            self._away()
        return NodeLost(f"The connection to {name} ended")

    async def _lead(self, session: Session) -> None:
        """Act on the node while it is ours; while it is another's, ask for it now and then."""
        while True:
            try:
                await session.follow(lambda: self._came_up(session))
            except LeaseHeld as held:
                self._away()
                self._standby = session
                self._down(held)
            if await self._wait(self._shared.lease.retry_s):
                self._wake.clear()
                await session.ask()

    def _came_up(self, session: Session) -> None:
        self._session, self._standby = session, None
        self._ready_at = self._now()
        self._set(NodeState.READY)
        self._attempt_over.set()

    def _away(self) -> None:
        self._session = self._standby = None
        self._live.away()

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
        log.error("%s: the link's task failed", self.config.name, exc_info=group)
        return NodeLost(f"{self.config.name} could not be handled: {group.exceptions[0]}")

    def _down(self, error: LlmgwError) -> None:
        """The link is not there, for this reason."""
        self._error = error
        refused = isinstance(error, NodeRefused)
        key = error if isinstance(error, HostKeyRefused) else None
        self._set(
            NodeState.REFUSED if refused else NodeState.UNREACHABLE,
            reason=str(error),
            because=error.because if isinstance(error, NodeRefused) else None,
            fingerprint=key.fingerprint if key is not None else None,
            old_fingerprint=key.old_fingerprint if key is not None else None,
            holder=str(error.holder) if isinstance(error, LeaseHeld) else None,
        )

    async def _rest(self, error: LlmgwError, failures: int) -> bool:
        """Wait for the next try; returns whether somebody asked for it."""
        delay_s = retry_delay_s(
            failures, refused=isinstance(error, NodeRefused), rng=self._shared.rng
        )
        return await self._wait(delay_s)

    async def _wait(self, delay_s: float) -> bool:
        self._status = replace(self._status, retry_at=self._shared.clock.wall() + delay_s)
        self._attempt_over.set()
        self._shared.notify(self.config.name)
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
        because: RefusedBecause | None = None,
        fingerprint: str | None = None,
        old_fingerprint: str | None = None,
        holder: str | None = None,
    ) -> None:
        old = self._status
        since = old.since if old.state is state else self._shared.clock.wall()
        self._status = NodeStatus(
            state,
            since,
            reason,
            because=because,
            fingerprint=fingerprint,
            old_fingerprint=old_fingerprint,
            holder=holder,
        )
        if self._status != old:
            self._shared.notify(self.config.name)

    def _now(self) -> float:
        return self._shared.clock.monotonic()

    @property
    def _hints(self) -> ProbeHints:
        return ProbeHints(
            state_dir=self.config.state_dir,
            engine_paths=self.config.engines,
            engine_pythons=self._shared.engine_pythons if self.config.local else (),
        )
