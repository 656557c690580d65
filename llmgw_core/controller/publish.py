"""The newest snapshot, for any number of readers at their own pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec

from llmgw_core.api.views import Snapshot
from llmgw_core.errors import LlmgwError


class Publisher:
    """Holds one snapshot; readers skip the versions that they were too slow for."""

    def __init__(self) -> None:
        self._newest: Snapshot | None = None
        self._changed = asyncio.Event()
        self._version = 0

    def publish(self, snapshot: Snapshot) -> None:
        """Make this the newest, with the next version number."""
        self._version += 1
        self._newest = msgspec.structs.replace(snapshot, version=self._version)
        self._changed.set()
        self._changed = asyncio.Event()

    async def snapshot(self, timeout_s: float = 10.0) -> Snapshot:
        """The newest; waits for the first one for a bounded time."""
        if self._newest is None:
            try:
                await asyncio.wait_for(self._changed.wait(), timeout_s)
            except TimeoutError:
                raise LlmgwError("the controller has not started yet; try again") from None
        if self._newest is None:
            raise LlmgwError("the controller has not started yet; try again")
        return self._newest

    async def stream(self) -> AsyncIterator[Snapshot]:
        """The newest, then each newer one that the reader is quick enough for."""
        last = -1
        while True:
            changed = self._changed
            newest = self._newest
            if newest is not None and newest.version != last:
                last = newest.version
                yield newest
            else:
                await changed.wait()
