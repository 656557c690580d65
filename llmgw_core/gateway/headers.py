"""Which headers travel through the gateway, and how heads are written. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus

Header = tuple[bytes, bytes]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)

REQUEST_DROPPED = HOP_BY_HOP | {
    b"host",
    b"content-length",
    b"expect",
    b"http2-settings",
    # the client's keys are for the gateway; the replica has one of its own
    b"authorization",
    b"x-api-key",
    b"api-key",
    # answers must stay readable for accounting and for the error event
    b"accept-encoding",
    # written anew
    b"x-request-id",
}

RESPONSE_DROPPED = HOP_BY_HOP | {b"content-length", b"x-request-id", b"x-llmgw-replica"}


def connection_names(headers: Iterable[Header]) -> frozenset[bytes]:
    """The header names that ``Connection`` lists, in lower case."""
    names: set[bytes] = set()
    for name, value in headers:
        if len(name) == 10 and name.lower() == b"connection":
            names.update(token.strip().lower() for token in value.split(b","))
    return frozenset(names)


def forwarded(headers: Sequence[Header], dropped: frozenset[bytes]) -> bytes:
    """The header lines that go on: neither in ``dropped`` nor named by ``Connection``."""
    listed = connection_names(headers)
    lines: list[bytes] = []
    for name, value in headers:
        lower = name.lower()
        if lower not in dropped and lower not in listed:
            lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)


def value_of(headers: Iterable[Header], wanted: bytes) -> bytes | None:
    """The first value of a header, by its name in lower case."""
    size = len(wanted)
    for name, value in headers:
        if len(name) == size and name.lower() == wanted:
            return value
    return None


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Status"
    return f"HTTP/1.1 {status} {phrase}\r\n".encode("ascii")


_STATUS_LINES = {status.value: _status_line(status.value) for status in HTTPStatus}


def status_line(status: int) -> bytes:
    """``HTTP/1.1 200 OK`` with its line end."""
    return _STATUS_LINES.get(status) or _status_line(status)


def clean_value(text: str) -> bytes:
    """A value that cannot end its header line, whatever the text holds."""
    return "".join(c if " " < c <= "~" else "_" for c in text).encode("ascii")


def usable_request_id(value: bytes | None) -> bytes | None:
    """The client's request id where it is short and harmless in logs, else None."""
    if value is None or not 0 < len(value) <= 128:
        return None
    return value if all(0x20 < byte < 0x7F for byte in value) else None


_WAIT = re.compile(rb"(?:^|[\s,;])wait\s*=\s*(\d{1,6})(?:$|[\s,;])", re.IGNORECASE)


def patience_s(headers: Iterable[Header]) -> float | None:
    """How long a client wants to wait at most (``Prefer: wait=N``, RFC 7240); None where it does
    not say."""
    for name, value in headers:
        if name.lower() == b"prefer":
            found = _WAIT.search(value)
            if found is not None:
                return float(found[1])
    return None
