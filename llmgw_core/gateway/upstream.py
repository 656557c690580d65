"""Connections to replicas: one HTTP/1.1 exchange at a time on each, kept alive between them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import httptools

from llmgw_core.gateway.headers import Header
from llmgw_core.gateway.table import Target

log = logging.getLogger(__name__)

IDLE_S = 3.5
"""How long a connection is kept for reuse: below the 5 s after which uvicorn closes it."""
MAX_IDLE = 256
"""Idle connections kept per address."""
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


class UpstreamConnection(asyncio.Protocol):
    """One connection to a replica."""

    def __init__(self, pool: Pool, address: Address) -> None:
        self.address = address
        self.uses = 0
        """Requests sent over it, the one under way included."""
        self.got_bytes = False
        """Whether any byte of the answer under way has come."""
        self.idle_since = 0.0
        self._pool = pool
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
        self._pool.forget(self)
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
        self._pool.give(self)

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


class Tunneller(Protocol):
    """Opens connections through a node's SSH connection."""

    async def open(
        self, node: str, host: str, port: int, factory: Callable[[], UpstreamConnection]
    ) -> UpstreamConnection:
        """A connection to host and port as the node sees them.

        Raises:
            OSError: the node or the port is not reached.
        """
        ...


Opened = Callable[[UpstreamConnection | None, str], None]
"""Told once: the connection, or None and why not."""


class Pool:
    """Idle connections by address, and the making of new ones."""

    def __init__(self, tunnels: Tunneller, *, connect_timeout_s: float) -> None:
        self._tunnels = tunnels
        self._timeout_s = connect_timeout_s
        self._idle: dict[Address, list[UpstreamConnection]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._known: AbstractSet[Address] | None = None

    def take(self, address: Address, now: float) -> UpstreamConnection | None:
        """The idle connection used last, if there is one that is not too old."""
        stack = self._idle.get(address)
        while stack:
            connection = stack.pop()
            if connection.usable and now - connection.idle_since < IDLE_S:
                return connection
            connection.abort()
        return None

    def give(self, connection: UpstreamConnection) -> None:
        """Keep a connection whose exchange is over."""
        known = self._known is None or connection.address in self._known
        stack = self._idle.setdefault(connection.address, []) if known else None
        if stack is None or len(stack) >= MAX_IDLE:
            connection.abort()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        stack.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        """It is closed."""
        stack = self._idle.get(connection.address)
        if stack and connection in stack:
            stack.remove(connection)

    def retain(self, addresses: AbstractSet[Address]) -> None:
        """Keep idle connections to these only, from now on."""
        self._known = addresses
        for address in [a for a in self._idle if a not in addresses]:
            for connection in self._idle.pop(address):
                connection.abort()

    def sweep(self, now: float) -> None:
        """Close what has been idle too long."""
        for address, stack in list(self._idle.items()):
            # the stack is in order of age, oldest first
            old = next((i for i, c in enumerate(stack) if now - c.idle_since < IDLE_S), len(stack))
            aged, self._idle[address] = stack[:old], stack[old:]
            for connection in aged:
                connection.abort()
            if not self._idle[address]:
                del self._idle[address]

    @property
    def idle_count(self) -> int:
        """Idle connections of all addresses."""
        return sum(map(len, self._idle.values()))

    def connect(self, address: Address, opened: Opened) -> asyncio.Task[None]:
        """Make a new connection; cancelling the task gives up without a call."""
        task = asyncio.get_running_loop().create_task(self._connect(address, opened))
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an upstream connection's callback failed", exc_info=error)

    async def _connect(self, address: Address, opened: Opened) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self._open(address)
        except TimeoutError:
            opened(None, f"did not take a connection within {self._timeout_s:g} s")
        except OSError as error:
            opened(None, describe(error))
        else:
            opened(connection, "")

    async def _open(self, address: Address) -> UpstreamConnection:
        loop = asyncio.get_running_loop()

        def made() -> UpstreamConnection:
            return UpstreamConnection(self, address)

        if address.tunnel is not None:
            return await self._tunnels.open(address.tunnel, address.host, address.port, made)
        if address.uds is not None:
            _, connection = await loop.create_unix_connection(made, address.uds)
            return connection
        transport, connection = await loop.create_connection(made, address.host, address.port)
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    async def close(self) -> None:
        """Close all idle connections and give up on those being made."""
        self.retain(frozenset())
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def describe(error: Exception) -> str:
    """Why a connection failed, in words and without addresses, which clients need not know."""
    if isinstance(error, OSError) and isinstance(error.errno, int) and error.errno > 0:
        return os.strerror(error.errno).lower()
    if isinstance(error, socket.gaierror):
        return "its host name does not resolve"
    return str(error) or type(error).__name__
