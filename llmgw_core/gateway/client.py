"""The HTTP/1.1 server: one connection of a client, the order of its answers, and their framing.

Each request goes to the application when those before it are answered. What a request means is the
application's business; how it is read is ``request``'s.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Protocol, cast

from llmgw_core.gateway.errors import ApiError
from llmgw_core.gateway.headers import Header, status_line
from llmgw_core.gateway.request import Request, RequestReader
from llmgw_core.gateway.settings import GatewaySettings

WRITE_HIGH = 64 * 1024
"""Bytes unsent to a client from which on its replica is not read."""
QUEUE_MAX = 16
"""Requests that a client may send ahead of their answers before it is not read."""
QUEUE_BYTES = 64 * 1024
_TCP_CLOSE, _TCP_CLOSE_WAIT = 7, 8
"""The kernel's state of a connection that was reset (include/net/tcp_states.h)."""
LINGER_S = 2.0
"""How long what a refused client still sends is read and dropped, so that it gets the answer."""


class Running(Protocol):
    """An answer that takes time."""

    def client_gone(self) -> None:
        """The client left: stop at once."""

    def pause(self) -> None:
        """The client reads slowly: bring no more."""

    def resume(self) -> None:
        """Go on."""

    def check(self, now: float) -> None:
        """Look at the deadlines."""


class Application(Protocol):
    """What the server asks of the gateway."""

    settings: GatewaySettings
    draining: bool
    buffered: int
    """Bytes of request bodies held now."""

    def opened(self, client: ClientProtocol) -> bool:
        """A connection came; False where there is no room for it."""

    def closed(self, client: ClientProtocol) -> None:
        """A connection ended."""

    def unwanted(self, headers: Sequence[Header]) -> ApiError | None:
        """Why a request with these headers would be refused whatever its body says, if so."""

    def handle(self, client: ClientProtocol, request: Request) -> Running | None:
        """Answer now, or return what will."""

    def misread(self, error: ApiError) -> None:
        """Something came that is no request, and was answered with this."""


class ClientProtocol(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, app: Application, loop: asyncio.AbstractEventLoop) -> None:
        self._app = app
        self._loop = loop
        self._transport: asyncio.Transport
        self._input = RequestReader(self, app.settings, loop)
        self._waiting: deque[Request | ApiError] = deque()
        self._waiting_bytes = 0
        self._current: Request | ApiError | None = None
        self._running: Running | None = None
        self._pumping = False
        self._owes_continue = False
        self._held = 0
        self._gone = False
        self._read_paused = False
        self._write_paused_at: float | None = None
        self._deadline: float | None = None
        # the answer being sent
        self._chunked = False
        self._keep = True

    # the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, or refuse it where there are too many."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH)
        self._deadline = self._loop.time() + self._app.settings.header_timeout_s
        if not self._app.opened(self):
            self._input.stop()
            self.failed(
                ApiError(
                    503,
                    "The gateway has too many open connections; try again shortly.",
                    kind="service_unavailable",
                    code="too_many_connections",
                    retry_after_s=2,
                )
            )

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, or everything was sent and the connection closed."""
        self._leave()
        self._app.closed(self)

    def eof_received(self) -> None:
        """The client has closed its side: whatever it waited for is stopped at once."""
        busy = self._running is not None
        self._leave()
        if busy:
            self._transport.abort()

    def _leave(self) -> None:
        if self._gone:
            return
        self._gone = True
        self._input.stop()
        running, self._running = self._running, None
        self._waiting.clear()
        self._app.buffered -= self._held
        self._held = 0
        if running is not None:
            running.client_gone()

    def pause_writing(self) -> None:
        """The client reads more slowly than its answer comes."""
        self._write_paused_at = self._loop.time()
        if self._running is not None:
            self._running.pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._write_paused_at = None
        if self._running is not None:
            self._running.resume()
        else:
            self._pump()

    def data_received(self, data: bytes) -> None:
        """Parse one read, and answer what can be answered."""
        self._input.feed(data)
        self._pump()

    # the reader's side

    def received(self, request: Request) -> None:
        """A request is whole."""
        self._owes_continue = False
        self._deadline = None
        self._waiting.append(request)
        self._waiting_bytes += len(request.body) + 512

    def failed(self, error: ApiError) -> None:
        """Answer with this error when the requests before are answered, then close."""
        self._owes_continue = False
        self._deadline = None
        self._waiting.append(error)
        self._app.misread(error)
        self._pump()

    def expects_continue(self) -> None:
        """Invite the body, as soon as the answers before are sent."""
        self._owes_continue = True
        self._send_continue()

    def unwanted(self, headers: Sequence[Header]) -> ApiError | None:
        """Ask before much of a body is held."""
        return self._app.unwanted(headers)

    def holds(self, size: int) -> bool:
        """Account for a part of a body."""
        self._held += size
        self._app.buffered += size
        return self._app.buffered <= self._app.settings.max_buffered

    # order

    def _send_continue(self) -> None:
        # never into the middle of an earlier request's answer
        if self._owes_continue and self._current is None and not self._waiting and not self._gone:
            self._owes_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _pump(self) -> None:
        """Answer what waits, one after the other, as far as the client takes the answers."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while (
                self._waiting
                and self._current is None
                and self._write_paused_at is None
                and not self._gone
            ):
                self._next(self._waiting.popleft())
        finally:
            self._pumping = False
        self._balance_reading()
        self._send_continue()

    def _next(self, item: Request | ApiError) -> None:
        self._current = item
        if isinstance(item, ApiError):
            self.refuse(item)
            return
        self._waiting_bytes -= len(item.body) + 512
        running = self._app.handle(self, item)
        # it may have been answered, or the client lost, before handle returned
        if running is not None and self._current is item:
            if self._gone:
                running.client_gone()
            else:
                self._running = running

    def _balance_reading(self) -> None:
        # while nothing is read, a client that leaves is not noticed: so only those that send much
        # ahead are held back
        if self._gone or self._transport.is_closing():
            return
        full = len(self._waiting) >= QUEUE_MAX or self._waiting_bytes > QUEUE_BYTES
        if full and not self._read_paused:
            self._read_paused = True
            self._transport.pause_reading()
        elif self._read_paused and not full:
            self._read_paused = False
            self._transport.resume_reading()

    def _answered(self) -> None:
        """The current answer is sent whole."""
        item, self._current, self._running = self._current, None, None
        if isinstance(item, Request):
            self._held -= len(item.body)
            self._app.buffered -= len(item.body)
        if isinstance(item, ApiError) or not self._keep:
            self._close(linger=isinstance(item, ApiError))
            return
        if not self._waiting and not self._input.in_message:
            self._deadline = self._loop.time() + self._app.settings.keepalive_timeout_s
        self._pump()

    def _close(self, *, linger: bool) -> None:
        self._input.stop()
        if self._gone or self._transport.is_closing():
            return
        now = self._loop.time()
        if linger and self._transport.can_write_eof():
            # closing with unread input resets the connection, and the answer could be lost
            self._transport.write_eof()
            self._deadline = now + LINGER_S
        else:
            self._transport.close()
            self._deadline = now + self._app.settings.gap_timeout_s

    # the application's side

    def respond(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Send a whole answer to the current request."""
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        head = self.head(status, lines, len(body))
        item = self._current
        self.send(head, b"" if isinstance(item, Request) and item.method == "HEAD" else body, True)

    def refuse(self, error: ApiError) -> None:
        """Send an error as the answer to the current request."""
        item = self._current
        headers: list[Header] = [(b"content-type", b"application/json"), *error.headers()]
        if isinstance(item, Request):
            headers.append((b"x-request-id", item.id))
        self.respond(error.status, headers, error.body())

    def head(self, status: int, lines: bytes, length: int | None) -> bytes:
        """The head of the current answer; decides its framing and whether the connection stays.

        Args:
            status: the answer's.
            lines: header lines that travel, each with its line end.
            length: bytes of the body; None where that is not known yet.
        """
        item = self._current
        http10 = isinstance(item, Request) and item.http10
        wanted = isinstance(item, Request) and item.keep_alive
        self._chunked = length is None and not http10
        self._keep = wanted and not self._app.draining and not (length is None and http10)
        framing = b""
        if self._chunked:
            framing = b"transfer-encoding: chunked\r\n"
        elif length is not None and status not in (204, 304):
            framing = b"content-length: %d\r\n" % length
        if not self._keep:
            framing += b"connection: close\r\n"
        elif http10:
            framing += b"connection: keep-alive\r\n"
        return b"%b%b%b\r\n" % (status_line(status), lines, framing)

    def send(self, head: bytes, data: bytes, ended: bool) -> None:
        """Send a piece of the current answer: its head, some body, its end, or several of these."""
        if self._gone:
            return
        if not self._chunked:
            out = head + data if head else data
        else:
            out = b"%b%x\r\n%b\r\n" % (head, len(data), data) if data else head
            if ended:
                out += b"0\r\n\r\n"
        if out:
            self._transport.write(out)
        if ended:
            self._answered()

    def cut(self, data: bytes) -> None:
        """Send a last piece and close without an end: the answer is not complete.

        Where nothing in the framing or the piece would tell, the connection is reset.
        """
        item, self._current, self._running = self._current, None, None
        if self._gone:
            return
        if data:
            self._transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        if isinstance(item, Request) and item.http10 and not data:
            self._input.stop()
            self._reset()
        else:
            self._close(linger=False)

    def _reset(self) -> None:
        """Close so that the other side sees an error, not an end."""
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    @property
    def is_near(self) -> bool:
        """Whether the client runs on this machine."""
        peer = self._transport.get_extra_info("peername")
        return bool(peer) and str(peer[0]) in ("127.0.0.1", "::1")

    @property
    def write_paused(self) -> bool:
        """Whether the client reads too slowly at the moment."""
        return self._write_paused_at is not None

    def close_idle(self) -> None:
        """Close it if nothing is under way on it; used while draining."""
        idle = self._current is None and not self._waiting and not self._input.in_message
        if idle and not self._gone:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        self._leave()
        self._transport.abort()

    def _has_left(self) -> bool:
        """Whether the client closed its side, which a loop that does not read is not told."""
        sock = self._transport.get_extra_info("socket")
        if sock is None:
            return False
        try:
            info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        except OSError:
            return True
        return info[0] in (_TCP_CLOSE, _TCP_CLOSE_WAIT)

    def check(self, now: float) -> None:
        """Look at the deadlines; called a few times a second."""
        if self._read_paused and self._has_left():
            self.abort()
            return
        paused_at = self._write_paused_at
        overdue = self._deadline is not None and now > self._deadline
        if paused_at is not None and now - paused_at > self._app.settings.gap_timeout_s:
            self.abort()
        elif self._running is not None:
            self._running.check(now)
        elif self._input.deadline is not None and now > self._input.deadline:
            self._input.stop()
            self.failed(ApiError(408, "The request did not arrive in time.", code="too_slow"))
        elif overdue and self._current is None and not self._input.in_message:
            # no request came, or what was left to send or to drop took too long
            self.abort()
