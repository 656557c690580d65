"""The controller as its faces reach it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from llmgw_core.api.views import Command, CommandResult, EventView, LogLines, Snapshot
from llmgw_core.controller.commands import Commands
from llmgw_core.controller.core import Controller
from llmgw_core.errors import NotFound

LINE_BYTES = 200
"""A guess at a line's length, for how much of a log to read for so many lines."""
READ_MOST = 1024 * 1024


class ControllerService:
    """Satisfies ``api.service.Service``."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self._commands = Commands(controller)

    async def snapshot(self) -> Snapshot:
        """The newest snapshot."""
        return await self.controller.publisher.snapshot()

    def snapshots(self) -> AsyncIterator[Snapshot]:
        """Snapshots as they change, coalesced."""
        return self.controller.publisher.stream()

    def events(self, *, after: int, follow: bool) -> AsyncIterator[EventView]:
        """Events after a number, then, with follow, new ones."""
        return self.controller.events.stream(after=after, follow=follow)

    async def command(self, command: Command) -> CommandResult:
        """Carry out a change."""
        return await self._commands.run(command)

    async def logs(
        self, replica: str, *, lines: int, follow: bool, previous: bool
    ) -> AsyncIterator[LogLines]:
        """A replica's log: its last lines, then, with follow, what comes.

        Raises:
            NotFound: there is no such replica.
            NodeLost: its node is away.
        """
        found = self.controller.roster.get(replica)
        if found is None:
            raise NotFound(f"there is no replica {replica!r}")
        node = self.controller.fleet.nodes.get(found.node)
        if node is None:
            raise NotFound(f"node {found.node} is no longer configured")
        limit = min(max(lines, 1) * LINE_BYTES, READ_MOST)
        chunk = await node.read_log(found.instance, limit=limit, previous=previous)
        text = chunk.data.decode(errors="replace").splitlines()
        yield LogLines(tuple(text[-lines:] if lines else ()))
        if not follow or previous:
            return
        rest = b""
        async for data in node.follow_log(found.instance, offset=chunk.next_offset):
            *whole, rest = (rest + data).split(b"\n")
            if whole:
                yield LogLines(tuple(line.decode(errors="replace") for line in whole))
