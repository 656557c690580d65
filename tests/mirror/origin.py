"""A loopback server of weights that breaks, lies and forgets as told, and a model hub on it."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    headers: dict[str, str]

    @property
    def range(self) -> str | None:
        return self.headers.get("range")


@dataclass
class Origin:
    """What the server gives, how it breaks, and what it was asked."""

    base: str = ""
    content: dict[str, bytes] = field(default_factory=dict)
    etags: dict[str, str] = field(default_factory=dict)
    """Strong ETags unless said otherwise; empty for none."""
    cuts: list[int] = field(default_factory=list)
    """For each GET of a body to come: break after so many bytes of it (-1: do not)."""
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """For each GET to come: this status and headers instead."""
    ranges: bool = True
    heads: bool = True
    lengths: bool = True
    """Whether a length is said; chunked otherwise."""
    said_length: dict[str, int] = field(default_factory=dict)
    """What HEAD says, where it lies."""
    always: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    """Statuses and headers by path: redirects and refusals."""
    json: dict[str, object] = field(default_factory=dict)
    token: str = ""
    """What gated paths want; empty for none."""
    gated: set[str] = field(default_factory=set)
    asked: list[Asked] = field(default_factory=list)
    sent: int = 0
    """Bytes of bodies that were given out."""
    held: threading.Event = field(default_factory=threading.Event)
    """Bodies stop at ``hold_at`` until this is set."""
    hold_at: int | None = None
    holding: threading.Event = field(default_factory=threading.Event)
    on_get: Callable[[str], None] | None = None

    def put(self, path: str, content: bytes, *, etag: str | None = None) -> str:
        """Serve a file; its address."""
        self.content[path] = content
        self.etags[path] = f'"{hashlib.md5(content).hexdigest()}"' if etag is None else etag
        return self.base + path

    def gets(self, path: str) -> list[str | None]:
        """The ranges of the GETs of a path."""
        return [a.range for a in self.asked if (a.method, a.path) == ("GET", path)]


def _handler(origin: Origin) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _short(self, status: int, headers: dict[str, str], text: bytes = b"") -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(text)

        def _answer(self, *, body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            origin.asked.append(Asked(self.command, path, headers))
            if body and origin.on_get is not None:
                origin.on_get(path)
            if not body and not origin.heads:
                self._short(405, {})
            elif body and origin.answers:
                self._short(*origin.answers.pop(0))
            elif path in origin.gated and headers.get("authorization") != f"Bearer {origin.token}":
                status = 403 if "authorization" in headers else 401
                self._short(status, {"X-Error-Code": "GatedRepo"})
            elif path in origin.always:
                self._short(*origin.always[path])
            elif path in origin.json:
                self._short(
                    200,
                    {"Content-Type": "application/json"},
                    json.dumps(origin.json[path]).encode(),
                )
            elif path in origin.content:
                self._file(path, headers, body=body)
            else:
                self._short(404, {"X-Error-Code": "RepoNotFound"} if "/api/" in path else {})

        def _file(self, path: str, headers: dict[str, str], *, body: bool) -> None:
            content, etag = origin.content[path], origin.etags.get(path, "")
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", ""))
            if_range = headers.get("if-range", etag)
            if not origin.ranges or if_range != etag:
                found = None
            start = int(found[1]) if found else 0
            end = int(found[2]) + 1 if found and found[2] else len(content)
            if found and start >= len(content):
                self._short(416, {"Content-Range": f"bytes */{len(content)}"})
                return
            self.send_response(206 if found else 200)
            if found:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(content)}")
            if etag:
                self.send_header("ETag", etag)
            if not body:
                length = origin.said_length.get(path, len(content))
                self.send_header("Content-Length", str(length))
                self.end_headers()
                return
            with suppress(OSError):  # a client that has read enough
                self._body(content[start:end])

        def _body(self, content: bytes) -> None:
            if origin.lengths:
                self.send_header("Content-Length", str(len(content)))
            else:
                self.send_header("Connection", "close")
            self.end_headers()
            cut = origin.cuts.pop(0) if origin.cuts else -1
            part = content if cut < 0 else content[:cut]
            if origin.hold_at is not None and len(part) > origin.hold_at:
                self.wfile.write(part[: origin.hold_at])
                origin.sent += origin.hold_at
                part = part[origin.hold_at :]
                origin.holding.set()
                origin.held.wait(30)
            self.wfile.write(part)
            origin.sent += len(part)
            self.close_connection = cut >= 0 or not origin.lengths

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), handler)

    def get_request(self) -> tuple[socket.socket, object]:
        connection, address = super().get_request()
        self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: object) -> None:
        self._open.discard(request)
        super().shutdown_request(request)  # type: ignore[arg-type]

    def hang_up(self) -> None:
        """End what clients keep open for a next request."""
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # clients that went away
            super().handle_error(request, client_address)  # type: ignore[arg-type]


@contextmanager
def serving() -> Iterator[Origin]:
    """The server, for as long as the block."""
    origin = Origin()
    server = _Server(_handler(origin))
    origin.base = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield origin
    finally:
        origin.held.set()
        server.shutdown()
        server.hang_up()
        thread.join()
        server.server_close()


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def publish(
    hub: Origin, store: Origin, repo: str, files: dict[str, bytes], *, commit: str = COMMIT
) -> None:
    """Put a repository on a hub; weights lie on another server that it redirects to."""
    siblings: list[dict[str, object]] = []
    for name, content in files.items():
        sibling: dict[str, object] = {
            "rfilename": name,
            "size": len(content),
            "blobId": hashlib.sha1(content).hexdigest(),
        }
        resolve = f"/{repo}/resolve/{commit}/{name}"
        if name.endswith((".gguf", ".safetensors", ".bin")):
            digest = hashlib.sha256(content).hexdigest()
            sibling["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 134}
            address = store.put(f"/blobs/{digest}", content) + "?X-Signature=signed"
            hub.always[resolve] = (302, {"Location": address, "X-Linked-Etag": f'"{digest}"'})
        else:
            hub.put(resolve, content)
        siblings.append(sibling)
    info = {"id": repo, "sha": commit, "siblings": siblings, "private": False, "tags": []}
    hub.json[f"/api/models/{repo}"] = info
    hub.json[f"/api/models/{repo}/revision/main"] = info
