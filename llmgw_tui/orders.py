"""Commands on their way to the engine: in the background, in order per target, bounded."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from llmgw_core.api.client import Client
from llmgw_core.api.commands import DANGEROUS
from llmgw_core.api.views import Command
from llmgw_core.catalog.secrets import masked_source
from llmgw_core.errors import LlmgwError, NoController, Refused
from llmgw_tui.command_line import spell

log = logging.getLogger(__name__)

AT_ONCE = 64
"""Commands under way at most; more are refused."""
ANSWER_WITHIN_S = 900.0
"""The longest wait for one answer: installing an engine takes minutes."""
KEPT = 200


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one command."""

    command: Command
    ok: bool
    text: str
    """The engine's sentence, or the error's."""
    data: Any = None
    at: float = 0.0

    @property
    def target(self) -> str:
        """The name of what it was done to, as far as it names one."""
        return named(self.command)

    @property
    def spelled(self) -> str:
        """As it can be repeated on the ``:`` line or after ``llmgw run``."""
        return spell(self.command)


def named(command: Command) -> str:
    """What a command is about; empty where that is nothing that has a name."""
    args = command.args
    if "version" in args:
        return f"{args.get('model', '')}/{args['version']}"
    if "source" in args:
        return masked_source(str(args["source"]))
    return str(args.get("replica", args.get("name", "")))


class Orders:
    """Sends commands and remembers what came of them."""

    def __init__(
        self, client: Callable[[], Client | None], clock: Callable[[], float], *, read_only: bool
    ) -> None:
        self._client = client
        self._clock = clock
        self._read_only = read_only
        self._tasks: set[asyncio.Task[None]] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.done: deque[Outcome] = deque(maxlen=KEPT)
        """Newest last."""

    @property
    def under_way(self) -> int:
        """How many batches of commands are not answered yet."""
        return len(self._tasks)

    def give(self, commands: Sequence[Command], then: Callable[[list[Outcome]], None]) -> None:
        """Send commands in the background; ``then`` gets all outcomes, in their order."""
        if len(self._tasks) >= AT_ONCE:
            busy = Refused("Too many commands wait for an answer", hint="try again in a moment")
            then([Outcome(command, False, str(busy), at=self._clock()) for command in commands])
            return
        task = asyncio.create_task(self._give(tuple(commands), then), name="console orders")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def foresee(self, commands: Sequence[Command]) -> Outcome:
        """What these commands would do, as the engine foresees it; remembered nowhere."""
        asked = [{"name": command.name, "args": dict(command.args)} for command in commands]
        preview = Command("preview", {"commands": asked})
        try:
            return await self._answer(preview)
        except (LlmgwError, TimeoutError) as error:
            return Outcome(preview, False, str(error) or "the engine has not answered")

    async def close(self) -> None:
        """Give up on what is not answered yet."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _give(
        self, commands: tuple[Command, ...], then: Callable[[list[Outcome]], None]
    ) -> None:
        outcomes = await asyncio.gather(*(self._send(command) for command in commands))
        self.done.extend(outcomes)
        try:
            then(outcomes)
        except Exception:  # the boundary of this task: a screen that is gone must not end it badly
            log.exception("showing what came of a command failed")

    async def _send(self, command: Command) -> Outcome:
        key = named(command) or command.name
        turn = self._locks.get(key)
        if turn is None:
            turn = self._locks[key] = asyncio.Lock()
        async with turn:
            try:
                return await self._answer(command)
            except LlmgwError as error:
                return Outcome(command, False, str(error), at=self._clock())
            except TimeoutError:
                sentence = "The engine has not answered; what was asked may still happen"
                return Outcome(command, False, sentence, at=self._clock())

    async def _answer(self, command: Command) -> Outcome:
        if self._read_only and command.name in DANGEROUS:
            raise Refused("This console is read-only", hint="start it without --read-only")
        client = self._client()
        if client is None:
            raise NoController("There is no connection to the engine", hint="wait until it is back")
        async with asyncio.timeout(ANSWER_WITHIN_S):
            result = await client.command(command)
        return Outcome(command, True, result.text, result.data, self._clock())
