"""An engine's answer on its way to the client: what it is, what it used, and how it may break off.
Pure."""

from __future__ import annotations

from llmgw_core.gateway.body import Ask
from llmgw_core.gateway.headers import value_of
from llmgw_core.gateway.upstream import ResponseHead
from llmgw_core.gateway.usage import NOTHING, BodyReader, Reader, StreamReader, Usage

_BLANK = (b"\n\n", b"\r\n\r\n")


class Answer:
    """One answer, from its head on.

    Args:
        head: as the engine sent it.
        hides: whether the client did not ask for the usage that the gateway asked for.
    """

    __slots__ = ("_hides", "_reader", "_tail", "head", "is_sse", "started")

    def __init__(self, head: ResponseHead, *, started: float, hides: bool) -> None:
        self.head = head
        self.started = started
        """Loop time at which the head came."""
        content_type = value_of(head.headers, b"content-type") or b""
        plain = value_of(head.headers, b"content-encoding") is None
        self.is_sse = plain and content_type.lower().startswith(b"text/event-stream")
        self._hides = hides
        self._tail = b""
        self._reader: Reader | None = None
        if self.is_sse:
            self._reader = StreamReader(hide=hides)
        elif plain and b"json" in content_type.lower():
            self._reader = BodyReader()

    @property
    def usage(self) -> Usage:
        """The tokens, as far as the engine has said."""
        return self._reader.usage if self._reader is not None else NOTHING

    @property
    def is_between_events(self) -> bool:
        """Whether a comment line could be put into the stream now."""
        held = isinstance(self._reader, StreamReader) and self._reader.holds
        return not held and (not self._tail or self._tail.endswith(_BLANK))

    @property
    def length(self) -> int | None:
        """Bytes of the body as the client will see it; None where that is not known."""
        return None if self.is_sse and self._hides else self.head.length

    def feed(self, data: bytes, *, ended: bool) -> bytes:
        """What the client gets of one read."""
        if self._reader is not None:
            data = self._reader.feed(data)
            if ended:
                data += self._reader.rest()
        if data:
            self._tail = data[-4:]
        return data

    def broken_off(self, event: bytes) -> bytes:
        """What is sent last where the answer broke off: the half event, and one that says so.

        Nothing where the answer is no stream, since nothing could be said in it.
        """
        if not self.is_sse:
            return b""
        half = self._reader.rest() if self._reader is not None else b""
        tail = (self._tail + half)[-4:]
        gap = b"" if not tail or tail.endswith(_BLANK) else b"\n\n"
        return half + gap + event


def asks_for_usage(path: str, ask: Ask) -> bool:
    """Whether the gateway must ask the engine for a stream's usage, and hide it."""
    if not ask.stream or path not in ("/v1/chat/completions", "/v1/completions"):
        return False
    options = ask.stream_options()
    return options is None or not options.include_usage
