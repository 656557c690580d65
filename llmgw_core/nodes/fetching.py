"""Bringing weights to a node, and waiting until they are there.

The work runs on the node as an instance of its own, so that it outlives the link and this process:
whoever asks again finds it by its name and joins. A node that cannot reach the mirror is pushed to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from llmgw_core.errors import RemoteFailed
from llmgw_core.nodes.api import NodeHandle
from llmgw_core.nodes.instance import InstanceState, InstanceStatus
from llmgw_core.nodes.weights import (
    FetchExit,
    FetchJob,
    FetchLog,
    FetchProgress,
    fetch_spec,
    instance_name,
)

log = logging.getLogger(__name__)

POLL_S = 1.0
FIRST_POLL_S = 0.1
QUIET_POLLS = 3
"""Looks at a log that says nothing new before the instance itself is looked at."""
LOG_CHUNK = 32 << 10
ROUNDS = 6
"""Fetches of others that ended badly, or were tidied away, before it is given up."""
STOP_GRACE_S = 5.0
FORGET_TRIES = 20
_PUSH = (FetchExit.UNREACHABLE, FetchExit.NO_TOOL)


class Push(Protocol):
    """Another way of bringing the bytes of a job's half files to a node."""

    async def __call__(
        self, node: NodeHandle, job: FetchJob, progress: Callable[[FetchProgress], None]
    ) -> None:
        """Send what is missing; the node checks it afterwards.

        Raises:
            NodeLost, NodeRefused, RemoteFailed: it could not be sent.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a fetch ended; ``status`` is None where nobody wrote it down."""

    status: int | None
    error: str


async def ensure_weights(
    node: NodeHandle,
    job: FetchJob,
    *,
    progress: Callable[[FetchProgress], None],
    push: Push | None = None,
    reachable: bool = True,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> str:
    """Make it so that a version lies on a node, and return where: its file, or its folder.

    Cancelled, it leaves the fetch on the node running (but ends a push): asking again joins it,
    and ``stop_fetch`` ends it.

    Args:
        progress: called about once a second.
        push: what to do where the node cannot fetch from the mirror.
        reachable: False where it is known that the node cannot: it is pushed to at once, and
            nothing is sent to an address that may be somebody else's there.

    Raises:
        InvalidInput: a job that no node could do.
        NodeLost, NodeRefused: the link went away; the fetch goes on.
        RemoteFailed: it failed; ``exit_status`` is one of ``FetchExit`` where known.
    """
    fetch = _Fetch(node, job, progress, sleep)
    held = (await node.weights()).get(job.key)
    if held is None or not held.satisfies(job):
        await fetch.bring(push, reachable=reachable)
        held = (await node.weights()).get(job.key)
        if held is None or not held.satisfies(job):
            raise fetch.failure(None, "its files were changed on the node as soon as they came")
    progress(FetchProgress(job.bytes_total, job.bytes_total, "done", done=True))
    path = node.weights_path(job.key, job.files[0].path if len(job.files) == 1 else "")
    if path is None:
        raise fetch.failure(None, "the node does not say where its state directory is")
    return path


async def stop_fetch(node: NodeHandle, key: str) -> None:
    """End the fetch of a version, if one runs; what has come is kept for the next.

    Raises:
        NodeLost, NodeRefused, RemoteFailed: as every act on a node.
    """
    name = instance_name(key)
    if name in await node.refresh_instances():
        await node.stop_instance(name, grace_s=STOP_GRACE_S)
        await node.forget_instance(name)


class _Fetch:
    def __init__(
        self,
        node: NodeHandle,
        job: FetchJob,
        progress: Callable[[FetchProgress], None],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._node = node
        self._job = job
        self._progress = progress
        self._sleep = sleep
        self._pushed = False

    async def bring(self, push: Push | None, *, reachable: bool) -> None:
        """Fetch, or join who does, until it is there."""
        if not reachable and push is not None:
            await push(self._node, self._job, self._progress)
            self._pushed = True
        for _ in range(ROUNDS):
            own = await self._begin()
            ended = await self._watch()
            if ended.status == FetchExit.DONE:
                await self._forget()
                return
            if ended.status is None or not own:
                # another's, who tidied it away, or asked for something else: see for ourselves
                held = (await self._node.weights()).get(self._job.key)
                if held is not None and held.satisfies(self._job):
                    return
                continue
            await self._forget()
            if ended.status not in _PUSH or push is None or self._pushed:
                raise self.failure(ended.status, ended.error)
            log.info("%s: pushing %s: %s", self._name, self._job.key, ended.error)
            try:
                await push(self._node, self._job, self._progress)
            except RemoteFailed as error:
                # either of the two would help
                raise self.failure(ended.status, f"{error}; and {ended.error}") from error
            self._pushed = True
        raise self.failure(None, "it ended again and again without a word")

    async def _begin(self) -> bool:
        """Start it, or find it running; returns whether it is what we would have started."""
        status = (await self._node.refresh_instances()).get(self._job.instance)
        if status is None or not _under_way(status):
            try:
                await self._node.start_instance(fetch_spec(self._job, check_only=self._pushed))
            except RemoteFailed:
                # somebody else's may have begun since we looked
                status = (await self._node.refresh_instances()).get(self._job.instance)
                if status is None or not _under_way(status):
                    raise
            else:
                return True
        return status.record.get("fetch") == self._job.digest

    async def _watch(self) -> _Ended:
        offset: int | None = None
        heard = FetchLog()
        quiet, pause_s = 0, FIRST_POLL_S
        last: InstanceStatus | None = None
        while True:
            chunk = await self._node.read_log(self._job.instance, offset=offset, limit=LOG_CHUNK)
            if offset is not None and chunk.next_offset < offset:
                heard = FetchLog()  # another run has begun
            offset = chunk.next_offset
            heard.feed(chunk.data)
            if heard.status is not None:
                return _Ended(heard.status, heard.error)
            if chunk.data:
                quiet, last = 0, None
                if (latest := heard.latest) is not None:
                    # who waits for another's fetch has not added up yet
                    self._progress(replace(latest, bytes_total=self._job.bytes_total))
                if offset < chunk.size:
                    continue
            elif last is not None:  # ended before this look, which found nothing more
                return self._ended_silently(last)
            else:
                quiet += 1
                if quiet % QUIET_POLLS == 0:
                    found = (await self._node.refresh_instances()).get(self._job.instance)
                    if found is None:
                        return _Ended(None, "")
                    if not _under_way(found):
                        last = found
                        continue
            await self._sleep(pause_s)
            pause_s = min(pause_s * 2, POLL_S)

    def _ended_silently(self, status: InstanceStatus) -> _Ended:
        if status.state is not InstanceState.EXITED or not status.exit_status:
            return _Ended(None, "")  # a reboot, or its log was tidied away
        if status.exit_status in (143, 137):
            raise self.failure(status.exit_status, "it was stopped on the node")
        return _Ended(status.exit_status, f"it ended with status {status.exit_status}")

    async def _forget(self) -> None:
        """Take the record away; its process may need a moment after its last word."""
        for _ in range(FORGET_TRIES):
            try:
                await self._node.forget_instance(self._job.instance)
            except RemoteFailed as error:
                log.debug("%s: %s is kept: %s", self._name, self._job.instance, error)
                await self._sleep(FIRST_POLL_S)
            else:
                return

    @property
    def _name(self) -> str:
        return self._node.config.name

    def failure(self, status: int | None, error: str) -> RemoteFailed:
        """What a person is told."""
        msg = f"{self._job.key} could not be brought to {self._name}: {error}"
        return RemoteFailed(msg, exit_status=-1 if status is None else status, output=error)


def _under_way(status: InstanceStatus) -> bool:
    return status.state.alive or status.state is InstanceState.ENDING
