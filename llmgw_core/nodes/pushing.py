"""Having weights pushed over SSH by a process of its own: ``llmgw_core.nodes.push``.

Every byte costs the pushing side's CPU time, which the controller's loop cannot spare.
"""

from __future__ import annotations

import asyncio
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from pathlib import Path

import msgspec

from llmgw_core.errors import NodeLost, RemoteFailed
from llmgw_core.gateway.table import Tunnel
from llmgw_core.nodes.api import NodeHandle
from llmgw_core.nodes.weights import FetchJob, FetchProgress, Rate

LINE_LIMIT = 64 << 10


class PushFile(msgspec.Struct, frozen=True):
    """One file of a push; ``path`` is below the version, ``source`` on this machine."""

    path: str
    size: int
    sha256: str
    source: str


class PushOrder(msgspec.Struct, frozen=True):
    """What the process is told on stdin. No secrets: of keys the paths only."""

    tunnel: Tunnel
    label: str
    state_dir: str | None
    key: str
    files: tuple[PushFile, ...]


class PushSaid(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of its stdout."""

    done: int = 0
    """Bytes of the whole version that are on the node."""
    file: str = ""
    error: str = ""
    status: int = -1
    """With an error: the node's exit status; -1 where there is none."""
    lost: bool = False
    """With an error: the node could not be reached, or the link broke."""


class Pusher:
    """A ``fetching.Push`` out of a folder that has every version as ``MODEL/VERSION``."""

    def __init__(
        self,
        root: Path,
        *,
        at_once: int = 2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.root = root
        self._slots = asyncio.Semaphore(at_once)
        self._clock = clock

    async def __call__(
        self, node: NodeHandle, job: FetchJob, progress: Callable[[FetchProgress], None]
    ) -> None:
        """See ``fetching.Push``. Waits while as many pushes as may be are under way.

        Raises:
            NodeLost: the node could not be reached, or the link broke.
            RemoteFailed: the node has no way by SSH for another process, or the push failed.
        """
        order = self._order(node, job)
        progress(FetchProgress(0, job.bytes_total, "wait"))
        async with self._slots:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "llmgw_core.nodes.push"),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                limit=LINE_LIMIT,
            )
            try:
                await self._follow(process, order, job, progress)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    def _order(self, node: NodeHandle, job: FetchJob) -> PushOrder:
        name, tunnel = node.config.name, node.ssh_route()
        if tunnel is None:
            raise RemoteFailed(f"{job.key} cannot be pushed: {name} is not reached", exit_status=-1)
        folder = self.root / job.key
        files = (PushFile(f.path, f.size, f.sha256, str(folder / f.path)) for f in job.files)
        state = node.facts.state_dir if node.facts is not None else node.config.state_dir
        return PushOrder(tunnel, name, state, job.key, tuple(files))

    async def _follow(
        self,
        process: Process,
        order: PushOrder,
        job: FetchJob,
        progress: Callable[[FetchProgress], None],
    ) -> None:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both were asked for")
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        rate = Rate()
        async for line in process.stdout:
            said = msgspec.json.decode(line, type=PushSaid)
            if said.lost:
                raise NodeLost(said.error)
            if said.error:
                raise RemoteFailed(said.error, exit_status=said.status)
            speed = rate.add(self._clock(), said.done)
            progress(FetchProgress(said.done, job.bytes_total, "push", said.file, rate=speed))
        if await process.wait() != 0:
            msg = f"the process that pushed {job.key} to {order.label} ended without a word"
            raise RemoteFailed(msg, exit_status=-1)
