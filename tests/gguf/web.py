"""A loopback web server of one file, that answers as a test wants."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

Answer = Callable[["Asked"], web.StreamResponse]


@dataclass
class Asked:
    """One request: which part, with which headers."""

    start: int
    end: int
    """Behind the last byte."""
    path: str
    headers: Mapping[str, str]


@dataclass
class Web:
    """The server; ``special`` answers come first, by path."""

    data: bytes = b""
    etag: str | None = '"1"'
    asked: list[Asked] = field(default_factory=list)
    special: dict[str, Answer] = field(default_factory=dict)
    hangs: set[str] = field(default_factory=set)
    base: str = ""
    ended: int = 0
    """Requests whose client went away before there was an answer."""

    def part(self, asked: Asked) -> web.Response:
        """What a good server says."""
        if asked.start >= len(self.data):
            return web.Response(status=416, headers={"Content-Range": f"bytes */{len(self.data)}"})
        end = min(asked.end, len(self.data))
        headers = {"Content-Range": f"bytes {asked.start}-{end - 1}/{len(self.data)}"}
        if self.etag is not None:
            headers["ETag"] = self.etag
        return web.Response(status=206, body=self.data[asked.start : end], headers=headers)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers["Range"])
        assert found is not None
        asked = Asked(int(found[1]), int(found[2]) + 1, request.path, dict(request.headers))
        self.asked.append(asked)
        if request.path in self.hangs:
            try:
                await asyncio.Event().wait()
            finally:
                self.ended += 1
        return self.special.get(request.path, self.part)(asked)


@asynccontextmanager
async def serving(data: bytes = b"") -> AsyncIterator[Web]:
    """Serve on a free port until the block ends."""
    it = Web(data)
    app = web.Application()
    app.router.add_get("/{path:.*}", it.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    it.base = f"http://{host}:{port}"
    try:
        yield it
    finally:
        await runner.cleanup()
