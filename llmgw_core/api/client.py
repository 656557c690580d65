"""The protocol by which every face speaks to the engine, in-process or over the socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from llmgw_core.api.views import Command, CommandResult, EventView, LogLines, Snapshot


class Client(Protocol):
    """The engine, as a face sees it. Every method raises ``LlmgwError`` and nothing else."""

    where: str
    """``here`` for an engine in this process, else a few words naming whom it is attached to."""

    async def snapshot(self) -> Snapshot:
        """The newest snapshot, at once."""
        ...

    def snapshots(self) -> AsyncIterator[Snapshot]:
        """Snapshots as they change, coalesced: a slow reader skips versions, never lags."""
        ...

    def events(self, *, after: int = 0, follow: bool = True) -> AsyncIterator[EventView]:
        """Events with ``seq > after`` (the last 1,000 kept), then, with follow, new ones."""
        ...

    def logs(
        self, replica: str, *, lines: int = 200, follow: bool = True, previous: bool = False
    ) -> AsyncIterator[LogLines]:
        """A replica's log: its last lines, then, with follow, what comes."""
        ...

    async def command(self, command: Command) -> CommandResult:
        """Carry out a change; returns when it is accepted, not when its effects are complete."""
        ...

    async def aclose(self) -> None:
        """Let go of the engine; an attached engine goes on."""
        ...
