"""What the console knows: the newest snapshot, events, and how it stands with the engine."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from enum import StrEnum

from llmgw_core.api.client import Client
from llmgw_core.api.views import (
    EventView,
    MirrorVersionView,
    ModelView,
    NodeView,
    ReplicaView,
    Snapshot,
)
from llmgw_core.errors import LlmgwError

log = logging.getLogger(__name__)

Connect = Callable[[Callable[[str], None]], Awaitable[Client]]
"""Reaches an engine, saying on the way how far it is."""

EVENTS_KEPT = 1000
SENTENCES_KEPT = 6
BACK_OFF_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Waits between attempts to reach an engine again; the last one repeats."""


class Phase(StrEnum):
    """How the console stands with the engine."""

    STARTING = "starting"
    LIVE = "live"
    LOST = "lost"


class EngineLink:
    """Reads from the engine as long as it runs, and reaches it again when it is lost.

    It holds the newest snapshot only: a slow screen skips versions. ``run`` belongs to one task,
    which the application owns. ``dirty`` says that something changed since it was last cleared.
    """

    def __init__(
        self, connect: Connect, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._connect = connect
        self._sleep = sleep
        self.client: Client | None = None
        self.where = ""
        """Of the engine reached last: ``here``, or whom the console is attached to."""
        self.phase = Phase.STARTING
        self.snapshot: Snapshot | None = None
        self.events: deque[EventView] = deque(maxlen=EVENTS_KEPT)
        """Oldest first."""
        self.sentences: deque[str] = deque(maxlen=SENTENCES_KEPT)
        """What the engine said while starting."""
        self.lost_because = ""
        self.closing = False
        """Set when the console asked the engine to end: its loss is then expected."""
        self.dirty = False

    async def run(self) -> None:
        """Connect, read, and connect again; for ever.

        Raises:
            LlmgwError: the engine could not be reached the first time.
        """
        attempt = 0
        while True:
            if await self._reach():
                attempt = 0
                await self._read()
            if self.closing:
                return
            await self._sleep(BACK_OFF_S[min(attempt, len(BACK_OFF_S) - 1)])
            attempt += 1

    async def newest(self) -> None:
        """Ask for the newest snapshot now.

        Raises:
            LlmgwError: the engine does not answer.
        """
        if self.client is not None:
            self._take(await self.client.snapshot())

    async def close(self) -> None:
        """Let go of the engine."""
        client, self.client = self.client, None
        if client is not None:
            await client.aclose()

    async def _reach(self) -> bool:
        try:
            client = await self._connect(self._say)
        except LlmgwError as error:
            if self.phase is Phase.STARTING:
                raise
            self._lose(str(error))
            return False
        self.client, self.where, self.phase = client, client.where, Phase.LIVE
        self.events.clear()
        self.dirty = True
        return True

    async def _read(self) -> None:
        client = self.client
        if client is None:
            return
        try:
            async with asyncio.TaskGroup() as group:
                readers = {
                    group.create_task(self._read_snapshots(client)),
                    group.create_task(self._read_events(client)),
                }
                done, rest = await asyncio.wait(readers, return_when=asyncio.FIRST_COMPLETED)
                for task in rest:
                    task.cancel()
                self._lose(next(iter(done)).result())
        finally:
            await self.close()

    async def _read_snapshots(self, client: Client) -> str:
        """Returns why it ended."""
        try:
            async for snapshot in client.snapshots():
                self._take(snapshot)
        except LlmgwError as error:
            return str(error)
        return "The engine has ended"

    async def _read_events(self, client: Client) -> str:
        """Returns why it ended."""
        try:
            async for event in client.events():
                self.events.append(event)
                self.dirty = True
        except LlmgwError as error:
            return str(error)
        return "The engine has ended"

    def _take(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.dirty = True

    def _say(self, sentence: str) -> None:
        self.sentences.append(sentence)
        self.dirty = True

    def _lose(self, sentence: str) -> None:
        log.warning("lost the engine: %s", sentence)
        self.phase, self.lost_because, self.dirty = Phase.LOST, sentence, True


def node_named(snapshot: Snapshot | None, name: str) -> NodeView | None:
    """The node, or None where there is none (any more)."""
    return next((n for n in snapshot.nodes if n.name == name), None) if snapshot else None


def replica_named(snapshot: Snapshot | None, id_: str) -> ReplicaView | None:
    """The replica, or None where there is none (any more)."""
    return next((r for r in snapshot.replicas if r.id == id_), None) if snapshot else None


def model_named(snapshot: Snapshot | None, name: str) -> ModelView | None:
    """The model, or None where there is none (any more)."""
    return next((m for m in snapshot.models if m.name == name), None) if snapshot else None


def version_key(version: MirrorVersionView) -> str:
    """``MODEL/VERSION``, by which the mirror's versions are known."""
    return f"{version.model}/{version.version}"


def version_named(snapshot: Snapshot | None, key: str) -> MirrorVersionView | None:
    """The version in the mirror, or None where there is none (any more)."""
    versions = snapshot.mirror.versions if snapshot else ()
    return next((v for v in versions if version_key(v) == key), None)
