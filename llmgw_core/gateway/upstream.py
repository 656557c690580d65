"""Connections to replicas: one HTTP/1.1 exchange at a time on each, kept alive between them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import httptools

from llmgw_core.gateway.headers import Header
from llmgw_core.gateway.table import Target

MAX_HEAD = 256 * 1024
"""Bytes of an answer's head."""


class Address(NamedTuple):
    """Where a target is reached; connections are shared between targets at one address."""

    host: str
    port: int
    uds: str | None = None
    tunnel: str | None = None


def address_of(target: Target) -> Address:
    """Where this target is reached."""
    return Address(target.host, target.port, target.uds, target.tunnel)


class Pipe(Protocol):
    """What a connection needs of its transport: asyncio's, or a channel of an SSH connection."""

    def write(self, data: bytes) -> None:
        """Send, now or later."""

    def writelines(self, list_of_data: Iterable[bytes | memoryview]) -> None:
        """Send several pieces."""

    def abort(self) -> None:
        """Close at once."""

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""

    def pause_reading(self) -> None:
        """Stop delivering."""

    def resume_reading(self) -> None:
        """Deliver again."""

    def get_write_buffer_size(self) -> int:
        """Bytes not yet sent."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """An answer's head."""

    status: int
    headers: tuple[Header, ...]
    length: int | None
    """Bytes of the body as announced; None where it is chunked or lasts until the close."""


class Receiver(Protocol):
    """Who waits for the answer."""

    def deliver(self, head: ResponseHead | None, data: bytes, chunks: int, ended: bool) -> None:
        """What one read brought: perhaps the head, some body, perhaps the end."""

    def lost(self, why: str) -> None:
        """The connection ended before the answer did."""


class Home(Protocol):
    """Where a connection lives between exchanges."""

    def give(self, connection: UpstreamConnection) -> None:
        """Keep it for the next request."""

    def forget(self, connection: UpstreamConnection) -> None:
        """It is closed."""


class UpstreamConnection(asyncio.Protocol):
    """One connection to a replica."""

    def __init__(self, home: Home, address: Address) -> None:
        self.address = address
        self.uses = 0
        """Requests sent over it, the one under way included."""
        self.got_bytes = False
        """Whether any byte of the answer under way has come."""
        self.idle_since = 0.0
        self._home = home
        self._pipe: Pipe | None = None
        self._receiver: Receiver | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[Header] = []
        self._length: int | None = None
        self._chunked = False
        self._head: ResponseHead | None = None
        self._head_seen = False
        self._head_bytes = 0
        self._interim = False
        self._parts: list[bytes] = []
        self._complete = False
        self._keep = False
        self._bad: str | None = None
        self._paused = False

    # the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport (or the SSH channel in its place)."""
        self._pipe = cast(Pipe, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits."""
        self._home.forget(self)
        self._fail(describe(exc) if exc is not None else "closed the connection")

    def eof_received(self) -> None:
        """The replica has said all it will; for a body without a length that is the end."""
        if self._receiver is not None and self._until_close:
            receiver, self._receiver = self._receiver, None
            self.abort()
            receiver.deliver(None, b"", 0, True)
        else:
            self._fail("closed the connection")
            self.abort()

    @property
    def _until_close(self) -> bool:
        return self._head_seen and self._length is None and not self._chunked and not self._complete

    def data_received(self, data: bytes) -> None:
        """Parse one read and hand on what it brought."""
        receiver = self._receiver
        if receiver is None:
            # nothing was asked: not a connection to send the next request over
            self.abort()
            return
        self.got_bytes = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # after a complete answer the rest does not matter: the connection is not kept
            self._keep = False
            if not self._complete and self._bad is None:
                self._bad = f"sent something that is not HTTP ({error})"
        if not self._head_seen:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD:
                self._bad = "sent a head without end"
        self._hand_on(receiver)

    def _hand_on(self, receiver: Receiver) -> None:
        head, self._head = self._head, None
        parts, self._parts = self._parts, []
        if self._bad is not None:
            self._receiver = None
            self.abort()
            if head is not None or parts:
                receiver.deliver(head, b"".join(parts), len(parts), False)
            receiver.lost(self._bad)
            return
        if self._complete:
            self._receiver = None
            self._release()
        if head is not None or parts or self._complete:
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            receiver.deliver(head, data, len(parts), self._complete)

    def _release(self) -> None:
        pipe = self._pipe
        if not self._keep or pipe is None or pipe.is_closing() or pipe.get_write_buffer_size():
            self.abort()
            return
        self.resume()
        self._home.give(self)

    def _fail(self, why: str) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.lost(why)

    # the parser's side

    def on_message_begin(self) -> None:
        """A head begins."""
        if self._complete:
            self._keep = False
            return
        self._headers = []
        self._length = None
        self._chunked = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or a trailer, which is dropped."""
        if self._head_seen or self._complete:
            return
        self._headers.append((name, value))
        lower = name.lower()
        if lower == b"content-length":
            self._length = int(value)
        elif lower == b"transfer-encoding":
            if value.strip().lower() == b"chunked":
                self._chunked = True
            else:
                self._bad = "used a transfer encoding other than chunked"

    def on_headers_complete(self) -> None:
        """The head is whole."""
        if self._complete:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._interim = True
            if status == 101:
                self._bad = "switched protocols, which nobody asked for"
            return
        if status in (204, 304):
            self._length = 0
        self._head_seen = True
        self._head = ResponseHead(status, tuple(self._headers), self._length)

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if not self._complete:
            self._parts.append(data)

    def on_message_complete(self) -> None:
        """The answer is whole, or was an interim one."""
        if self._interim:
            self._interim = False
        elif not self._complete:
            self._complete = True
            self._keep = self._parser.should_keep_alive()

    # the exchange's side

    def send(self, receiver: Receiver, pieces: Sequence[bytes | memoryview]) -> None:
        """Send a request; its answer goes to ``receiver``."""
        if self._pipe is None:
            raise RuntimeError("not connected")
        self._receiver = receiver
        self.uses += 1
        self.got_bytes = self._complete = self._head_seen = False
        self._head_bytes = 0
        if len(pieces) == 1 or sum(map(len, pieces)) <= 65536:
            self._pipe.write(b"".join(pieces))
        else:
            self._pipe.writelines(pieces)

    @property
    def usable(self) -> bool:
        """Whether a request could be sent over it now."""
        return self._pipe is not None and not self._pipe.is_closing()

    def pause(self) -> None:
        """Read no more: the client is slow."""
        if not self._paused and self.usable and self._pipe is not None:
            self._paused = True
            self._pipe.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._paused and self.usable and self._pipe is not None:
            self._paused = False
            self._pipe.resume_reading()

    def abort(self) -> None:
        """Close at once; nobody is told."""
        self._receiver = None
        if self._pipe is not None:
            self._pipe.abort()


def describe(error: Exception) -> str:
    """Why a connection failed, in words and without addresses, which clients need not know."""
    if isinstance(error, OSError) and isinstance(error.errno, int) and error.errno > 0:
        return os.strerror(error.errno).lower()
    if isinstance(error, socket.gaierror):
        return "its host name does not resolve"
    return str(error) or type(error).__name__
