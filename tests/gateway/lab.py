"""A gateway inside the test's own process, with clients that speak raw HTTP to it.

Leaving the lab checks what must hold after every test: nothing outstanding, nothing held, and no
error in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from llmgw_core.gateway.app import Gateway
from llmgw_core.gateway.settings import GatewaySettings
from llmgw_core.gateway.table import RouteModel, Table, Target
from tests.gateway.upstream import Script, Upstream

BOUND_S = 20.0


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for a condition."""
    async with asyncio.timeout(BOUND_S):
        while not condition():
            await asyncio.sleep(0.005)


@dataclass
class Response:
    """What a client got."""

    status: int
    headers: dict[str, str]
    body: bytes
    complete: bool
    """Whether the body ended as its framing announced."""

    def json(self) -> dict[str, object]:
        document: dict[str, object] = msgspec.json.decode(self.body)
        return document

    @property
    def error(self) -> dict[str, object]:
        found = self.json()["error"]
        assert isinstance(found, dict)
        return found


class Client:
    """One connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def post(
        self, body: bytes, path: str = "/v1/chat/completions", head: str = "", version: str = "1.1"
    ) -> None:
        await self.send(
            f"POST {path} HTTP/{version}\r\nhost: gateway\r\ncontent-type: application/json\r\n"
            f"{head}content-length: {len(body)}\r\n\r\n".encode()
            + body
        )

    async def ask(
        self, body: bytes, path: str = "/v1/chat/completions", head: str = ""
    ) -> Response:
        await self.post(body, path, head)
        return await self.response()

    async def get(self, path: str, method: str = "GET") -> Response:
        await self.send(f"{method} {path} HTTP/1.1\r\nhost: gateway\r\n\r\n".encode())
        return await self.response(bodyless=method == "HEAD")

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(BOUND_S):
            raw = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *rest = raw.rstrip("\r\n").split("\r\n")
        pairs = (line.partition(":") for line in rest)
        return int(first.split(" ")[1]), {n.lower(): v.strip() for n, _, v in pairs}

    async def chunk(self) -> bytes:
        """One chunk of a chunked body; empty for the last."""
        async with asyncio.timeout(BOUND_S):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def response(self, *, bodyless: bool = False) -> Response:
        status, headers = await self.head()
        body, complete = b"", True
        if bodyless or status in (204, 304):
            return Response(status, headers, body, complete)
        try:
            if headers.get("transfer-encoding") == "chunked":
                while piece := await self.chunk():
                    body += piece
            elif "content-length" in headers:
                async with asyncio.timeout(BOUND_S):
                    body = await self.reader.readexactly(int(headers["content-length"]))
            else:
                body = await self.rest()
        except asyncio.IncompleteReadError as error:
            body += error.partial
            complete = False
        except ConnectionError:
            complete = False
        return Response(status, headers, body, complete)

    async def rest(self) -> bytes:
        """Everything up to the close."""
        async with asyncio.timeout(BOUND_S):
            return await self.reader.read(-1)

    async def closed(self) -> bool:
        """Whether the gateway closes without another byte."""
        with contextlib.suppress(ConnectionError):
            return await self.rest() == b""
        return True

    async def leave(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    def reset(self) -> None:
        """Leave with a reset, so that nothing that is still on its way holds the connection."""
        sock = self.writer.get_extra_info("socket")
        if sock is not None and not self.writer.transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(self.format(record))


class Lab:
    """The gateway under test."""

    def __init__(self, settings: GatewaySettings | None = None) -> None:
        self.settings = settings or GatewaySettings()
        self.gateway: Gateway
        self.port = 0
        self.version = 0
        self._stack = contextlib.AsyncExitStack()
        self._clients: list[Client] = []
        self._errors = _Errors()

    async def __aenter__(self) -> Lab:
        loop = asyncio.get_running_loop()
        logging.getLogger().addHandler(self._errors)
        self.gateway = Gateway(self.settings)
        server = await loop.create_server(self.gateway.make_client, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._server = server
        self._watch = loop.create_task(self.gateway.watch())
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        for client in self._clients:
            client.reset()
        self._server.close()
        if kind is None:
            await until(lambda: not self.gateway.clients, "clients are gone")
            self.check_clean()
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        await self.gateway.close()
        await self._stack.aclose()
        logging.getLogger().removeHandler(self._errors)
        if kind is None:
            assert self._errors.seen == []

    def check_clean(self) -> None:
        """Nothing is outstanding and nothing is held."""
        assert all(load.outstanding == 0 for load in self.gateway.state.loads.values())
        assert all(stats.running == 0 for stats in self.gateway.metrics.models.values())
        assert self.gateway.buffered == 0

    async def upstream(self, script: Script) -> Upstream:
        return await self._stack.enter_async_context(Upstream(script))

    def table(self, *models: RouteModel) -> None:
        self.version += 1
        self.gateway.set_table(Table(version=self.version, models=models))

    def serve(self, *upstreams: Upstream, name: str = "m", aliases: Sequence[str] = ()) -> None:
        """Put a table in force with one model on these upstreams, as m-1, m-2…"""
        self.table(model(*upstreams, name=name, aliases=aliases))

    async def client(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        made = Client(reader, writer)
        self._clients.append(made)
        return made

    def outstanding(self, target: str = "m-1") -> int:
        load = self.gateway.state.loads.get(target)
        return load.outstanding if load is not None else 0


def model(*upstreams: Upstream, name: str = "m", aliases: Sequence[str] = ()) -> RouteModel:
    """A model whose targets are these upstreams."""
    targets = tuple(
        Target(id=f"{name}-{i}", host="127.0.0.1", port=up.port, api_key="replica-key")
        for i, up in enumerate(upstreams, 1)
    )
    return RouteModel(name=name, aliases=tuple(aliases), targets=targets, state="ready")


def chat(name: str = "m", *, stream: bool = False) -> bytes:
    """A chat request's body."""
    return msgspec.json.encode(
        {
            "messages": [{"role": "user", "content": 'say {"model": "x"}'}],
            "model": name,
            "stream": stream,
        }
    )
