"""What a client sees of the server: paths, methods, limits, order, keeping connections."""

from __future__ import annotations

import asyncio

import pytest

from llmgw_core.gateway.settings import GatewaySettings
from llmgw_core.gateway.table import RouteModel
from tests.gateway.lab import Lab, chat, until
from tests.gateway.upstream import (
    DONE,
    STREAM_HEAD,
    Conversation,
    Received,
    answer,
    completes,
    event,
    hangs,
)


async def test_models_are_listed_and_found_by_name_and_alias() -> None:
    async with Lab() as lab:
        up = await lab.upstream(completes)
        lab.table(
            RouteModel(name="org/m", aliases=("fast",), description="d", context_length=4096),
            RouteModel(name="other", state="starting"),
        )
        client = await lab.client()
        listed = (await client.get("/v1/models")).json()
        assert listed["object"] == "list"
        cards = listed["data"]
        assert isinstance(cards, list)
        assert [card["id"] for card in cards] == ["org/m", "other"]
        assert cards[0]["context_length"] == 4096
        for name in ("org/m", "org%2Fm", "fast"):
            card = (await client.get(f"/v1/models/{name}")).json()
            assert (card["id"], card["object"]) == ("org/m", "model")
        missing = await client.get("/v1/models/nope")
        assert (missing.status, missing.error["code"]) == (404, "model_not_found")
        assert up.received == []


async def test_health_names_the_ready_models_and_says_when_it_drains() -> None:
    async with Lab() as lab:
        lab.serve(await lab.upstream(completes))
        client = await lab.client()
        health = await client.get("/health")
        assert (health.status, health.json()["models"]) == (200, {"m": 1})
        head = await client.get("/health", method="HEAD")
        assert (head.status, head.headers["content-length"]) == (200, str(len(health.body)))
        lab.gateway.draining = True
        assert (await client.get("/health")).status == 503


async def test_metrics_are_prometheus_text() -> None:
    async with Lab() as lab:
        lab.serve(await lab.upstream(completes), aliases=["alias"])
        client = await lab.client()
        await client.ask(chat("alias"))
        await client.ask(chat("unknown"))
        text = (await client.get("/metrics")).body.decode()
        assert 'llmgw_requests_total{model="m",status="200"} 1\n' in text
        assert 'llmgw_requests_total{model="",status="404"} 1\n' in text
        assert 'llmgw_duration_seconds_bucket{model="m",le="+Inf"} 1\n' in text
        assert 'llmgw_ttft_seconds_count{model="m"} 1\n' in text
        assert 'llmgw_target_outstanding{target="m-1"} 0\n' in text


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/", 404, None),
        ("POST", "/chat/completions", 404, None),
        ("GET", "/v1/chat/completions", 405, "POST"),
        ("OPTIONS", "/v1/chat/completions", 405, "POST"),
        ("OPTIONS", "/v1/models", 405, "GET, HEAD"),
        ("DELETE", "/v1/models/m", 405, "GET, HEAD"),
        ("OPTIONS", "*", 404, None),
    ],
)
async def test_what_is_not_served_says_so(
    method: str, path: str, status: int, allow: str | None
) -> None:
    async with Lab() as lab:
        client = await lab.client()
        response = await client.get(path, method=method)
        assert (response.status, response.headers.get("allow")) == (status, allow)
        assert response.error["type"] == "invalid_request_error"
        assert (await client.get("/health")).status == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"", 400, "invalid_json"),
        (b"[]", 400, "invalid_json"),
        (b"{}", 400, None),
        (chat("nope"), 404, "model_not_found"),
    ],
)
async def test_a_bad_body_is_answered_and_the_connection_stays(
    body: bytes, status: int, code: str | None
) -> None:
    async with Lab() as lab:
        client = await lab.client()
        response = await client.ask(body)
        assert (response.status, response.error["code"]) == (status, code)
        assert (await client.get("/health")).status == 200


async def test_a_model_without_a_replica_is_503_with_its_reason() -> None:
    async with Lab() as lab:
        lab.table(RouteModel(name="m", state="failed", reason="port taken"))
        response = await (await lab.client()).ask(chat())
        assert response.status == 503
        assert "failed (port taken)" in str(response.error["message"])
        assert response.headers["retry-after"] == "30"
        (demand,) = lab.gateway.report().models
        assert (demand.unserved_total, demand.running) == (1, 0)


async def test_more_output_than_the_model_gives_is_refused() -> None:
    async with Lab() as lab:
        up = await lab.upstream(completes)
        lab.serve(up)
        lab.table(RouteModel(name="m", max_output=100, targets=()))
        response = await (await lab.client()).ask(b'{"model":"m","max_tokens":101}')
        assert (response.status, response.error["param"]) == (400, "max_tokens")


async def test_compressed_bodies_are_refused() -> None:
    async with Lab() as lab:
        client = await lab.client()
        response = await client.ask(b"\x1f\x8b", head="content-encoding: gzip\r\n")
        assert response.status == 415


async def test_pipelined_requests_are_answered_in_order() -> None:
    gate = asyncio.Event()

    async def slow_first(conversation: Conversation, request: Received) -> bool:
        if b"first" in request.body:
            await gate.wait()
        await conversation.send(answer(request.body))
        return True

    async with Lab() as lab:
        lab.serve(await lab.upstream(slow_first))
        client = await lab.client()
        first, second = b'{"model":"m","n":"first"}', b'{"model":"m","n":"second"}'
        await client.post(first)
        await client.post(second)
        await client.send(b"GET /v1/models/m HTTP/1.1\r\nhost: g\r\n\r\n")
        await client.send(b"BAD\r\n\r\n")
        await until(lambda: lab.outstanding() == 1)
        gate.set()
        assert (await client.response()).body == first
        assert (await client.response()).body == second
        assert (await client.response()).json()["id"] == "m"
        assert (await client.response()).status == 400
        assert await client.closed()


async def test_a_flood_of_pipelined_requests_is_held_back() -> None:
    async with Lab() as lab:
        up = await lab.upstream(hangs)
        lab.serve(up)
        client = await lab.client()
        await client.post(chat())
        body = b'{"model":"m","x":"' + b"x" * 60_000 + b'"}'
        head = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: %d\r\n\r\n"
        flood = head % len(body)
        client.writer.write((flood + body) * 400)
        await until(lambda: lab.gateway.buffered > 100_000)
        for _ in range(50):
            await asyncio.sleep(0)
            await lab.gateway.loop.run_in_executor(None, lambda: None)
        assert lab.gateway.buffered < 2_000_000
        assert client.writer.transport.get_write_buffer_size() > 1_000_000
        client.reset()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("wish", ["close", "keep-alive", None])
async def test_connections_are_kept_as_the_client_wishes(version: str, wish: str | None) -> None:
    async with Lab() as lab:
        lab.serve(await lab.upstream(completes))
        client = await lab.client()
        head = f"connection: {wish}\r\n" if wish else ""
        await client.post(chat(), head=head, version=version)
        response = await client.response()
        assert response.status == 200
        kept = wish == "keep-alive" or (wish is None and version == "1.1")
        if kept:
            assert (await client.get("/health")).status == 200
        else:
            assert response.headers["connection"] == "close"
            assert await client.closed()


async def test_a_stream_to_an_http_1_0_client_lasts_until_the_close() -> None:
    gate = asyncio.Event()

    async def in_two(conversation: Conversation, request: Received) -> bool:
        await conversation.send(STREAM_HEAD)
        await conversation.chunk(event("one"))
        await gate.wait()
        await conversation.chunk(DONE)
        await conversation.send(b"0\r\n\r\n")
        return True

    async with Lab() as lab:
        lab.serve(await lab.upstream(in_two))
        client = await lab.client()
        await client.post(chat(stream=True), version="1.0", head="connection: keep-alive\r\n")
        status, headers = await client.head()
        assert (status, headers["connection"]) == (200, "close")
        assert not {"transfer-encoding", "content-length"} & headers.keys()
        gate.set()
        assert await client.rest() == event("one") + DONE


@pytest.mark.parametrize(
    "head",
    [
        "content-length: 3\r\ntransfer-encoding: chunked\r\n",
        "content-length: 3\r\ncontent-length: 3\r\n",
        "content-length: 3\r\ncontent-length: 4\r\n",
        "content-length: -1\r\n",
        "content-length: 99999999999999999999999\r\n",
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "transfer-encoding : chunked\r\n",
        "x: a\r\n b\r\n",
        "x: a\nb: c\r\n",
        "x: a\0b\r\n",
        "host: second\r\n",
    ],
)
async def test_ambiguous_requests_are_refused_and_the_connection_closed(head: str) -> None:
    async with Lab() as lab:
        up = await lab.upstream(completes)
        lab.serve(up)
        client = await lab.client()
        smuggled = "POST /v1/completions HTTP/1.1\r\nhost: x\r\n\r\n"
        await client.send(
            f"POST /v1/completions HTTP/1.1\r\nhost: g\r\n{head}\r\n0\r\n\r\n{smuggled}".encode()
        )
        response = await client.response()
        assert response.status == 400
        assert response.headers["connection"] == "close"
        assert await client.closed()
        assert up.received == []


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /health HTTP/2.0", 505),
        ("GET /health", 505),
        ("GET /health HTTP/1.2", 400),
        ("PRI * HTTP/2.0", 400),
        ("CONNECT example.org:443 HTTP/1.1", 400),
        ("NOPE /health HTTP/1.1", 400),
    ],
)
async def test_other_protocols_are_refused(request_line: str, status: int) -> None:
    async with Lab() as lab:
        client = await lab.client()
        await client.send(f"{request_line}\r\nhost: g\r\n\r\n".encode())
        assert (await client.response()).status == status
        assert await client.closed()


async def test_a_request_without_a_host_is_refused() -> None:
    async with Lab() as lab:
        client = await lab.client()
        await client.send(b"GET /health HTTP/1.1\r\n\r\n")
        assert (await client.response()).status == 400


@pytest.mark.parametrize("ended", [True, False])
async def test_a_head_above_the_limit_is_refused(ended: bool) -> None:
    async with Lab() as lab:
        client = await lab.client()
        head = b"GET /health HTTP/1.1\r\nhost: g\r\nx: " + b"a" * 70_000
        await client.send(head + (b"\r\n\r\n" if ended else b""))
        assert (await client.response()).status == 431
        assert await client.closed()


async def test_endless_trailers_are_refused() -> None:
    async with Lab() as lab:
        client = await lab.client()
        await client.send(
            b"POST /v1/completions HTTP/1.1\r\nhost: g\r\n"
            b"transfer-encoding: chunked\r\n\r\n0\r\nx: "
        )
        await client.send(b"a" * 1_000_000)
        assert (await client.response()).status == 431


@pytest.mark.parametrize("chunked", [True, False])
async def test_a_body_above_the_limit_is_413_even_while_the_client_still_sends(
    chunked: bool,
) -> None:
    async with Lab(GatewaySettings(max_body_mb=0.1)) as lab:
        client = await lab.client()
        framing = b"transfer-encoding: chunked" if chunked else b"content-length: 3000000"
        await client.send(b"POST /v1/completions HTTP/1.1\r\nhost: g\r\n" + framing + b"\r\n\r\n")
        piece = b"x" * 100_000
        for _ in range(30):
            client.writer.write(b"186a0\r\n" + piece + b"\r\n" if chunked else piece)
        response = await client.response()
        assert (response.status, response.error["code"]) == (413, "body_too_large")


async def test_a_chunked_body_arrives_whole_at_the_replica() -> None:
    async with Lab() as lab:
        up = await lab.upstream(completes)
        lab.serve(up)
        client = await lab.client()
        await client.send(
            b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\n\r\n"
            b'6;ext=1\r\n{"mode\r\n6\r\nl":"m"\r\n1\r\n}\r\n0\r\nx-trailer: 1\r\n\r\n'
        )
        assert (await client.response()).status == 200
        assert up.received[0].body == b'{"model":"m"}'
        assert up.received[0].headers["content-length"] == "13"
        assert "x-trailer" not in up.received[0].headers


async def test_too_many_bodies_at_once_are_refused() -> None:
    async with Lab(GatewaySettings(max_buffered_mb=0.1)) as lab:
        lab.serve(await lab.upstream(hangs))
        first = await lab.client()
        await first.post(b'{"model":"m","x":"' + b"x" * 60_000 + b'"}')
        await until(lambda: lab.outstanding() == 1)
        second = await lab.client()
        response = await second.ask(b'{"model":"m","x":"' + b"x" * 60_000 + b'"}')
        assert (response.status, response.error["code"]) == (503, "overloaded")


async def test_the_body_is_invited_once_the_answers_before_are_sent() -> None:
    gate = asyncio.Event()

    async def gated(conversation: Conversation, request: Received) -> bool:
        await gate.wait()
        await conversation.send(answer(b"1"))
        return True

    async with Lab() as lab:
        lab.serve(await lab.upstream(gated))
        client = await lab.client()
        head = (
            b"POST /v1/completions HTTP/1.1\r\nhost: g\r\nexpect: 100-Continue\r\n"
            b"content-length: 13\r\n\r\n"
        )
        await client.send(head)
        assert (await client.head())[0] == 100
        await client.send(b'{"model":"m"}')
        await client.send(head)
        await until(lambda: lab.outstanding() == 1)
        gate.set()
        assert (await client.response()).body == b"1"
        assert (await client.head())[0] == 100
        await client.send(b'{"model":"m"}')
        assert (await client.response()).body == b"1"


async def test_nothing_is_invited_that_would_be_refused() -> None:
    async with Lab(GatewaySettings(max_body_mb=0.001)) as lab:
        client = await lab.client()
        head = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 5000\r\n"
        await client.send(head + b"expect: 100-continue\r\n\r\n")
        assert (await client.response()).status == 413
        other = await lab.client()
        await other.send(head.replace(b"5000", b"50") + b"expect: the best\r\n\r\n")
        assert (await other.response()).status == 417


async def test_an_offer_of_h2c_is_ignored_and_the_body_kept() -> None:
    async with Lab() as lab:
        up = await lab.upstream(completes)
        lab.serve(up)
        client = await lab.client()
        offer = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMA\r\n"
        for _ in range(2):
            response = await client.ask(chat(), head=offer)
            assert response.status == 200
        assert up.received[0].body == chat()
        assert not {"upgrade", "http2-settings", "connection"} & up.received[0].headers.keys()
        await client.send(
            b"GET /health HTTP/1.1\r\nhost: g\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
        )
        assert (await client.response()).status == 200


async def test_a_request_through_a_proxy_setting_is_served() -> None:
    async with Lab() as lab:
        client = await lab.client()
        assert (await client.get("http://gateway:8080/health")).status == 200


async def test_slow_requests_and_idle_connections_end() -> None:
    settings = GatewaySettings(header_timeout_s=0.3, keepalive_timeout_s=0.3)
    async with Lab(settings) as lab:
        head = await lab.client()
        await head.send(b"GET /health HTT")
        body = await lab.client()
        await body.send(b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: 9\r\n\r\n{")
        silent = await lab.client()
        kept = await lab.client()
        assert (await kept.get("/health")).status == 200
        assert (await head.response()).status == 408
        assert (await body.response()).status == 408
        assert await silent.closed()
        assert await kept.closed()


async def test_a_body_that_keeps_coming_is_not_slow() -> None:
    async with Lab(GatewaySettings(header_timeout_s=0.6)) as lab:
        lab.serve(await lab.upstream(completes))
        client = await lab.client()
        body = chat()
        await client.send(
            b"POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: %d\r\n\r\n" % len(body)
        )
        started = lab.gateway.loop.time()
        for i in range(len(body)):
            await client.send(body[i : i + 1])
            # the rhythm is the subject here: well below the limit for a gap, far above it in sum
            await asyncio.sleep(0.02)
        assert lab.gateway.loop.time() - started > 0.6
        assert (await client.response()).status == 200


async def test_too_many_connections_are_told_so() -> None:
    async with Lab(GatewaySettings(max_connections=1)) as lab:
        first = await lab.client()
        assert (await first.get("/health")).status == 200
        second = await lab.client()
        assert (await second.response()).status == 503
        assert await second.closed()
        await second.leave()
        await until(lambda: len(lab.gateway.clients) == 1)
        assert (await first.get("/health")).status == 200
