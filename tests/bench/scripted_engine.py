"""An engine that answers at once, in a process of its own: prints its port and serves until killed.

python -m tests.bench.scripted_engine
"""

from __future__ import annotations

import asyncio
from typing import cast

import uvloop

TOKEN = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" token"},"finish_reason":null}]}\n\n'
)
CHUNK = b"%x\r\n%b\r\n" % (len(TOKEN), TOKEN)
ANSWER = b'{"id":"1","object":"chat.completion","choices":[{"message":{"content":"' + b"x" * 600
ANSWER += b'"}}],"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}}'
WHOLE = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)
    + ANSWER
)
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
STREAM_CHUNKS = 200
STREAM_GAP_S = 0.005


class FastEngine(asyncio.Protocol):
    """Answers every request at once: whole, or as a stream of tokens at a steady pace."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's
        self._transport = cast(asyncio.Transport, transport)
        self._seen = b""

    def data_received(self, data: bytes) -> None:
        self._seen += data
        head, split, body = self._seen.partition(b"\r\n\r\n")
        if not split:
            return
        lower = head.lower()
        at = lower.index(b"content-length:") + 15
        length = int(lower[at:].split(b"\r\n", 1)[0])
        if len(body) < length:
            return
        self._seen = b""
        if b'"stream":true' in body:
            self._transport.write(STREAM_HEAD)
            self._tick(STREAM_CHUNKS)
        else:
            self._transport.write(WHOLE)

    def _tick(self, left: int) -> None:
        if self._transport.is_closing():
            return
        if left == 0:
            self._transport.write(b"0\r\n\r\n")
            return
        self._transport.write(CHUNK)
        asyncio.get_running_loop().call_later(STREAM_GAP_S, self._tick, left - 1)


def run_engine() -> None:
    """The engine's process: prints its port and serves until killed."""

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(FastEngine, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    uvloop.run(serve())


if __name__ == "__main__":
    run_engine()
