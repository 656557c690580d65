"""A node's live stream: host metrics and the state of its instances, a few bytes every 2 s.

The node's side is ``scripts/sampler.sh``, and ``gpus.sh`` beside it where there are GPUs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from llmgw_core.errors import LlmgwError, RemoteFailed
from llmgw_core.nodes import gpus
from llmgw_core.nodes.exec import Exec
from llmgw_core.nodes.facts import GpuFacts, HostSample
from llmgw_core.nodes.hardware import memory_gb
from llmgw_core.nodes.instance import InstanceStatus
from llmgw_core.nodes.lease import Claim, LeaseHeld, LeaseLine, is_lease_line, parse_lease
from llmgw_core.nodes.records import Listing, Record
from llmgw_core.nodes.script import load, optional_word

PICTURE_END = b"."
"""Ends a tick; said back, it renews the lease."""

_log = logging.getLogger(__name__)

GPU_SILENCE_S = 15.0
"""GPUs whose driver says nothing for this long are unknown again."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One picture of a node."""

    sample: HostSample
    instances: Mapping[str, InstanceStatus]


class TickParser:
    """Lines of sampler.sh in, ticks out. Remembers what the next tick needs of the one before."""

    def __init__(self) -> None:
        self._listing = Listing()
        self._records: dict[str, tuple[str | None, Record]] = {}
        self._cpu: tuple[int, int] | None = None
        self._share: float | None = None
        self._memory: tuple[float | None, float | None] = (None, None)
        self._load: float | None = None

    def take(self, line: bytes) -> Tick | None:
        """Read one line; a tick, where it ends one."""
        if line == PICTURE_END:
            return self._end()
        if self._listing.take(line):
            return None
        kind, _, rest = line.decode(errors="replace").partition(" ")
        if kind == "c":
            self._take_cpu(rest)
        elif kind == "m":
            total, available, limits = [*rest.split(" ", 2), "", "", ""][:3]
            self._memory = memory_gb(total, available, limits)
        elif kind == "l":
            with contextlib.suppress(ValueError):
                self._load = float(rest)
        return None

    def _take_cpu(self, text: str) -> None:
        words = text.split()
        if len(words) < 4 or not all(word.isdigit() for word in words):
            return
        # guest times stand in user and nice already
        times = [int(word) for word in words[:8]]
        total, idle = sum(times), sum(times[3:5])
        if self._cpu is not None and total > self._cpu[0]:
            share = 1 - (idle - self._cpu[1]) / (total - self._cpu[0])
            self._share = min(1.0, max(0.0, share))
        self._cpu = (total, idle)

    def _end(self) -> Tick:
        total, available = self._memory
        used = None if total is None or available is None else max(0.0, total - available)
        instances = self._listing.statuses(self._records)
        for gone in self._records.keys() - instances.keys():
            del self._records[gone]
        tick = Tick(
            HostSample(
                cpu=self._share,
                memory_used_gb=used,
                memory_available_gb=available,
                load1=self._load,
            ),
            instances,
        )
        self._listing = Listing()
        self._share, self._load, self._memory = None, None, (None, None)
        return tick


@dataclass(slots=True)
class _GpuFeed:
    """What the GPU stream said last, card by card."""

    clock: Callable[[], float]
    seen: dict[str, tuple[float, GpuFacts]] = field(default_factory=dict)
    none_there: bool = False

    async def run(self, exec_: Exec, interval_s: float) -> None:
        """Read the stream until it ends, which it does at once where there are no GPUs."""
        try:
            lines = exec_.stream(load("lib.sh", "gpus.sh"), str(max(1, round(interval_s))))
            async with contextlib.aclosing(_closable(lines)) as stream:
                async for line in stream:
                    self.take(line.decode(errors="replace"))
            self.none_there = not self.seen
        except LlmgwError as error:
            # the host's own stream goes on, or reports the lost link by itself
            _log.info("the GPU stream ended: %s", error)

    def take(self, line: str) -> None:
        if line.startswith("a "):
            gpu = gpus.parse_amd_line(line[2:])
        else:
            gpu = gpus.parse_nvidia_line(line)
        if gpu is not None:
            self.seen[gpu.uuid] = (self.clock(), gpu)

    def now(self) -> tuple[GpuFacts, ...] | None:
        """By index; None where nothing is known (any longer)."""
        oldest = self.clock() - GPU_SILENCE_S
        fresh = [gpu for at, gpu in self.seen.values() if at >= oldest]
        if not fresh:
            return () if self.none_there else None
        return tuple(sorted(fresh, key=lambda gpu: gpu.index))


async def samples(
    exec_: Exec,
    state_dir: str | None,
    interval_s: float = 2.0,
    *,
    clock: Callable[[], float] = time.monotonic,
    claim: Claim | None = None,
    node: str = "the node",
) -> AsyncGenerator[Tick, None]:
    """Ticks until the link goes away (``NodeLost``) or the caller closes the generator.

    With a ``claim``, a tick says that the node is ours (or could not write down whose it is), each
    one that the caller deals with renews the lease, and ``LeaseHeld`` ends the stream where the
    node belongs to another controller.

    ``RemoteFailed`` where the node cannot keep the loop, as without a usable state directory.
    The first tick comes at once, without a CPU share. On the node everything ends by itself when
    the connection does.
    """
    feed = _GpuFeed(clock)
    task = asyncio.create_task(feed.run(exec_, interval_s), name="gpu stream")
    parser = TickParser()
    lines = exec_.stream(
        load("lib.sh", "cgroup.sh", "lease.sh", "sampler.sh"),
        optional_word(state_dir),
        f"{interval_s:g}",
        *(claim.args() if claim is not None else ()),
        answer=PICTURE_END,
    )
    try:
        async with contextlib.aclosing(_closable(lines)) as stream:
            async for line in stream:
                if line.startswith(b"! "):
                    raise RemoteFailed(line[2:].decode(errors="replace"), exit_status=73)
                if is_lease_line(line):
                    _heed(parse_lease(line), node)
                    continue
                tick = parser.take(line)
                if tick is not None:
                    yield _with_gpus(tick, feed.now())
        msg = "the sampler on the node ended by itself; it is started again with the connection"
        raise RemoteFailed(msg, exit_status=0)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _heed(line: LeaseLine | None, node: str) -> None:
    if line is None:
        return
    if line.state in ("other", "lost"):
        raise LeaseHeld(node, line)
    if line.state == "was":
        _log.warning("%s was led by %s, whose lease is old, and is led from here now", node,
                     line.holder)  # fmt: skip


def _with_gpus(tick: Tick, found: tuple[GpuFacts, ...] | None) -> Tick:
    sample = tick.sample
    return Tick(
        HostSample(
            cpu=sample.cpu,
            memory_used_gb=sample.memory_used_gb,
            memory_available_gb=sample.memory_available_gb,
            load1=sample.load1,
            gpus=found,
        ),
        tick.instances,
    )


async def _closable(lines: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The same lines, as something whose end also ends the stream underneath."""
    try:
        async for line in lines:
            yield line
    finally:
        close = getattr(lines, "aclose", None)
        if close is not None:
            await close()
