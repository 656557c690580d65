"""One request on its way through: choosing replicas, trying again, relaying, and stopping.

The commit point is the first byte of an answer's body: before it a failed replica is exchanged for
another, after it nothing is ever repeated, and an answer that breaks off is never ended cleanly.
"""

from __future__ import annotations

import asyncio
import time

from llmgw_core.gateway.answer import Answer, asks_for_usage
from llmgw_core.gateway.body import Ask, renamed
from llmgw_core.gateway.client import ClientProtocol
from llmgw_core.gateway.errors import (
    ApiError,
    cut_short,
    upstream_failed,
    upstream_silent,
)
from llmgw_core.gateway.headers import (
    REQUEST_DROPPED,
    clean_value,
    forwarded,
)
from llmgw_core.gateway.limits import Now
from llmgw_core.gateway.metrics import Outcome, RequestRecord
from llmgw_core.gateway.reply import Reply, as_event
from llmgw_core.gateway.request import Request
from llmgw_core.gateway.seat import Seat
from llmgw_core.gateway.services import Entry, Services
from llmgw_core.gateway.table import RouteModel, Target
from llmgw_core.gateway.upstream import ResponseHead, UpstreamConnection, address_of
from llmgw_core.gateway.usage import NOTHING

HOLD_HEAD_S = 10.0
"""How long an answer's head is kept back for its first byte, so that a replica that dies in
between can be exchanged; then it goes out alone."""
COLLECTED_MOST = 1 << 20
"""Bytes of an answer that came where a stream was promised."""


class Exchange:
    """One request's life. Made for a request that may go to a replica."""

    __slots__ = (
        "_answer",
        "_ask",
        "_chunks",
        "_collected",
        "_committed",
        "_connecting",
        "_connection",
        "_deadline",
        "_entry",
        "_hides_usage",
        "_model",
        "_over",
        "_refreshed",
        "_reply",
        "_request",
        "_seat",
        "_services",
        "_status",
        "_target",
        "_tries",
        "_ttft",
    )

    def __init__(
        self,
        services: Services,
        client: ClientProtocol,
        request: Request,
        model: RouteModel,
        ask: Ask,
        entry: Entry,
    ) -> None:
        self._services = services
        self._reply = Reply(client, request, streams=ask.stream)
        self._request = request
        self._model = model
        self._ask = ask
        self._entry = entry
        self._hides_usage = asks_for_usage(request.path, ask)
        self._target: Target | None = None
        self._connection: UpstreamConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._tries = 0
        self._refreshed = False
        self._answer: Answer | None = None
        self._committed = False
        self._deadline: float | None = None
        self._status = 0
        self._ttft: float | None = None
        self._chunks = 0
        self._collected = b""
        self._over = False
        self._seat = Seat(services, model, request, ask, entry, go=self._go, refuse=self._refuse)

    def start(self) -> None:
        """Send the request to a replica, have it wait for one, or refuse it."""
        self._seat.find()

    # trying

    def _go(self, target: Target) -> None:
        self._target = target
        self._refreshed = False
        self._services.state.begin(target.id)
        connection = self._services.pool.take(address_of(target), self._services.loop.time())
        if connection is not None:
            self._send(connection)
        else:
            self._connect(target)

    def _connect(self, target: Target) -> None:
        self._connecting = self._services.pool.connect(address_of(target), self._connected)

    def _connected(self, connection: UpstreamConnection | None, why: str) -> None:
        self._connecting = None
        if self._over:
            if connection is not None:
                connection.abort()
        elif connection is None:
            self._next_target(why)
        else:
            self._send(connection)

    def _send(self, connection: UpstreamConnection) -> None:
        target = self._target
        if target is None:
            raise RuntimeError("no target chosen")
        self._tries += 1
        self._connection = connection
        now = self._services.loop.time()
        self._deadline = now + self._services.settings.first_byte_timeout_s
        body = renamed(self._ask, self._model.name, with_usage=self._hides_usage)
        connection.send(self, (self._request_head(target, sum(map(len, body))), *body))

    def _request_head(self, target: Target, length: int) -> bytes:
        host = clean_value(f"[{target.host}]" if ":" in target.host else target.host)
        key = b""
        if target.api_key:
            key = b"authorization: Bearer %b\r\n" % clean_value(target.api_key)
        return (
            b"POST %b HTTP/1.1\r\nhost: %b:%d\r\n%b%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n"
            % (
                self._request.target,
                host,
                target.port,
                forwarded(self._request.headers, REQUEST_DROPPED),
                key,
                self._request.id,
                length,
            )
        )

    def _next_target(self, why: str) -> None:
        """The target at hand failed before the commit point: try another, or give up."""
        failed = self._leave_target()
        until = self._services.loop.time() + self._services.settings.avoid_s
        self._services.state.failed(failed, until)
        self._answer = None
        if self._seat.others():
            self._seat.find()
        else:
            self._refuse(upstream_failed(self._model.name, f"replica {failed} {_sentence(why)}"))

    def _leave_target(self) -> str:
        target, self._target = self._target, None
        self._connection = None
        if target is None:
            return ""
        self._services.state.end(target.id)
        self._services.state.lines.call(self._model.name)
        return target.id

    # the connection's side

    def lost(self, why: str) -> None:
        """The replica's connection broke before the answer's end."""
        connection, self._connection = self._connection, None
        if self._over:
            return
        if self._committed:
            self._cut(f"stopped in the middle of it ({why})")
        elif (
            connection is not None
            and connection.uses > 1
            and not connection.got_bytes
            and not self._refreshed
            and self._target is not None
        ):
            # a kept connection that the replica closed as we wrote: that says nothing of it
            self._refreshed = True
            self._connect(self._target)
        else:
            self._next_target(why)

    def deliver(self, head: ResponseHead | None, data: bytes, chunks: int, ended: bool) -> None:
        """Relay what one read brought."""
        if self._over:
            return
        now = self._services.loop.time()
        if head is not None:
            self._answer = Answer(head, started=now, hides=self._hides_usage)
            if head.status == 503 and self._hand_over("answered 503", ended=ended):
                return
        if data:
            self._chunks += chunks
            self._services.metrics.chunks += chunks
            self._deadline = now + self._services.settings.gap_timeout_s
            if self._ttft is None:
                self._ttft = now - self._request.received
        if not self._committed:
            if data or ended:
                self._commit(data, ended)
            return
        if self._answer is not None:
            data = self._answer.feed(data, ended=ended)
        if ended:
            self._finish(Outcome.DONE)
        if data:
            self._reply.heard(now)
        self._reply.more(data, ended=ended)

    def _hand_over(self, why: str, *, ended: bool = False) -> bool:
        """A replica that cannot serve now: whether another was asked instead."""
        if not self._seat.others():
            return False
        if not ended and self._connection is not None:
            self._connection.abort()
        self._next_target(why)
        return True

    def _commit(self, data: bytes, ended: bool) -> None:
        """Send the head and what there is of the body."""
        answer, target = self._answer, self._target
        if answer is None or target is None:
            raise RuntimeError("an answer without a head")
        if self._reply.opened and not answer.is_sse:
            self._collect(answer, data, ended)
            return
        self._committed = True
        self._status = answer.head.status
        self._services.state.answered(target.id)
        data = answer.feed(data, ended=ended)
        if self._reply.paused:
            self.pause()
        if ended:
            self._finish(Outcome.DONE)
        self._reply.heard(self._services.loop.time())
        self._reply.begin(answer, target.id, data, ended=ended)

    def _collect(self, answer: Answer, data: bytes, ended: bool) -> None:
        """An answer that is no stream, where the client was told that one comes: an error."""
        self._collected += answer.feed(data, ended=ended)
        if ended:
            self._status = answer.head.status
            self._finish(Outcome.DONE)
            self._reply.cut(as_event(self._collected, self._model.name, answer.head.status))
        elif len(self._collected) > COLLECTED_MOST:
            self._next_target("answered a stream with something else")

    def _cut(self, why: str) -> None:
        """The answer broke off after its commit point."""
        event = b""
        if self._answer is not None:
            target = self._target.id if self._target is not None else ""
            event = self._answer.broken_off(cut_short(self._model.name, target, why).event())
        if self._connection is not None:
            self._connection.abort()
        self._finish(Outcome.CUT)
        self._reply.cut(event)

    def _refuse(self, error: ApiError, unserved: bool = False) -> None:
        self._status = error.status
        self._finish(Outcome.REFUSED, unserved=unserved)
        self._reply.refuse(error)

    def _finish(self, outcome: Outcome, *, unserved: bool = False) -> None:
        """Give everything back and tell the observers; once."""
        self._over = True
        services = self._services
        target = self._target.id if self._target is not None else None
        self._seat.leave()
        services.metrics.stats(self._model.name).running -= 1
        usage = self._answer.usage if self._answer is not None else NOTHING
        tokens = (usage.prompt_tokens or 0) + (usage.completion_tokens or 0)
        wall = time.time()
        moment = Now(services.loop.time(), wall)
        services.limiter.release(self._entry.ticket, tokens, moment)
        record = RequestRecord(
            model=self._model.name,
            requested=self._ask.model,
            target=target,
            status=self._status,
            outcome=outcome,
            stream=self._ask.stream,
            ttft_s=self._ttft,
            duration_s=moment.mono - self._request.received,
            chunks=self._chunks,
            tries=self._tries,
            unserved=unserved,
            path=self._request.path,
            owner=self._entry.owner,
            key=self._entry.key,
            usage=usage,
        )
        services.metrics.observe(record, wall=wall)
        for observer in services.observers:
            observer(record)
        self._leave_target()

    # the client's side

    def client_gone(self) -> None:
        """Stop the replica at once."""
        if self._over:
            return
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._connection is not None:
            self._connection.abort()
        self._status = self._status or 499
        self._finish(Outcome.GONE)

    def pause(self) -> None:
        """Read no more from the replica until the client has caught up."""
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """Read on."""
        if self._connection is not None:
            self._connection.resume()
        if self._deadline is not None and self._committed:
            self._deadline = self._services.loop.time() + self._services.settings.gap_timeout_s

    def check(self, now: float) -> None:
        """Look at the deadlines."""
        if self._over:
            return
        if self._seat.waits:
            self._seat.check(now, self._reply)
            return
        if self._deadline is None or self._connection is None:
            return
        if not self._committed and self._is_lost() and self._hand_over("is on a node that is away"):
            return
        self._show_life(now)
        answer = self._answer
        if answer is not None and not self._committed and now - answer.started > HOLD_HEAD_S:
            self._commit(b"", False)
        if now <= self._deadline or self._reply.paused:
            return
        settings = self._services.settings
        if self._committed:
            self._cut(f"sent nothing for {settings.gap_timeout_s:g} s")
            return
        self._connection.abort()
        target = self._target.id if self._target is not None else ""
        waited = settings.first_byte_timeout_s
        self._refuse(upstream_silent(self._model.name, target, waited))

    def _show_life(self, now: float) -> None:
        """A comment line, where a stream is silent, between two of its events."""
        answer = self._answer
        if answer is None or (answer.is_sse and answer.is_between_events):
            name = self._model.name
            self._reply.keep_alive(now, self._services.settings.heartbeat_s, f"{name} works")

    def _is_lost(self) -> bool:
        """Whether the controller has lost sight of the replica that is to answer."""
        lost = self._services.state.directory.lost
        return self._target is not None and self._target.id in lost


def _sentence(why: str) -> str:
    """A reason as the predicate of a sentence: errors of the system are nouns."""
    verbs = ("closed", "did", "sent", "answered", "used", "switched", "is ", "has ")
    return why if why.startswith(verbs) else f"failed: {why}"
