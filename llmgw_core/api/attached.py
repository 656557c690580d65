"""The client of a controller in another process, for the console: HTTP over its Unix socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import msgspec

from llmgw_core.api.views import (
    Command,
    CommandResult,
    ErrorBody,
    EventView,
    LogLines,
    Snapshot,
)
from llmgw_core.errors import BY_CODE, LlmgwError, NoController

T = TypeVar("T")

GAP_MOST_S = 40.0
"""The server sends an empty line every 15 s, so a longer silence is a dead controller."""
COMMAND_MOST_S = 900.0
"""Installing an engine takes minutes."""


class AttachedClient:
    """Satisfies ``Client`` over a socket."""

    def __init__(self, socket: Path, where: str) -> None:
        self.where = where
        self._socket = socket
        timeout = httpx.Timeout(10.0, read=GAP_MOST_S)
        transport = httpx.AsyncHTTPTransport(uds=str(socket))
        self._http = httpx.AsyncClient(
            transport=transport, base_url="http://controller", timeout=timeout
        )

    async def snapshot(self) -> Snapshot:
        """The newest snapshot."""
        async with self._mapped():
            response = await self._http.get("/v1/snapshot")
            _raise_for(response)
            return msgspec.json.decode(response.content, type=Snapshot)

    async def snapshots(self) -> AsyncIterator[Snapshot]:
        """Snapshots as they change."""
        async for item in self._lines("/v1/snapshots", {}, Snapshot):
            yield item

    async def events(self, *, after: int = 0, follow: bool = True) -> AsyncIterator[EventView]:
        """Events after a number, then new ones."""
        query = {"after": str(after), "follow": str(int(follow))}
        async for item in self._lines("/v1/events", query, EventView):
            yield item

    async def logs(
        self, replica: str, *, lines: int = 200, follow: bool = True, previous: bool = False
    ) -> AsyncIterator[LogLines]:
        """A replica's log."""
        query = {
            "replica": replica,
            "lines": str(lines),
            "follow": str(int(follow)),
            "previous": str(int(previous)),
        }
        async for item in self._lines("/v1/logs", query, LogLines):
            yield item

    async def command(self, command: Command) -> CommandResult:
        """Carry out a change."""
        async with self._mapped():
            response = await self._http.post(
                f"/v1/commands/{command.name}",
                json={"args": command.args, "actor": command.actor},
                timeout=COMMAND_MOST_S,
            )
            _raise_for(response)
            return msgspec.json.decode(response.content, type=CommandResult)

    async def aclose(self) -> None:
        """Let go of the socket; the controller goes on."""
        await self._http.aclose()

    async def _lines(self, path: str, query: dict[str, str], kind: type[T]) -> AsyncIterator[T]:
        decoder = msgspec.json.Decoder(kind)
        async with self._mapped(), self._http.stream("GET", path, params=query) as response:
            if response.status_code != httpx.codes.OK:
                await response.aread()
                _raise_for(response)
            async for line in response.aiter_lines():
                if line:
                    yield decoder.decode(line)

    @asynccontextmanager
    async def _mapped(self) -> AsyncIterator[None]:
        """Turn the library's errors into ours."""
        try:
            yield
        except httpx.HTTPError as error:
            raise NoController(
                f"the controller on {self._socket} does not answer ({type(error).__name__})"
            ) from error
        except msgspec.MsgspecError as error:
            raise LlmgwError(
                f"the controller speaks another version of the protocol ({error})",
                hint="restart it with this version of llmgw",
            ) from error


def _raise_for(response: httpx.Response) -> None:
    if response.status_code == httpx.codes.OK:
        return
    try:
        body = msgspec.json.decode(response.content, type=ErrorBody)
    except msgspec.MsgspecError:
        raise LlmgwError(f"the controller answered {response.status_code}") from None
    raise BY_CODE.get(body.code, LlmgwError)(body.message)
