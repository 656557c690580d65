"""The client of ``llmgw run``: blocking, and light to import."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from llmgw_core.api.views import CommandResult, ErrorBody, EventView, LogLines, Snapshot
from llmgw_core.errors import BY_CODE, LlmgwError, NoController

T = TypeVar("T")

COMMAND_MOST_S = 900.0
STREAM_GAP_S = 40.0


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("controller", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of a host."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class SyncClient:
    """Speaks to a controller's socket, one request at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def is_up(self) -> bool:
        """Whether a controller answers."""
        try:
            self.snapshot()
        except LlmgwError:
            return False
        return True

    def snapshot(self) -> Snapshot:
        """The newest snapshot.

        Raises:
            NoController: nobody answers on the socket.
        """
        return msgspec.json.decode(self._ask("GET", "/v1/snapshot", 15.0), type=Snapshot)

    def command(self, name: str, args: dict[str, Any], actor: str) -> CommandResult:
        """Carry out a change."""
        body = json.dumps({"args": args, "actor": actor}).encode()
        answer = self._ask("POST", f"/v1/commands/{name}", COMMAND_MOST_S, body)
        return msgspec.json.decode(answer, type=CommandResult)

    def events(self, *, after: int, follow: bool) -> Iterator[EventView]:
        """Events after a number, then, with follow, new ones."""
        query = urlencode({"after": after, "follow": int(follow)})
        return self._lines(f"/v1/events?{query}", EventView)

    def logs(self, replica: str, *, lines: int, follow: bool, previous: bool) -> Iterator[LogLines]:
        """A replica's log."""
        query = urlencode({"replica": replica, "lines": lines, "follow": int(follow),
                           "previous": int(previous)})  # fmt: skip
        return self._lines(f"/v1/logs?{query}", LogLines)

    def _open(
        self, method: str, path: str, timeout_s: float, body: bytes | None = None
    ) -> tuple[_UnixConnection, http.client.HTTPResponse]:
        connection = _UnixConnection(self._path, timeout_s)
        try:
            connection.request(method, path, body)
            response = connection.getresponse()
        except OSError as error:
            connection.close()
            raise NoController(
                "no controller runs for this cluster; start one with `llmgw` or "
                f"`llmgw --headless` ({self._path}: {error.strerror or error})"
            ) from error
        if response.status != http.client.OK:
            content = response.read()
            connection.close()
            raise _error(response.status, content)
        return connection, response

    def _ask(self, method: str, path: str, timeout_s: float, body: bytes | None = None) -> bytes:
        connection, response = self._open(method, path, timeout_s, body)
        try:
            return response.read()
        except (OSError, http.client.HTTPException) as error:
            raise NoController("the controller went away while it was answering") from error
        finally:
            connection.close()

    def _lines(self, path: str, kind: type[T]) -> Iterator[T]:
        decoder = msgspec.json.Decoder(kind)
        connection, response = self._open("GET", path, STREAM_GAP_S)
        try:
            for line in response:
                if line.strip():
                    yield decoder.decode(line)
        except (OSError, http.client.HTTPException) as error:
            raise NoController("the controller went away") from error
        finally:
            connection.close()


def _error(status: int, content: bytes) -> LlmgwError:
    try:
        body = msgspec.json.decode(content, type=ErrorBody)
    except msgspec.MsgspecError:
        return LlmgwError(f"the controller answered {status}")
    return BY_CODE.get(body.code, LlmgwError)(body.message)
