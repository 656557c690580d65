"""What the socket serves and the in-process client calls: the engine behind the protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from llmgw_core.api.views import Command, CommandResult, EventView, LogLines, Snapshot


class Service(Protocol):
    """An engine as its faces reach it; ``controller.service`` has the real one."""

    async def snapshot(self) -> Snapshot:
        """The newest snapshot."""
        ...

    def snapshots(self) -> AsyncIterator[Snapshot]:
        """Snapshots as they change, coalesced."""
        ...

    def events(self, *, after: int, follow: bool) -> AsyncIterator[EventView]:
        """Events after a number, then, with follow, new ones."""
        ...

    def logs(
        self, replica: str, *, lines: int, follow: bool, previous: bool
    ) -> AsyncIterator[LogLines]:
        """A replica's log: its last lines, then, with follow, what comes."""
        ...

    async def command(self, command: Command) -> CommandResult:
        """Carry out a change, or raise ``LlmgwError``."""
        ...
