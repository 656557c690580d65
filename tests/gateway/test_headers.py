from __future__ import annotations

from llmgw_core.gateway.headers import (
    REQUEST_DROPPED,
    RESPONSE_DROPPED,
    clean_value,
    forwarded,
    status_line,
    usable_request_id,
)


def test_what_belongs_to_one_hop_stays_there() -> None:
    lines = forwarded(
        [
            (b"Host", b"gateway"),
            (b"Authorization", b"Bearer client"),
            (b"X-Api-Key", b"client"),
            (b"Connection", b"close, X-Private ,x-other"),
            (b"x-private", b"1"),
            (b"X-Other", b"2"),
            (b"TE", b"trailers"),
            (b"Transfer-Encoding", b"chunked"),
            (b"Proxy-Authorization", b"secret"),
            (b"Upgrade", b"h2c"),
            (b"HTTP2-Settings", b"x"),
            (b"Accept", b"*/*"),
            (b"X-Trace", b"7"),
        ],
        REQUEST_DROPPED,
    )
    assert lines == b"Accept: */*\r\nX-Trace: 7\r\n"


def test_an_answer_keeps_its_own_headers() -> None:
    lines = forwarded(
        [
            (b"content-type", b"application/json"),
            (b"connection", b"keep-alive, x-hop"),
            (b"x-hop", b"1"),
            (b"content-length", b"3"),
            (b"x-request-id", b"theirs"),
            (b"openai-processing-ms", b"5"),
            (b"set-cookie", b"a"),
            (b"set-cookie", b"b"),
        ],
        RESPONSE_DROPPED,
    )
    assert lines == (
        b"content-type: application/json\r\nopenai-processing-ms: 5\r\n"
        b"set-cookie: a\r\nset-cookie: b\r\n"
    )


def test_no_value_can_end_its_line() -> None:
    assert clean_value("a\r\nx: y\0é") == b"a__x:_y__"


def test_request_ids_are_taken_over_where_they_are_harmless() -> None:
    assert usable_request_id(b"abc-1") == b"abc-1"
    assert usable_request_id(None) is None
    assert usable_request_id(b"") is None
    assert usable_request_id(b"a b") is None
    assert usable_request_id(b"x" * 129) is None


def test_unregistered_statuses_get_a_line_too() -> None:
    assert status_line(404) == b"HTTP/1.1 404 Not Found\r\n"
    assert status_line(599) == b"HTTP/1.1 599 Status\r\n"
