"""What the gateway reads of a request's body, and how it puts another model name in.

Pure. Only the few fields that routing needs are decoded; everything else stays as raw bytes, so
what reaches the engine is the client's body byte for byte but for the model's name: numbers, key
order and whitespace survive.

Decoding holds the interpreter's lock in one C call whatever thread it runs in, so a thread would
not shorten the pause that a body of many megabytes costs; the body limit bounds it instead.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import msgspec

from llmgw_core.gateway.errors import ApiError, bad_request

_NOTHING = msgspec.Raw(b"")


class StreamOptions(msgspec.Struct, frozen=True):
    """The part of ``stream_options`` that accounting needs."""

    include_usage: bool | None = None


class _Fields(msgspec.Struct):
    model: msgspec.Raw = _NOTHING
    stream: msgspec.Raw = _NOTHING
    stream_options: msgspec.Raw = _NOTHING
    max_tokens: msgspec.Raw = _NOTHING
    max_completion_tokens: msgspec.Raw = _NOTHING
    max_output_tokens: msgspec.Raw = _NOTHING


_decoder = msgspec.json.Decoder(_Fields)
_text = msgspec.json.Decoder(str)
_integer = msgspec.json.Decoder(int)
_options = msgspec.json.Decoder(StreamOptions | None)
_table = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.Encoder().encode

OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""The names under which the APIs let a client bound the answer's length."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request's body as far as the gateway reads it."""

    body: bytes
    model: str
    """The name that the client asked for: a model's name or an alias."""
    stream: bool
    name: msgspec.Raw
    """The model's JSON string as it stands in ``body``."""
    options: msgspec.Raw
    limits: tuple[tuple[str, int], ...]
    """Bounds on the answer's length, by the name they were given under."""

    def stream_options(self) -> StreamOptions | None:
        """What the client said about the stream; None where it said nothing that can be read."""
        try:
            return _options.decode(self.options) if bytes(self.options) else None
        except msgspec.DecodeError:
            return None


def read(body: bytes) -> Ask:
    """Read what routing needs.

    Raises:
        ApiError: not a JSON object, or without a model's name.
    """
    fields = _decode(body)
    if not bytes(fields.model):
        raise bad_request(
            'The body names no model; add "model", as in the list at /v1/models.', param="model"
        )
    try:
        model = _text.decode(fields.model)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request('The body\'s "model" must be a string.', param="model") from error
    return Ask(
        body=body,
        model=model,
        stream=bytes(fields.stream) == b"true",
        name=fields.model,
        options=fields.stream_options,
        limits=_limits(fields),
    )


def _decode(body: bytes) -> _Fields:
    try:
        return _decoder.decode(body)
    except RecursionError as error:
        raise bad_request("The body is nested too deeply.", code="invalid_json") from error
    except msgspec.ValidationError as error:
        raise bad_request("The body must be a JSON object.", code="invalid_json") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = str(error).removeprefix("JSON is malformed: ")
        raise bad_request(f"The body is not valid JSON: {why}.", code="invalid_json") from error


def _limits(fields: _Fields) -> tuple[tuple[str, int], ...]:
    found: tuple[tuple[str, int], ...] = ()
    for name in OUTPUT_LIMITS:
        raw: msgspec.Raw = getattr(fields, name)
        if bytes(raw):
            try:
                found = (*found, (name, _integer.decode(raw)))
            except msgspec.DecodeError:
                continue  # null, or something that the engine itself will refuse
    return found


def check_limits(ask: Ask, model: str, max_output: int | None) -> None:
    """Refuse a bound on the answer's length above what the model may give.

    Raises:
        ApiError: the client asked for more than ``max_output`` tokens.
    """
    if max_output is None:
        return
    for name, value in ask.limits:
        if value > max_output:
            raise ApiError(
                400,
                f"{name} is {value}, but '{model}' gives at most {max_output} tokens; "
                "ask for fewer.",
                param=name,
                code="max_tokens_exceeded",
            )


def renamed(ask: Ask, model: str, *, with_usage: bool = False) -> tuple[bytes | memoryview, ...]:
    """The body with this model's name in it, as pieces to be sent one after the other.

    With ``with_usage`` it also asks for a stream's usage.
    """
    changes: list[tuple[int, int, bytes]] = []
    if ask.model != model:
        changes.append((*_place(ask, ask.name), _encode(model)))
    if with_usage:
        change = _asking_for_usage(ask)
        changes += [change] if change is not None else []
    if not changes:
        return (ask.body,)
    view, at = memoryview(ask.body), 0
    pieces: list[bytes | memoryview] = []
    for start, end, new in sorted(changes):
        pieces += [view[at:start], new]
        at = end
    return (*pieces, view[at:])


def _asking_for_usage(ask: Ask) -> tuple[int, int, bytes] | None:
    """The change that makes the engine tell a stream's usage; None where its options are no
    object, which the engine will refuse by itself."""
    options = bytes(ask.options)
    if not options:
        at = ask.body.index(b"{") + 1
        return at, at, b'"stream_options":{"include_usage":true},'
    if options == b"null":
        found: dict[str, msgspec.Raw] = {}
    else:
        try:
            found = _table.decode(options)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
    found["include_usage"] = msgspec.Raw(b"true")
    return (*_place(ask, ask.options), _encode(found))


def _place(ask: Ask, part: msgspec.Raw) -> tuple[int, int]:
    """Where in the body a part of it begins and ends."""
    start = _address(part) - _address(ask.body)
    return start, start + len(memoryview(part))


_BUFFER_ROOM = 256
"""Bytes: more than a ``Py_buffer`` needs on any platform."""


def _address(value: bytes | msgspec.Raw) -> int:
    """Where an object's bytes lie in memory.

    msgspec gives a Raw that looks into the body without saying at which offset; searching for its
    text could find the same text inside a message instead.
    """
    room = (ctypes.c_char * _BUFFER_ROOM)()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(value), room, 0)
    try:
        # the pointer is the first field of Py_buffer
        return ctypes.c_void_p.from_buffer(room).value or 0
    finally:
        ctypes.pythonapi.PyBuffer_Release(room)
