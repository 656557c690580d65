"""An engine for tests of the console: it shows what it is told and records what it is asked."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from llmgw_core.api.views import Command, CommandResult, EventView, LogLines, Snapshot
from llmgw_core.errors import LlmgwError

Answer = CommandResult | LlmgwError | Callable[[Command], "Awaitable[CommandResult]"]


class FakeClient:
    """A ``Client`` over a snapshot that the test replaces as it likes."""

    def __init__(self, snapshot: Snapshot, *, where: str = "here") -> None:
        self.where = where
        self.now_showing = snapshot
        self.commands: list[Command] = []
        self.answers: dict[str, Answer] = {}
        self.events_so_far: list[EventView] = []
        self.log_lines: dict[str, list[str]] = defaultdict(list)
        self.closed = False
        self.followers = 0
        self._lost: LlmgwError | None = None
        self._changed = asyncio.Event()

    # what a test does

    def publish(self, snapshot: Snapshot) -> None:
        """Show another snapshot."""
        self.now_showing = snapshot
        self._wake()

    def emit(self, *events: EventView) -> None:
        """Let something have happened."""
        self.events_so_far += events
        self._wake()

    def write_log(self, replica: str, *lines: str) -> None:
        """Append to a replica's log."""
        self.log_lines[replica] += lines
        self._wake()

    def lose(self, error: LlmgwError) -> None:
        """Cut the connection: every stream and every later call ends with the error."""
        self._lost = error
        self._wake()

    # the protocol

    async def snapshot(self) -> Snapshot:
        """The one the test gave last."""
        self._check()
        return self.now_showing

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        """Each one the test gives, coalesced."""
        self._check()
        shown = self.now_showing
        yield shown
        while True:
            await self._wait()
            if self.now_showing is not shown:
                shown = self.now_showing
                yield shown

    async def events(self, *, after: int = 0, follow: bool = True) -> AsyncIterator[EventView]:
        """Those emitted, in order."""
        self._check()
        given = 0
        while True:
            while given < len(self.events_so_far):
                event = self.events_so_far[given]
                given += 1
                if event.seq > after:
                    yield event
            if not follow:
                return
            await self._wait()

    async def logs(
        self, replica: str, *, lines: int = 200, follow: bool = True, previous: bool = False
    ) -> AsyncIterator[LogLines]:
        """The lines written for this replica (``REPLICA previous`` for the earlier run)."""
        self._check()
        key = f"{replica} previous" if previous else replica
        self.followers += 1
        try:
            given = max(0, len(self.log_lines[key]) - lines)
            while True:
                if new := self.log_lines[key][given:]:
                    given += len(new)
                    yield LogLines(tuple(new))
                if not follow:
                    return
                await self._wait()
        finally:
            self.followers -= 1

    async def command(self, command: Command) -> CommandResult:
        """Record it, and answer as told (done, unless told otherwise)."""
        self._check()
        if command.name == "preview" and "preview" not in self.answers:
            return CommandResult("")  # it asks nothing of anybody
        self.commands.append(command)
        answer = self.answers.get(command.name, CommandResult(f"{command.name}: done"))
        if isinstance(answer, CommandResult):
            return answer
        if isinstance(answer, LlmgwError):
            raise answer
        return await answer(command)

    async def aclose(self) -> None:
        """Remember that the console let go."""
        self.closed = True

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost

    async def _wait(self) -> None:
        changed = self._changed
        self._check()
        await changed.wait()
        self._check()


def connecting_to(
    *clients: FakeClient, says: tuple[str, ...] = ()
) -> Callable[[Callable[[str], None]], Awaitable[FakeClient]]:
    """A ``connect`` that gives these clients in turn, then waits for ever."""
    left = list(clients)

    async def connect(progress: Callable[[str], None]) -> FakeClient:
        for sentence in says:
            progress(sentence)
        if not left:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            raise asyncio.CancelledError
        return left.pop(0)

    return connect
