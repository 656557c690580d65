"""The client of a controller in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from llmgw_core.api.service import Service
from llmgw_core.api.views import Command, CommandResult, EventView, LogLines, Snapshot


class LocalClient:
    """Satisfies ``Client`` by calling the service directly."""

    where = "here"

    def __init__(self, service: Service, close: Callable[[], Awaitable[None]]) -> None:
        self._service = service
        self._close = close

    async def snapshot(self) -> Snapshot:
        """The newest snapshot."""
        return await self._service.snapshot()

    def snapshots(self) -> AsyncIterator[Snapshot]:
        """Snapshots as they change."""
        return self._service.snapshots()

    def events(self, *, after: int = 0, follow: bool = True) -> AsyncIterator[EventView]:
        """Events after a number, then new ones."""
        return self._service.events(after=after, follow=follow)

    def logs(
        self, replica: str, *, lines: int = 200, follow: bool = True, previous: bool = False
    ) -> AsyncIterator[LogLines]:
        """A replica's log."""
        return self._service.logs(replica, lines=lines, follow=follow, previous=previous)

    async def command(self, command: Command) -> CommandResult:
        """Carry out a change."""
        return await self._service.command(command)

    async def aclose(self) -> None:
        """End the engine; replicas and gateway go on."""
        await self._close()
