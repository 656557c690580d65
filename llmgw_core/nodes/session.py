"""What goes on while a node is connected: the probe, the live stream, round trips."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from llmgw_core.errors import LlmgwError, NodeLost
from llmgw_core.nodes.clock import Clock
from llmgw_core.nodes.instances import Instances
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


@dataclass(slots=True, eq=False)
class Session:
    """One connection's work. ``changed`` is called whenever facts or instances are news."""

    name: str
    link: Link
    live: Live
    clock: Clock
    changed: Callable[[], None]
    instances: Instances
    state_dir: str | None = None
    rtt_s: float | None = None

    async def ask(self, hints: ProbeHints) -> None:
        """Probe, and read all instances: a node is ready after that.

        Raises:
            NodeLost: the link went away.
            NodeRefused: the login has no usable shell.
            RemoteFailed: the node could not run a script.
        """
        facts = await probe(self.link.exec, hints, clock=self.clock.wall)
        self.live.facts = facts
        self.state_dir = facts.state_dir or hints.state_dir
        self.instances = Instances(self.link.exec, self.state_dir)
        await self.refresh()

    async def refresh(self) -> None:
        """Read every record now."""
        # the reading counts from before the question: what was done meanwhile may be missing
        at = self.clock.monotonic()
        if self.live.read(await self.instances.refresh(), at):
            self.changed()

    async def follow(self) -> None:
        """Keep the live stream going until the link is lost.

        Raises:
            NodeLost: it is lost, or the stream will not stay up.
        """
        failures = 0
        while True:
            start = self.clock.monotonic()
            try:
                await self._stream()
                trouble = "it ended"
            except TimeoutError:
                trouble = f"it said nothing for {SAMPLE_SILENCE_S:.0f} s"
            except LlmgwError as error:
                if not self.link.is_up:
                    raise
                trouble = str(error)
            self.live.gap()
            failures = 1 if self.clock.monotonic() - start > STEADY_S else failures + 1
            log.warning("%s: the live stream is started anew: %s", self.name, trouble)
            if failures >= SAMPLER_FAILURES:
                raise NodeLost(f"The live stream of {self.name} does not stay up: {trouble}")
            await asyncio.sleep(2.0**failures)
            await self.refresh()

    async def _stream(self) -> None:
        # a tick was read on the node after the one before it had arrived: that is its age
        at = self.clock.monotonic()
        async with aclosing(
            samples(self.link.exec, self.state_dir, SAMPLE_INTERVAL_S, clock=self.clock.monotonic)
        ) as ticks:
            while True:
                async with asyncio.timeout(SAMPLE_SILENCE_S):
                    tick = await anext(ticks, None)
                if tick is None:
                    return
                arrived = self.clock.monotonic()
                self.live.sampled(tick.sample)
                if not self.live.same_instances(tick.instances):
                    await self.refresh()
                elif self.live.streamed(tick.instances, at):
                    self.changed()
                at = arrived

    async def measure(self) -> None:
        """Measure a round trip now and then, until cancelled."""
        while True:
            self.rtt_s = await self.link.rtt(self.clock.monotonic)
            await asyncio.sleep(RTT_INTERVAL_S)

    async def lost(self) -> None:
        """Wait for the link's end.

        Raises:
            NodeLost: always.
        """
        raise await self.link.lost()
