"""A loopback server of files: ranges, redirects, and breaks where a test asks for them."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Files:
    """What the server gives, how it breaks, and what it was asked."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.types: dict[str, str] = {}
        self.etags: dict[str, str] = {}
        self.cuts: list[int] = []
        """For each GET to come: close after so many bytes of the body (-1: do not)."""
        self.once: dict[str, bytes] = {}
        """Given instead of the content, one time."""
        self.ranges = True
        self.asked: list[tuple[str, str, str | None]] = []
        self.base = ""

    def gets(self, path: str) -> list[str | None]:
        """The ranges of the GETs of a path."""
        return [found for method, asked, found in self.asked if (method, asked) == ("GET", path)]


def _handler(files: Files) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            asked = self.headers.get("Range")
            files.asked.append((self.command, self.path, asked))
            content = files.content.get(self.path)
            if content is None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if body:
                content = files.once.pop(self.path, content)
            start = int(re.findall(r"\d+", asked)[0]) if asked and files.ranges else 0
            if start and start >= len(content):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
                )
            if self.path in files.etags:
                self.send_header("X-Linked-ETag", f'"{files.etags[self.path]}"')
            self.send_header("Content-Type", files.types.get(self.path, "application/octet-stream"))
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            if not body:
                return
            with suppress(ConnectionError):  # a client that has read enough
                cut = files.cuts.pop(0) if files.cuts else -1
                self.wfile.write(content[start:] if cut < 0 else content[start : start + cut])
                self.close_connection = cut >= 0

    return Handler


@contextmanager
def serving() -> Iterator[Files]:
    """The server, for as long as the block."""
    files = Files()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(files))
    files.base = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield files
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def publish(files: Files, name: str, filename: str, wheel: bytes, *, digest: str = "") -> None:
    """Put a wheel on the server, as a package index lists it."""
    files.content[f"/files/{filename}"] = wheel
    page = f"/simple/{name}/"
    files.types[page] = "application/vnd.pypi.simple.v1+json"
    files.content[page] = json.dumps(
        {
            "meta": {"api-version": "1.0"},
            "name": name,
            "files": [
                {
                    "filename": filename,
                    "url": f"../../files/{filename}",
                    "hashes": {"sha256": digest or hashlib.sha256(wheel).hexdigest()},
                    "upload-time": "2025-02-07T07:02:58Z",
                },
                {"filename": "old.tar.gz", "url": "old.tar.gz", "hashes": {}},
            ],
        }
    ).encode()
