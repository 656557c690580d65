"""Reading a client's requests: the parser, its limits, and nothing about what they mean."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import httptools

from llmgw_core.gateway.errors import ApiError, bad_request
from llmgw_core.gateway.headers import Header, connection_names, usable_request_id, value_of
from llmgw_core.gateway.settings import GatewaySettings

log = logging.getLogger(__name__)

SLACK = 256 * 1024
"""Bytes: one read may bring this much more than a head's limit before it is looked at."""


@dataclass(slots=True)
class Request:
    """One request, read to its end."""

    method: str
    target: bytes
    """As in the request line, without scheme and host."""
    headers: Sequence[Header]
    body: bytes
    http10: bool
    keep_alive: bool
    received: float
    """Loop time at which it was complete."""
    path: str = field(init=False)
    id: bytes = field(init=False)
    """The client's ``x-request-id``, or one of ours."""

    def __post_init__(self) -> None:
        self.path = self.target.partition(b"?")[0].decode("latin-1")
        given = usable_request_id(value_of(self.headers, b"x-request-id"))
        self.id = given or os.urandom(16).hex().encode("ascii")


class Reader(Protocol):
    """Whom the reader tells."""

    def received(self, request: Request) -> None:
        """A request is whole."""

    def failed(self, error: ApiError) -> None:
        """The connection cannot be read any further; called once."""

    def expects_continue(self) -> None:
        """The client waits for a 100 before it sends the body."""

    def unwanted(self, headers: Sequence[Header]) -> ApiError | None:
        """Why the rest of a large body need not be read, if so."""

    def holds(self, size: int) -> bool:
        """So many more bytes of a body are held; False where that is too much for us all."""


class RequestReader:
    """Parses what comes on one connection."""

    def __init__(
        self, reader: Reader, settings: GatewaySettings, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.in_message = False
        """Whether part of a request has come and the rest has not."""
        self.dead = False
        """Whether whatever else comes is dropped."""
        self.deadline: float | None = None
        """Loop time by which more of the request must have come."""
        self._reader = reader
        self._settings = settings
        self._loop = loop
        self._parser = httptools.HttpRequestParser(self)
        self._in_head = False
        self._replay = False
        self._upgrade = False
        self._url = b""
        self._headers: list[Header] = []
        self._parts: list[bytes] = []
        self._size = 0
        self._quiet_bytes = 0
        self._moved = False

    def feed(self, data: bytes) -> None:
        """Parse one read."""
        if self.dead:
            return
        self._moved = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            log.exception("parsing a request failed")
            self._fail(bad_request("The request cannot be read."))
        except httptools.HttpParserError as error:
            self._fail(bad_request(f"This is not a valid HTTP/1.1 request: {error}."))
        # heads and trailers without end; whole heads are measured exactly, bodies by their size
        self._quiet_bytes = 0 if self._moved else self._quiet_bytes + len(data)
        if self.in_message and not self.dead:
            limit = self._settings.max_header + (0 if self._in_head else SLACK)
            if self._quiet_bytes > limit:
                self._fail(self._head_too_large())
            elif not self._in_head:
                self.deadline = self._loop.time() + self._settings.header_timeout_s

    def stop(self) -> None:
        """Drop whatever else comes."""
        self.dead = True
        self.deadline = None
        self._parts = []

    def _fail(self, error: ApiError) -> None:
        if not self.dead:
            self.stop()
            self._reader.failed(error)

    def _ignore_upgrade(self, rest: bytes) -> None:
        # some clients offer h2c with every request, and a server may answer as if they had not;
        # llhttp has skipped the body, so it is parsed again behind a head that offers nothing
        method = self._parser.get_method()
        if self.dead:
            return
        if method == b"CONNECT":
            self._fail(bad_request("This is not a proxy: CONNECT is not served."))
            return
        head = [method + b" / HTTP/" + self._parser.get_http_version().encode("ascii")]
        for name, value in self._headers:
            if name.lower() in (b"content-length", b"transfer-encoding"):
                head.append(name + b": " + value)
        names = connection_names(self._headers)
        head += [b"connection: " + n for n in (b"close", b"keep-alive") if n in names]
        self._parser = httptools.HttpRequestParser(self)
        self._replay = True
        self.feed(b"\r\n".join(head) + b"\r\n\r\n" + rest)

    def on_message_begin(self) -> None:
        """A request begins."""
        if self.dead or self._replay:
            return
        self._in_head = self.in_message = True
        self._url = b""
        self._headers = []
        self.deadline = self._loop.time() + self._settings.header_timeout_s

    def on_url(self, url: bytes) -> None:
        """Part of the request's target."""
        if not self._replay:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or a trailer, which is dropped."""
        if self._in_head and not self._replay:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is whole: refuse now what need not be read."""
        self._moved = True
        if self._replay:
            self._replay = self._upgrade = False
            return
        self._in_head = False
        self._parts = []
        self._size = 0
        self._upgrade = self._parser.should_upgrade()
        if not self.dead:
            self._check_head()

    def _check_head(self) -> None:
        size = len(self._url) + sum(len(n) + len(v) + 4 for n, v in self._headers)
        version = self._parser.get_http_version()
        if size > self._settings.max_header:
            self._fail(self._head_too_large())
        elif version not in ("1.1", "1.0"):
            self._fail(ApiError(505, f"HTTP/{version} is not served here; use HTTP/1.1."))
        elif version == "1.1" and sum(n.lower() == b"host" for n, _ in self._headers) != 1:
            self._fail(bad_request("An HTTP/1.1 request needs exactly one Host header."))
        else:
            self._check_body_headers(version)

    def _check_body_headers(self, version: str) -> None:
        waits = False
        for name, value in self._headers:
            lower = name.lower()
            if lower == b"content-length" and int(value) > self._settings.max_body:
                self._fail(self._body_too_large())
            elif lower == b"expect" and version == "1.1":
                waits = value.strip().lower() == b"100-continue"
                if not waits:
                    self._fail(ApiError(417, "The only Expect understood is 100-continue."))
        if waits and not self.dead:
            self._reader.expects_continue()

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self.dead:
            return
        self._moved = True
        before = self._size
        self._size += len(data)
        if before <= SLACK < self._size:
            error = self._reader.unwanted(self._headers)
            if error is not None:
                self._fail(error)
                return
        room = self._reader.holds(len(data))
        self._parts.append(data)
        if self._size > self._settings.max_body:
            self._fail(self._body_too_large())
        elif not room:
            self._fail(
                ApiError(
                    503,
                    "The gateway holds too many large requests; try again shortly.",
                    kind="service_unavailable",
                    code="overloaded",
                    retry_after_s=2,
                )
            )

    def on_message_complete(self) -> None:
        """A request is whole."""
        if self.dead or self._upgrade:
            return
        self.in_message = False
        self._moved = True
        self.deadline = None
        parts, self._parts = self._parts, []
        request = Request(
            method=self._parser.get_method().decode("ascii"),
            target=_origin_form(self._url),
            headers=self._headers,
            body=parts[0] if len(parts) == 1 else b"".join(parts),
            http10=self._parser.get_http_version() == "1.0",
            keep_alive=self._parser.should_keep_alive(),
            received=self._loop.time(),
        )
        if not request.keep_alive:
            self.stop()
        self._reader.received(request)

    def _head_too_large(self) -> ApiError:
        limit = self._settings.max_header_kb
        return ApiError(
            431, f"The request's head is larger than {limit} KiB.", code="head_too_large"
        )

    def _body_too_large(self) -> ApiError:
        limit = self._settings.max_body_mb
        return ApiError(
            413,
            f"The request's body is larger than {limit:g} MiB; send less.",
            code="body_too_large",
        )


def _origin_form(url: bytes) -> bytes:
    """The target without scheme and host, which a client behind a proxy setting sends."""
    if url.startswith(b"/") or b"://" not in url:
        return url
    _, _, rest = url.partition(b"://")
    slash = rest.find(b"/")
    return rest[slash:] if slash >= 0 else b"/"
