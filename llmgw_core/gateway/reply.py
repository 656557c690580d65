"""What a client is sent for one request: a head, pieces, signs of life, an error, or an end.

A stream that waits is opened after a while with a comment line, since proxies on the way cut what
is silent. From then on its status is 200, and an error can only be told as an event.
"""

from __future__ import annotations

import msgspec

from llmgw_core.gateway.answer import Answer
from llmgw_core.gateway.client import ClientProtocol
from llmgw_core.gateway.errors import ApiError
from llmgw_core.gateway.headers import RESPONSE_DROPPED, clean_value, forwarded
from llmgw_core.gateway.request import Request

_STREAM = b"content-type: text/event-stream\r\ncache-control: no-cache\r\nx-request-id: %b\r\n"


class Reply:
    """The client's side of one request."""

    __slots__ = ("_begun", "_client", "_quiet_since", "_request", "_streams", "opened")

    def __init__(self, client: ClientProtocol, request: Request, *, streams: bool) -> None:
        self._client = client
        self._request = request
        self._streams = streams
        self._quiet_since = request.received
        self._begun = False
        self.opened = False
        """Whether a head went out before the replica's."""

    @property
    def paused(self) -> bool:
        """Whether the client reads too slowly at the moment."""
        return self._client.write_paused

    def begin(self, answer: Answer, replica: str, data: bytes, *, ended: bool) -> None:
        """Send the replica's head and what there is of the body; a stream that was opened already
        gets the body alone."""
        if self.opened:
            self.more(data, ended=ended)
            return
        self._begun = True
        length = answer.length
        if length is None and ended:
            length = len(data)
        lines = b"%bx-request-id: %b\r\nx-llmgw-replica: %b\r\n" % (
            forwarded(answer.head.headers, RESPONSE_DROPPED),
            self._request.id,
            clean_value(replica),
        )
        out = self._client.head(answer.head.status, lines, length)
        self._client.send(out, data, ended)

    def more(self, data: bytes, *, ended: bool) -> None:
        """Send a piece of the body."""
        self._client.send(b"", data, ended)

    def heard(self, now: float) -> None:
        """Something went out now."""
        self._quiet_since = now

    def keep_alive(self, now: float, every_s: float, why: str) -> None:
        """Send a comment line where a stream has been silent for so long.

        To be called only between two events of it.
        """
        if not self._streams or now - self._quiet_since < every_s or self.paused:
            return
        self._quiet_since = now
        head = b""
        if not self._begun:
            self._begun = self.opened = True
            head = self._client.head(200, _STREAM % self._request.id, None)
        line = "".join(c if " " <= c <= "~" else "?" for c in why)
        self._client.send(head, f": {line}\n\n".encode("ascii"), False)

    def refuse(self, error: ApiError) -> None:
        """Answer with an error: as an event where the stream was opened already."""
        if self.opened:
            self._client.cut(error.event())
        else:
            self._client.refuse(error)

    def cut(self, data: bytes) -> None:
        """End without a proper end."""
        self._client.cut(data)


def as_event(body: bytes, model: str, status: int) -> bytes:
    """An engine's error as a stream's last event."""
    try:
        line = msgspec.json.format(body, indent=-1)
        if b'"error"' in line:
            return b"data: " + line + b"\n\n"
    except msgspec.MsgspecError:
        pass  # no JSON: said in our own words
    return ApiError(
        502,
        f"A replica of '{model}' answered with status {status} where a stream was due.",
        kind="upstream_error",
        code="upstream_failed",
    ).event()
