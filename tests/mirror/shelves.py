"""Stores with content for the server's tests, and a client that sends exactly what it is told."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from llmgw_core.mirror.manifest import Entry, Manifest
from llmgw_core.mirror.server import MirrorServer
from llmgw_core.mirror.settings import MirrorSettings
from llmgw_core.mirror.store import Store
from llmgw_core.mirror.tokens import fetch_token
from llmgw_core.mirror.versions import FileState, MirrorFile, MirrorVersion

BOUND_S = 30.0
SECRET = "the-cluster-secret-of-these-tests-0123456789"
NOW = 1_800_000_000.0
TOKEN = fetch_token(SECRET, "m", "v1", expires=NOW + 60)


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(BOUND_S):
        while not condition():
            await asyncio.sleep(0.005)


def shelve(root: Path, model: str, version: str, files: dict[str, bytes]) -> None:
    """Lay down a version and its manifest, as the store does when a pull is done."""
    listed = []
    for name, content in files.items():
        path = root / model / version / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        sha256 = hashlib.sha256(content).hexdigest()
        listed.append(Entry(name, size=len(content), sha256=sha256, state=FileState.DONE))
    Store(root).write_manifest(Manifest(model, version, tuple(listed)))


@dataclass
class Bookshelf:
    """A shelf whose manifests lie in memory."""

    root: Path
    versions: dict[tuple[str, str], MirrorVersion] = field(default_factory=dict)

    def path(self, model: str, version: str, file: str) -> Path:
        return self.root / model / version / file

    def version(self, model: str, version: str) -> MirrorVersion | None:
        return self.versions.get((model, version))

    def put(
        self,
        file: str,
        content: bytes,
        *,
        state: FileState = FileState.DONE,
        write: bool = True,
        sha256: str | None = "",
        bytes_total: int | None = -1,
    ) -> None:
        """Another file of ``m/v1``."""
        path = self.path("m", "v1", file)
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        entry = MirrorFile(
            file=file,
            bytes_done=len(content),
            bytes_total=len(content) if bytes_total == -1 else bytes_total,
            state=state,
            sha256=hashlib.sha256(content).hexdigest() if sha256 == "" else sha256,
        )
        before = self.versions.get(("m", "v1"), MirrorVersion("m", "v1", ()))
        others = tuple(known for known in before.files if known.file != file)
        self.versions["m", "v1"] = MirrorVersion("m", "v1", (*others, entry))


@dataclass
class Response:
    """What a client got."""

    status: int
    headers: dict[str, str]
    body: bytes = b""

    @property
    def error(self) -> str:
        found = msgspec.json.decode(self.body)["error"]
        assert isinstance(found, str)
        return found


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(
        self, target: str, headers: dict[str, str] | None = None, *, method: str = "GET"
    ) -> None:
        lines = [f"{method} {target} HTTP/1.1", "Host: mirror"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode("utf-8"))

    async def head(self) -> Response:
        async with asyncio.timeout(BOUND_S):
            raw = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = raw.decode().removesuffix("\r\n\r\n").split("\r\n")
        pairs = (line.partition(": ") for line in lines)
        return Response(int(first.split()[1]), {name.lower(): value for name, _, value in pairs})

    async def response(self, *, body: bool = True) -> Response:
        found = await self.head()
        if body and "content-length" in found.headers:
            async with asyncio.timeout(BOUND_S):
                found.body = await self.reader.readexactly(int(found.headers["content-length"]))
        return found

    async def ask(
        self, target: str, token: str = TOKEN, *, method: str = "GET", **headers: str
    ) -> Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        await self.send(target, sent, method=method)
        return await self.response(body=method != "HEAD")

    async def rest(self) -> bytes:
        """Whatever comes until the other side hangs up."""
        found = b""
        async with asyncio.timeout(BOUND_S):
            with contextlib.suppress(ConnectionError):
                while got := await self.reader.read(65536):
                    found += got
        return found

    def leave(self) -> None:
        self.writer.transport.abort()


class Lab:
    """A server inside the test's own process."""

    def __init__(self, shelf: Bookshelf, server: MirrorServer, port: int) -> None:
        self.shelf = shelf
        self.server = server
        self.port = port
        self.clients: list[Client] = []

    async def client(self, *, limit: int = 65536) -> Client:
        made = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=limit))
        self.clients.append(made)
        return made

    async def ask(
        self, target: str, token: str = TOKEN, *, method: str = "GET", **headers: str
    ) -> Response:
        return await (await self.client()).ask(target, token, method=method, **headers)

    @property
    def active(self) -> int:
        return self.server.status().active


@contextlib.asynccontextmanager
async def lab(tmp_path: Path, **options: float | None) -> AsyncIterator[Lab]:
    """A served, empty shelf at the Unix time ``NOW``."""
    shelf = Bookshelf(tmp_path / "store")
    shelf.root.mkdir(parents=True)
    settings = msgspec.convert(
        {"root": str(shelf.root), "secret_file": "unused", **options},
        MirrorSettings,
        dec_hook=lambda _, value: Path(value),
    )
    server = MirrorServer(shelf, settings, SECRET, now=lambda: NOW)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(server.make_protocol, "127.0.0.1", 0)
    made = Lab(shelf, server, listener.sockets[0].getsockname()[1])
    try:
        yield made
    finally:
        for client in made.clients:
            client.leave()
        listener.close()
        await server.drain(1.0)
        await listener.wait_closed()
