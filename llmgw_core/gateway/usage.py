"""Tokens that an answer used, read from what the engine says of itself. Pure.

OpenAI's paths name them ``usage`` at the end of an answer, its ``/v1/responses`` inside the event
``response.completed``, Anthropic's ``/v1/messages`` in two events. A stream on OpenAI's older paths
tells them only when asked to: the gateway always asks, and takes the event that says so out again
where the client did not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

HELD_MOST = 1 << 20
"""Bytes of a half event that are kept back; of a longer one nothing is read."""
BODY_MOST = 32 << 20
"""Bytes of a whole answer that are kept to read its usage at the end."""
_NAME = b'"usage"'
_BLANK = re.compile(rb"\r?\n\r?\n")


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens of one request; None where the engine did not say."""

    prompt_tokens: int | None = None
    """Those that were found in a cache are among them."""
    completion_tokens: int | None = None
    cached_tokens: int | None = None


NOTHING = Usage()


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Said(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Inner(msgspec.Struct):
    usage: _Said | None = None


class _Document(msgspec.Struct):
    """An answer, or one event of a stream, as far as accounting reads it."""

    usage: _Said | None = None
    choices: list[msgspec.Raw] | None = None
    message: _Inner | None = None
    response: _Inner | None = None


_decode = msgspec.json.Decoder(_Document).decode


def read_document(data: bytes | memoryview) -> tuple[Usage, bool]:
    """What a JSON document says of its tokens, and whether it says nothing else (a chunk of a
    stream without choices)."""
    try:
        document = _decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return NOTHING, False
    said = document.usage
    for inner in (document.message, document.response):
        if said is None and inner is not None:
            said = inner.usage
    if said is None:
        return NOTHING, False
    return _usage(said), document.choices == []


def _usage(said: _Said) -> Usage:
    details = said.prompt_tokens_details or said.input_tokens_details
    cached = details.cached_tokens if details is not None else None
    prompt, completion = said.prompt_tokens, said.completion_tokens
    if prompt is None and said.input_tokens is not None:
        prompt = said.input_tokens
        if details is None:  # Anthropic's leaves out what came from a cache or went into one
            cached = said.cache_read_input_tokens
            prompt += (cached or 0) + (said.cache_creation_input_tokens or 0)
    if completion is None:
        completion = said.output_tokens
    if completion is None and prompt is not None and said.total_tokens is not None:
        completion = max(said.total_tokens - prompt, 0)
    return Usage(prompt, completion, cached)


def joined(before: Usage, after: Usage) -> Usage:
    """What is known after both were said: later numbers replace earlier ones."""
    if before == NOTHING:
        return after
    return Usage(
        before.prompt_tokens if after.prompt_tokens is None else after.prompt_tokens,
        before.completion_tokens if after.completion_tokens is None else after.completion_tokens,
        before.cached_tokens if after.cached_tokens is None else after.cached_tokens,
    )


class StreamReader:
    """Reads the usage out of a stream of events as it passes.

    Args:
        hide: whether the event that holds nothing but the usage is taken out.
    """

    def __init__(self, *, hide: bool) -> None:
        self.usage = NOTHING
        self._hide = hide
        self._held = b""

    @property
    def holds(self) -> bool:
        """Whether half an event is kept back."""
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """What the client gets of one read: whole events, as they came."""
        if not self._held and data.endswith(b"\n\n") and _NAME not in data:
            return data
        data = self._held + data if self._held else data
        end = max(data.rfind(b"\n\n") + 2, data.rfind(b"\n\r\n") + 3)
        end = end if end > 2 or data.startswith(b"\n\n") else 0
        if end < len(data) - HELD_MOST:
            end = len(data)
        self._held = data[end:]
        whole = data[:end]
        return whole if _NAME not in whole else b"".join(self._events(whole))

    def rest(self) -> bytes:
        """What was kept back, at the stream's end."""
        held, self._held = self._held, b""
        return held if _NAME not in held else b"".join(self._events(held))

    def _events(self, data: bytes) -> Iterator[bytes]:
        start = 0
        ends = [blank.end() for blank in _BLANK.finditer(data)]
        for end in [*ends, len(data)]:
            event, start = data[start:end], end
            if _NAME in event and self._take(event) and self._hide:
                continue
            yield event

    def _take(self, event: bytes) -> bool:
        """Whether the event holds nothing but the usage."""
        lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
        usage, alone = read_document(b"\n".join(lines))
        self.usage = joined(self.usage, usage)
        return alone


class BodyReader:
    """Reads the usage of an answer that is one document."""

    def __init__(self) -> None:
        self._parts: list[bytes] | None = []
        self._size = 0
        self._usage: Usage | None = None

    def feed(self, data: bytes) -> bytes:
        """The data as it came; it is kept in mind."""
        if self._parts is not None and data:
            self._size += len(data)
            self._parts.append(data)
            if self._size > BODY_MOST:
                self._parts = None
        return data

    def rest(self) -> bytes:
        """Nothing is kept back."""
        return b""

    @property
    def usage(self) -> Usage:
        """What the document says, once it is whole."""
        if self._usage is None:
            parts, self._parts = self._parts, None
            self._usage = read_document(b"".join(parts))[0] if parts else NOTHING
        return self._usage


Reader = StreamReader | BodyReader
