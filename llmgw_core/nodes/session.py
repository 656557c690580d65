"""What goes on while a node is connected: the probe, the live stream, round trips."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from llmgw_core.errors import LlmgwError, NodeLost, RemoteFailed
from llmgw_core.nodes.cautions import cannot_start, refusal
from llmgw_core.nodes.clock import Clock
from llmgw_core.nodes.instances import Instances
from llmgw_core.nodes.lease import Claim, Holder, LeaseHeld, give_back, take_over
from llmgw_core.nodes.link import Link
from llmgw_core.nodes.live import Live
from llmgw_core.nodes.probe import ProbeHints, probe
from llmgw_core.nodes.sampler import samples

log = logging.getLogger(__name__)

SAMPLE_INTERVAL_S = 2.0
SAMPLE_SILENCE_S = 15.0
"""A stream that says nothing for so long is started anew."""
SAMPLER_FAILURES = 5
"""In a row; then the connection itself is made anew."""
STEADY_S = 30.0
"""A stream that ran for so long was a good one: the next failure counts as the first."""
RTT_INTERVAL_S = 10.0
STATE_RETRY_S = 60.0
"""A node on which nothing can be started is asked again so often whether that has changed."""


@dataclass(slots=True, eq=False)
class Session:
    """One connection's work. ``changed`` is called whenever facts or instances are news."""

    name: str
    link: Link
    live: Live
    clock: Clock
    changed: Callable[[], None]
    claim: Claim
    hints: ProbeHints
    instances: Instances = field(init=False)
    state_dir: str | None = None
    leads: bool = False
    """Whether the node is ours to act on, as the live stream said last."""
    rtt_s: float | None = None

    def __post_init__(self) -> None:
        self._settle(self.hints.state_dir)

    def _settle(self, state_dir: str | None) -> None:
        self.state_dir = state_dir
        self.instances = Instances(
            self.link.exec, state_dir, node=self.name, holder=self.claim.holder.id
        )

    async def ask(self) -> None:
        """Probe, and read all instances where the node is ours.

        Raises:
            NodeLost: the link went away.
            NodeRefused: the login has no usable shell, or no place for llmgw's directory.
            RemoteFailed: the node could not run a script.
        """
        facts = await probe(self.link.exec, self.hints, clock=self.clock.wall)
        if (refused := refusal(self.name, facts)) is not None:
            raise refused
        self.live.facts = facts
        self._settle(facts.state_dir or self.hints.state_dir)
        if self.leads:
            await self.refresh()

    async def refresh(self) -> None:
        """Read every record now."""
        # the reading counts from before the question: what was done meanwhile may be missing
        at = self.clock.monotonic()
        if self.live.read(await self.instances.refresh(), at):
            self.changed()

    async def follow(self, ready: Callable[[], None]) -> None:
        """Take the node's lease and keep the live stream going until the link is lost.

        ``ready`` is called once the node is ours and its instances are read.

        Raises:
            LeaseHeld: it belongs to another controller, or was taken over by one.
            NodeLost: it is lost, or the stream will not stay up.
            RemoteFailed: the node cannot keep the stream.
        """
        failures = 0
        try:
            while True:
                failures = await self._follow_once(ready, failures)
        finally:
            self.leads = False

    async def _follow_once(self, ready: Callable[[], None], failures: int) -> int:
        start = self.clock.monotonic()
        try:
            await self._stream(ready)
            trouble = "it ended"
        except TimeoutError:
            trouble = f"it said nothing for {SAMPLE_SILENCE_S:.0f} s"
        except LeaseHeld:
            raise
        except LlmgwError as error:
            if not (self.link.is_up and self.leads):
                raise
            trouble = str(error)
        self.live.gap()
        failures = 1 if self.clock.monotonic() - start > STEADY_S else failures + 1
        log.warning("%s: the live stream is started anew: %s", self.name, trouble)
        if failures >= SAMPLER_FAILURES:
            raise NodeLost(f"The live stream of {self.name} does not stay up: {trouble}")
        await asyncio.sleep(2.0**failures)
        if self.leads:
            await self.refresh()
        return failures

    async def _stream(self, ready: Callable[[], None]) -> None:
        # a tick was read on the node after the one before it had arrived: that is its age
        at = self.clock.monotonic()
        stream = samples(
            self.link.exec,
            self.state_dir,
            SAMPLE_INTERVAL_S,
            clock=self.clock.monotonic,
            claim=self.claim,
            node=self.name,
        )
        async with aclosing(stream) as ticks:
            while True:
                async with asyncio.timeout(SAMPLE_SILENCE_S):
                    tick = await anext(ticks, None)
                if tick is None:
                    return
                arrived = self.clock.monotonic()
                self.live.sampled(tick.sample)
                if not self.leads:
                    await self.refresh()
                    self.leads = True
                    ready()
                elif not self.live.same_instances(tick.instances):
                    await self.refresh()
                elif self.live.streamed(tick.instances, at):
                    self.changed()
                at = arrived

    async def take_over(self) -> Holder | None:
        """Take the lease from whoever has it; the stream then has to be followed anew.

        Raises:
            NodeLost: the link went away.
            RemoteFailed: the node cannot write it down.
        """
        return await take_over(self.link.exec, self.state_dir, self.claim)

    async def give_back(self) -> None:
        """Let the lease go, where it can be done at once."""
        if self.link.is_up:
            await give_back(self.link.exec, self.state_dir, self.claim)

    async def measure(self) -> None:
        """Measure a round trip now and then, until cancelled."""
        while True:
            self.rtt_s = await self.link.rtt(self.clock.monotonic)
            await asyncio.sleep(RTT_INTERVAL_S)

    async def watch_state(self) -> None:
        """Ask again while nothing can be started there, until cancelled.

        Raises:
            NodeRefused: its directory has gone, and cannot be made.
        """
        while True:
            await asyncio.sleep(STATE_RETRY_S)
            if self.live.facts is not None and cannot_start(self.live.facts):
                try:
                    await self.ask()
                except RemoteFailed as error:
                    log.info("%s: it was not probed again: %s", self.name, error)
                else:
                    self.changed()

    async def lost(self) -> None:
        """Wait for the link's end.

        Raises:
            NodeLost: always.
        """
        raise await self.link.lost()
