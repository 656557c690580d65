"""A scripted engine: a raw HTTP server whose every answer, and misbehaviour, a test writes out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec


@dataclass
class Received:
    """A request as the engine saw it."""

    method: str
    target: str
    lines: list[tuple[str, str]]
    body: bytes
    connection: int
    """Number of the connection it came over."""

    @property
    def headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.lines}

    def json(self) -> dict[str, object]:
        document: dict[str, object] = msgspec.json.decode(self.body)
        return document


class Conversation:
    """One connection, seen from the engine."""

    def __init__(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.number = number
        self.reader = reader
        self.writer = writer

    async def receive(self) -> Received | None:
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        first, *rest = head.rstrip("\r\n").split("\r\n")
        method, target, _ = first.split(" ")
        lines = [(n, v.strip()) for n, _, v in (line.partition(":") for line in rest)]
        length = int(next((v for n, v in lines if n.lower() == "content-length"), "0"))
        body = await self.reader.readexactly(length)
        return Received(method, target, lines, body, self.number)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def until_closed(self) -> None:
        """Wait until the gateway has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def reset(self) -> None:
        self.writer.transport.abort()


Script = Callable[[Conversation, Received], Awaitable[bool]]
"""Answers one request; whether the connection is kept."""


class Upstream:
    """Listens on loopback until left."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.received: list[Received] = []
        self.connections = 0
        self.open = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Upstream:
        await self.listen(0)
        return self

    async def listen(self, port: int) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    def refuse(self) -> None:
        """Stop listening: the port refuses from now on."""
        assert self._server is not None
        self._server.close()

    async def __aexit__(self, *_: object) -> None:
        self.refuse()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        conversation = Conversation(self.connections, reader, writer)
        task = asyncio.get_running_loop().create_task(self._talk(conversation))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _talk(self, conversation: Conversation) -> None:
        self.open += 1
        try:
            while (request := await conversation.receive()) is not None:
                self.received.append(request)
                if not await self.script(conversation, request):
                    break
        except ConnectionError:
            pass
        finally:
            self.open -= 1
            conversation.writer.close()


def answer(body: bytes, *, status: str = "200 OK", head: str = "") -> bytes:
    """A whole answer with a length."""
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{head}"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode() + body


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


def event(text: str) -> bytes:
    """One chunk of a chat stream, as engines send it."""
    document = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
    }
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


DONE = b"data: [DONE]\n\n"

COMPLETION = msgspec.json.encode(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hello"},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
)


async def completes(conversation: Conversation, request: Received) -> bool:
    """Answer as an engine does: streamed where the request wants that."""
    if request.json().get("stream"):
        await conversation.send(STREAM_HEAD)
        for word in ("one ", "two ", "three"):
            await conversation.chunk(event(word))
        await conversation.chunk(DONE)
        await conversation.send(b"0\r\n\r\n")
    else:
        await conversation.send(answer(COMPLETION))
    return True


def says(data: bytes, *, keep: bool = True) -> Script:
    """A script that sends these bytes for every request."""

    async def script(conversation: Conversation, request: Received) -> bool:
        await conversation.send(data)
        return keep

    return script


async def hangs(conversation: Conversation, request: Received) -> bool:
    """Say nothing until the gateway gives up."""
    await conversation.until_closed()
    return False


async def dies(conversation: Conversation, request: Received) -> bool:
    """Close without a byte."""
    return False
