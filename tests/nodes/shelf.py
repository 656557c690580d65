"""A mirror in small for tests of fetching, and a node that is this machine."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from urllib.parse import quote

from aiohttp import web

from llmgw_core.gateway.table import Tunnel
from llmgw_core.nodes.api import NodeHandle
from llmgw_core.nodes.held import list_held, remove_held
from llmgw_core.nodes.instance import InstanceSpec, InstanceStatus, LogChunk, StopResult
from llmgw_core.nodes.instances import Instances
from llmgw_core.nodes.weights import FetchJob, HeldVersion, WeightsFile, weights_path
from tests.nodes.local_exec import LocalExec

KEY = "qwen/v1.0"
TOKEN = "planted-TOKEN-4711"
STEP = 16 << 10

Contents = Mapping[str, bytes]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Shelf:
    """What is served, how badly, and what was asked."""

    contents: dict[str, bytes]
    url: str = ""
    cuts: list[int] = field(default_factory=list)
    """The next answers end after so many bytes."""
    status: int | None = None
    statuses: list[int] = field(default_factory=list)
    """Of the next answers, before anything else."""
    ignore_ranges: bool = False
    wrong: int = 0
    """So many answers have a wrong byte."""
    gate: asyncio.Event | None = None
    """Every answer waits for it after its first step."""
    asked: list[tuple[str, int]] = field(default_factory=list)
    """File and the offset that was asked for, of every request."""
    sent: int = 0
    tokens: set[str | None] = field(default_factory=set)
    held_back: asyncio.Event = field(default_factory=asyncio.Event)
    """Somebody waits at the gate."""

    def job(self, *, key: str = KEY, token: str = TOKEN, **more: object) -> FetchJob:
        files = tuple(
            WeightsFile(path, len(data), sha(data), f"{self.url}/v1/files/{key}/{quote(path)}")
            for path, data in self.contents.items()
        )
        return FetchJob(key, files, token, margin_bytes=0, pause_s=0.01, **more)  # type: ignore[arg-type]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        data = self.contents[path]
        found = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
        offset = int(found[1]) if found else 0
        self.asked.append((path, offset))
        self.tokens.add(request.headers.get("Authorization"))
        status = self.statuses.pop(0) if self.statuses else self.status
        if status is not None:
            return web.Response(status=status)
        if self.ignore_ranges:
            offset = 0
        response = web.StreamResponse(status=206 if offset else 200)
        if offset:
            response.headers["Content-Range"] = f"bytes {offset}-{len(data) - 1}/{len(data)}"
        response.content_length = len(data) - offset
        await response.prepare(request)
        body = bytearray(data[offset:])
        if self.wrong:
            self.wrong -= 1
            body[-1] ^= 1
        return await self._pour(request, response, bytes(body))

    async def _pour(
        self, request: web.Request, response: web.StreamResponse, body: bytes
    ) -> web.StreamResponse:
        end = self.cuts.pop(0) if self.cuts else len(body)
        for start in range(0, end, STEP):
            piece = body[start : min(start + STEP, end)]
            await response.write(piece)
            self.sent += len(piece)
            if self.gate is not None:
                self.held_back.set()
                await self.gate.wait()
        if end < len(body) and request.transport is not None:
            request.transport.close()
        return response


@asynccontextmanager
async def serving(shelf: Shelf, address: str = "127.0.0.1") -> AsyncIterator[Shelf]:
    app = web.Application()
    app.router.add_get("/v1/files/{model}/{version}/{path:.+}", shelf.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, address, 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    shelf.url = f"http://{host}:{port}"
    try:
        yield shelf
    finally:
        if shelf.gate is not None:
            shelf.gate.set()
        await runner.cleanup()


class LocalNode:
    """What ``ensure_weights`` needs of a node, on this machine under a chosen shell."""

    def __init__(self, local: LocalExec, state: Path, *, area: str = "run") -> None:
        self.local, self.state = local, state
        self.config = SimpleNamespace(name="here", state_dir=str(state))
        self.facts = SimpleNamespace(state_dir=str(state))
        self.inner = Instances(local, str(state), area=area)
        self.starts = 0

    def handle(self) -> NodeHandle:
        return cast(NodeHandle, self)

    async def refresh_instances(self) -> Mapping[str, InstanceStatus]:
        return await self.inner.refresh()

    async def start_instance(self, spec: InstanceSpec) -> InstanceStatus:
        self.starts += 1
        return await self.inner.start(spec)

    async def stop_instance(self, name: str, *, grace_s: float) -> StopResult:
        return await self.inner.stop(name, grace_s)

    async def forget_instance(self, name: str) -> None:
        await self.inner.forget(name)

    async def read_log(
        self, name: str, *, offset: int | None = None, limit: int = 65536, previous: bool = False
    ) -> LogChunk:
        return await self.inner.read_log(name, offset, limit, previous)

    async def weights(self) -> Mapping[str, HeldVersion]:
        return await list_held(self.local, str(self.state))

    async def remove_weights(self, key: str) -> None:
        await remove_held(self.local, str(self.state), key)

    def weights_path(self, key: str, file: str = "") -> str:
        return weights_path(str(self.state), key, file)

    def ssh_route(self) -> Tunnel | None:
        return None


def shim(local: LocalExec, name: str, body: str) -> None:
    """What a program does on the node."""
    path = local.tools / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def only(local: LocalExec, tool: str) -> None:
    """Leave one program to fetch with."""
    for name in ("curl", "wget", "python3"):
        if name != tool:
            shim(local, name, "exit 127")
        elif (local.tools / name).is_symlink():  # busybox has a wget of its own
            (local.tools / name).unlink()
