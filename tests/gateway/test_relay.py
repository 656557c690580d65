"""What happens to a request on its way: what passes, what is tried again, what is cut."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from llmgw_core.gateway import relay
from llmgw_core.gateway.settings import GatewaySettings
from llmgw_core.gateway.table import RouteModel, Table, Target
from tests.gateway.lab import BOUND_S, Client, Lab, chat, model, until
from tests.gateway.upstream import (
    COMPLETION,
    DONE,
    STREAM_HEAD,
    Conversation,
    Received,
    answer,
    completes,
    dies,
    event,
    hangs,
    says,
)


async def test_the_body_passes_byte_for_byte_and_the_headers_without_what_is_ours() -> None:
    async with Lab() as lab:
        up = await lab.upstream(completes)
        lab.serve(up)
        body = (
            b'{ "seed":12345678901234567890123,\n "model" : "m","x":[ ],"t":1.10, "u":"\xc3\xa9" }'
        )
        response = await (await lab.client()).ask(
            body,
            head=(
                "authorization: Bearer client-key\r\nx-api-key: client-key\r\n"
                "connection: keep-alive, x-hop\r\nx-hop: 1\r\nuser-agent: me\r\n"
                "accept-encoding: gzip\r\nx-request-id: abc-123\r\n"
            ),
        )
        assert response.status == 200
        assert response.body == COMPLETION
        (seen,) = up.received
        assert seen.body == body
        assert seen.target == "/v1/chat/completions"
        assert seen.headers == {
            "host": f"127.0.0.1:{up.port}",
            "content-type": "application/json",
            "user-agent": "me",
            "authorization": "Bearer replica-key",
            "x-request-id": "abc-123",
            "content-length": str(len(body)),
        }
        assert response.headers["x-request-id"] == "abc-123"
        assert response.headers["x-llmgw-replica"] == "m-1"


@pytest.mark.parametrize(
    "path", ["completions", "embeddings", "rerank", "responses", "messages", "completions?a=b"]
)
async def test_every_api_path_is_relayed_with_its_query(path: str) -> None:
    async with Lab() as lab:
        up = await lab.upstream(completes)
        lab.serve(up)
        response = await (await lab.client()).ask(chat(), path=f"/v1/{path}")
        assert (response.status, up.received[0].target) == (200, f"/v1/{path}")
        assert up.received[0].headers["x-request-id"] == response.headers["x-request-id"]


async def test_an_alias_reaches_the_engine_as_the_models_name() -> None:
    async with Lab() as lab:
        up = await lab.upstream(completes)
        lab.serve(up, aliases=["gpt-4"])
        body = b'{"messages":[{"content":"\\"model\\":\\"gpt-4\\""}],"model": "gpt-4" ,"n":1e0}'
        assert (await (await lab.client()).ask(body)).status == 200
        assert up.received[0].body == body.replace(b': "gpt-4"', b': "m"')


async def test_an_answers_hop_headers_stay_behind_and_the_others_pass() -> None:
    async with Lab() as lab:
        raw = answer(
            b"{}",
            status="429 Slow Down",
            head=(
                "connection: x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\nretry-after: 7\r\n"
                "x-request-id: theirs\r\nset-cookie: a\r\nset-cookie: b\r\n"
            ),
        )
        lab.serve(await lab.upstream(says(raw)))
        client = await lab.client()
        await client.post(chat())
        status, headers = await client.head()
        assert status == 429
        assert headers["retry-after"] == "7"
        assert headers["x-request-id"] != "theirs"
        assert not {"x-hop", "keep-alive", "connection"} & headers.keys()


async def test_chunks_come_one_by_one_as_the_engine_sends_them() -> None:
    go = asyncio.Event()

    async def stepwise(conversation: Conversation, request: Received) -> bool:
        await conversation.send(STREAM_HEAD)
        for word in ("one", "two", "three"):
            await conversation.chunk(event(word))
            await go.wait()
            go.clear()
        await conversation.chunk(DONE)
        await conversation.send(b"0\r\n\r\n")
        return True

    async with Lab() as lab:
        lab.serve(await lab.upstream(stepwise))
        client = await lab.client()
        await client.post(chat(stream=True))
        status, headers = await client.head()
        assert (status, headers["transfer-encoding"]) == (200, "chunked")
        assert headers["content-type"].startswith("text/event-stream")
        for word in ("one", "two", "three"):
            assert await client.chunk() == event(word)
            go.set()
        assert await client.chunk() == DONE
        assert await client.chunk() == b""
        assert (await client.get("/health")).status == 200


@pytest.mark.parametrize(
    ("raw", "status", "body"),
    [
        (answer(b"abc"), 200, b"abc"),
        (b"HTTP/1.1 200 OK\r\n\r\nuntil the close", 200, b"until the close"),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", 200, b"ok"),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x\r\n\r\n"
            b"3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nx: 1\r\n\r\n",
            200,
            b"abcde",
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n", 304, b""),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200, b""),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nx: y\r\n\r\n" + answer(b"z"),
            200,
            b"z",
        ),
        (answer(b"abc", status="599 Odd"), 599, b"abc"),
    ],
)
async def test_every_framing_of_an_answer_is_understood(
    raw: bytes, status: int, body: bytes
) -> None:
    async with Lab() as lab:
        up = await lab.upstream(says(raw, keep=b"until" not in raw))
        lab.serve(up)
        client = await lab.client()
        for _ in range(2):
            response = await client.ask(chat())
            assert (response.status, response.body, response.complete) == (status, body, True)


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 300_000,
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n",
        b"HTTP/1.1 2",
    ],
)
async def test_garbage_from_a_replica_is_a_502_in_our_words(raw: bytes) -> None:
    async with Lab() as lab:
        up = await lab.upstream(says(raw, keep=False))
        lab.serve(up)
        response = await (await lab.client()).ask(chat())
        assert (response.status, response.error["code"]) == (502, "upstream_failed")
        assert "replica m-1" in str(response.error["message"])
        assert str(up.port) not in str(response.error["message"])
        assert up.connections == 1


async def test_bytes_after_an_answer_spoil_the_connection_not_the_answer() -> None:
    async with Lab() as lab:
        up = await lab.upstream(says(answer(b"ok") + b"HTTP/1.1 200 OK\r\n"))
        lab.serve(up)
        client = await lab.client()
        for expected in (1, 2):
            assert (await client.ask(chat())).body == b"ok"
            assert up.connections == expected


async def test_connections_are_reused_and_closed_ones_are_not() -> None:
    async with Lab() as lab:
        up = await lab.upstream(completes)
        lab.serve(up)
        client = await lab.client()
        for _ in range(5):
            await client.ask(chat())
        assert up.connections == 1
        closing = await lab.upstream(says(answer(b"x", head="connection: close\r\n")))
        lab.serve(closing)
        for _ in range(3):
            assert (await client.ask(chat())).body == b"x"
        assert closing.connections == 3


async def test_a_kept_connection_that_dies_under_a_request_is_replaced_once() -> None:
    async def first_only(conversation: Conversation, request: Received) -> bool:
        if request.connection == 1 and len(up.received) > 1:
            conversation.reset()
            return False
        return await completes(conversation, request)

    async with Lab() as lab:
        up = await lab.upstream(first_only)
        lab.serve(up)
        client = await lab.client()
        assert (await client.ask(chat())).status == 200
        assert (await client.ask(chat())).status == 200
        assert [r.connection for r in up.received] == [1, 1, 2]
        assert lab.gateway.state.loads["m-1"].avoid_until == 0.0


async def test_a_kept_connection_is_not_used_once_the_replica_closed_it() -> None:
    async with Lab() as lab:
        up = await lab.upstream(says(answer(b"x"), keep=False))
        lab.serve(up)
        client = await lab.client()
        await client.ask(chat())
        await until(lambda: lab.gateway.pool.idle_count == 0)
        await client.ask(chat())
        assert [r.connection for r in up.received] == [1, 2]


async def test_a_fresh_connection_that_dies_is_not_tried_again_on_the_same_replica() -> None:
    async with Lab() as lab:
        up = await lab.upstream(dies)
        lab.serve(up)
        response = await (await lab.client()).ask(chat())
        assert (response.status, len(up.received)) == (502, 1)


@pytest.mark.parametrize("how", ["refuses", "dies", "half a head", "head only", "503"])
async def test_another_replica_is_asked_before_the_first_byte(how: str) -> None:
    scripts = {
        "refuses": dies,
        "dies": dies,
        "half a head": says(b"HTTP/1.1 200 OK\r\ncont", keep=False),
        "head only": says(STREAM_HEAD, keep=False),
        "503": says(answer(b'{"error":"loading"}', status="503 Service Unavailable")),
    }
    async with Lab() as lab:
        bad = await lab.upstream(scripts[how])
        good = await lab.upstream(completes)
        lab.serve(bad, good)
        if how == "refuses":
            bad.refuse()
        client = await lab.client()
        response = await client.ask(chat())
        assert (response.status, response.headers["x-llmgw-replica"]) == (200, "m-2")
        assert len(good.received) == 1
        assert len(bad.received) == (0 if how == "refuses" else 1)
        # and it is left alone for a while
        for _ in range(3):
            assert (await client.ask(chat())).headers["x-llmgw-replica"] == "m-2"
        assert len(bad.received) <= 1


async def test_what_waits_for_a_replica_on_a_lost_node_is_asked_of_another() -> None:
    async with Lab() as lab:
        silent = await lab.upstream(hangs)
        good = await lab.upstream(completes)
        lab.serve(silent)
        client = await lab.client()
        await client.post(chat())
        await until(lambda: silent.received)
        both = model(silent, good)
        lab.version += 1
        lab.gateway.set_table(
            Table(
                version=lab.version,
                models=(msgspec.structs.replace(both, targets=both.targets[1:]),),
                lost=("m-1",),
            )
        )
        response = await client.response()
        assert (response.status, response.headers["x-llmgw-replica"]) == (200, "m-2")
        await until(lambda: not silent.open)


async def test_what_waits_for_the_only_replica_goes_on_waiting() -> None:
    gate = asyncio.Event()

    async def slow(conversation: Conversation, request: Received) -> bool:
        await gate.wait()
        return await completes(conversation, request)

    async with Lab() as lab:
        only = await lab.upstream(slow)
        lab.serve(only)
        client = await lab.client()
        await client.post(chat())
        await until(lambda: only.received)
        lab.version += 1
        away = RouteModel(name="m", state="unknown")
        lab.gateway.set_table(Table(version=lab.version, models=(away,), lost=("m-1",)))
        for checked in lab.gateway.clients:
            checked.check(asyncio.get_running_loop().time())
        gate.set()
        assert (await client.response()).status == 200


async def test_a_replica_that_failed_is_tried_again_when_its_time_is_over() -> None:
    async with Lab(GatewaySettings(avoid_s=0.0)) as lab:
        bad = await lab.upstream(dies)
        good = await lab.upstream(completes)
        lab.serve(bad, good)
        client = await lab.client()
        for _ in range(4):
            assert (await client.ask(chat())).status == 200
        assert len(bad.received) >= 2


async def test_a_503_is_passed_on_where_no_other_replica_is_left() -> None:
    async with Lab() as lab:
        up = await lab.upstream(says(answer(b"loading", status="503 Service Unavailable")))
        lab.serve(up)
        response = await (await lab.client()).ask(chat())
        assert (response.status, response.body) == (503, b"loading")


async def test_all_replicas_are_tried_once_then_the_last_reason_is_told() -> None:
    async with Lab() as lab:
        ups = [await lab.upstream(dies) for _ in range(3)]
        lab.serve(*ups)
        response = await (await lab.client()).ask(chat())
        assert response.status == 502
        assert "closed the connection" in str(response.error["message"])
        assert [len(up.received) for up in ups] == [1, 1, 1]


async def test_an_unreachable_replica_does_not_hold_the_request_for_long() -> None:
    async with Lab(GatewaySettings(connect_timeout_s=0.3)) as lab:
        good = await lab.upstream(completes)
        # a listener whose backlog is full takes no connection, as a dropping firewall does
        with contextlib.ExitStack() as stack:
            port = _full_listener(stack)
            lab.table(
                RouteModel(
                    name="m",
                    targets=(
                        Target(id="m-1", host="127.0.0.1", port=port),
                        Target(id="m-2", host="127.0.0.1", port=good.port, weight=0.1),
                    ),
                )
            )
            response = await (await lab.client()).ask(chat())
            assert response.headers["x-llmgw-replica"] == "m-2"


def _full_listener(stack: contextlib.ExitStack) -> int:
    import socket

    listener = stack.enter_context(socket.socket())
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    port: int = listener.getsockname()[1]
    for _ in range(3):
        filler = stack.enter_context(socket.socket())
        filler.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            filler.connect(("127.0.0.1", port))
    return port


async def _start_stream(lab: Lab, *, version: str = "1.1") -> Client:
    client = await lab.client()
    await client.post(chat(stream=True), version=version)
    status, _ = await client.head()
    assert status == 200
    return client


@pytest.mark.parametrize("reset", [True, False])
async def test_a_stream_that_breaks_off_ends_in_an_error_event_and_no_end(reset: bool) -> None:
    async def breaks(conversation: Conversation, request: Received) -> bool:
        await conversation.send(STREAM_HEAD)
        await conversation.chunk(event("one"))
        await go.wait()
        if reset:
            conversation.reset()
        return False

    go = asyncio.Event()
    async with Lab() as lab:
        bad, spare = await lab.upstream(breaks), await lab.upstream(completes)
        lab.serve(bad, spare)
        client = await _start_stream(lab)
        assert await client.chunk() == event("one")
        go.set()
        last = await client.chunk()
        assert last.startswith(b'data: {"error":{"message":"The answer of \'m\' is incomplete')
        assert last.endswith(b"}\n\n")
        assert await client.closed()
        assert spare.received == []
        (demand,) = lab.gateway.report().models
        assert demand.errors_total == 1


async def test_the_error_event_stands_apart_from_half_an_event() -> None:
    async def breaks(conversation: Conversation, request: Received) -> bool:
        await conversation.send(STREAM_HEAD)
        await conversation.chunk(b'data: {"choi')
        return False

    async with Lab() as lab:
        lab.serve(await lab.upstream(breaks))
        client = await _start_stream(lab)
        text = await client.rest()
        assert b'{"choi' in text
        assert b'\n\ndata: {"error":' in text
        assert not text.endswith(b"0\r\n\r\n")


async def test_a_plain_answer_that_breaks_off_is_short() -> None:
    raw = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    async with Lab() as lab:
        for framing in (
            b"content-length: 100\r\n\r\n{",
            b"transfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
        ):
            lab.serve(await lab.upstream(says(raw + framing, keep=False)))
            client = await lab.client()
            response = await client.ask(chat())
            assert (response.status, response.body, response.complete) == (200, b"{", False)


async def test_to_an_http_1_0_client_a_break_is_a_reset() -> None:
    async def breaks(conversation: Conversation, request: Received) -> bool:
        await conversation.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n")
        await go.wait()
        return False

    go = asyncio.Event()
    async with Lab() as lab:
        lab.serve(await lab.upstream(breaks))
        client = await _start_stream(lab, version="1.0")
        assert await client.reader.readexactly(1) == b"{"
        go.set()
        with pytest.raises(ConnectionResetError):
            await client.rest()


async def test_silence_before_the_first_byte_is_a_504_and_asks_no_other() -> None:
    async with Lab(GatewaySettings(first_byte_timeout_s=0.2)) as lab:
        up, spare = await lab.upstream(hangs), await lab.upstream(completes)
        lab.serve(up, spare)
        response = await (await lab.client()).ask(chat())
        assert (response.status, response.error["code"]) == (504, "upstream_timeout")
        assert spare.received == []
        await until(lambda: up.open == 0)


async def test_silence_in_mid_stream_is_a_cut() -> None:
    async def falls_silent(conversation: Conversation, request: Received) -> bool:
        await conversation.send(STREAM_HEAD)
        await conversation.chunk(event("one"))
        return await hangs(conversation, request)

    async with Lab(GatewaySettings(gap_timeout_s=0.2)) as lab:
        up = await lab.upstream(falls_silent)
        lab.serve(up)
        client = await _start_stream(lab)
        assert await client.chunk() == event("one")
        assert b"sent nothing for 0.2 s" in await client.chunk()
        assert await client.closed()
        await until(lambda: up.open == 0)


async def test_a_head_without_a_body_goes_out_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "HOLD_HEAD_S", 0.1)
    go = asyncio.Event()

    async def late(conversation: Conversation, request: Received) -> bool:
        await conversation.send(STREAM_HEAD)
        await go.wait()
        await conversation.chunk(DONE)
        await conversation.send(b"0\r\n\r\n")
        return True

    async with Lab() as lab:
        lab.serve(await lab.upstream(late))
        client = await _start_stream(lab)
        go.set()
        assert await client.chunk() == DONE
        assert await client.chunk() == b""


async def test_an_early_answer_to_a_large_body_is_relayed() -> None:
    ended = asyncio.Event()

    async def too_large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer(b"too large", status="413 Too Large", head="connection: close\r\n"))
        await writer.drain()
        with contextlib.suppress(ConnectionError):
            while await reader.read(1 << 20):
                pass
        writer.close()
        ended.set()

    async with Lab() as lab:
        server = await asyncio.start_server(too_large, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        lab.table(RouteModel(name="m", targets=(Target(id="m-1", host="127.0.0.1", port=port),)))
        client = await lab.client()
        response = await client.ask(b'{"model":"m","x":"' + b"x" * 20_000_000 + b'"}')
        assert (response.status, response.body) == (413, b"too large")
        await asyncio.wait_for(ended.wait(), BOUND_S)
        server.close()


async def test_a_large_body_arrives_whole_and_renamed() -> None:
    async with Lab() as lab:
        up = await lab.upstream(completes)
        lab.serve(up, aliases=["alias"])
        body = b'{"x":"' + b"x" * 20_000_000 + b'","model":"alias"}'
        assert (await (await lab.client()).ask(body)).status == 200
        assert up.received[0].body == body[:-8] + b'"m"}'


async def test_a_replica_on_a_unix_socket_is_reached(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    ended = asyncio.Event()
    path = str(tmp_path_factory.mktemp("u") / "s")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer(b"uds"))
        await reader.read()
        writer.close()
        ended.set()

    async with Lab() as lab:
        server = await asyncio.start_unix_server(serve, path)
        lab.table(RouteModel(name="m", targets=(Target(id="m-1", host="h", port=1, uds=path),)))
        assert (await (await lab.client()).ask(chat())).body == b"uds"
        # the kept connection goes with its replica
        lab.table()
        await asyncio.wait_for(ended.wait(), BOUND_S)
        server.close()


async def test_a_table_that_comes_in_mid_stream_does_not_touch_the_stream() -> None:
    go = asyncio.Event()

    async def gated(conversation: Conversation, request: Received) -> bool:
        await conversation.send(STREAM_HEAD)
        await conversation.chunk(event("one"))
        await go.wait()
        await conversation.chunk(DONE)
        await conversation.send(b"0\r\n\r\n")
        return True

    async with Lab() as lab:
        old, new = await lab.upstream(gated), await lab.upstream(completes)
        lab.serve(old)
        freed: list[bool] = []
        lab.gateway.state.on_freed = lambda: freed.append(True)
        client = await _start_stream(lab)
        target = Target(id="m-9", host="127.0.0.1", port=new.port)
        lab.table(RouteModel(name="m", targets=(target,)))
        other = await lab.client()
        assert (await other.ask(chat())).headers["x-llmgw-replica"] == "m-9"
        loads = {load.id: load.outstanding for load in lab.gateway.report().targets}
        assert loads == {"m-1": 1, "m-9": 0}
        assert freed == []
        go.set()
        assert await client.chunk() == event("one")
        assert await client.chunk() == DONE
        assert await client.chunk() == b""
        assert freed == [True]
        # and no connection to the removed replica is kept
        await until(lambda: old.open == 0)


async def test_a_replica_that_leaves_the_table_is_not_tried_after_a_failure() -> None:
    async with Lab() as lab:
        spare = await lab.upstream(completes)

        async def dies_after_the_table_changed(
            conversation: Conversation, request: Received
        ) -> bool:
            lab.gateway.set_table(Table(version=9, models=(model(bad),)))
            return False

        bad = await lab.upstream(dies_after_the_table_changed)
        lab.serve(bad, spare)
        response = await (await lab.client()).ask(chat())
        assert (response.status, spare.received) == (502, [])


async def test_requests_spread_over_equal_replicas() -> None:
    async with Lab() as lab:
        ups = [await lab.upstream(hangs) for _ in range(3)]
        lab.serve(*ups)
        for _ in range(9):
            await (await lab.client()).post(chat())
        await until(lambda: sum(len(up.received) for up in ups) == 9)
        assert [len(up.received) for up in ups] == [3, 3, 3]


async def test_observers_are_told_of_every_request_once() -> None:
    seen: list[tuple[str | None, str | None, int, str, bool, bool]] = []
    async with Lab() as lab:
        lab.gateway.observers.append(
            lambda r: seen.append(
                (r.model, r.requested, r.status, r.outcome, r.stream, r.ttft_s is not None)
            )
        )
        lab.serve(await lab.upstream(completes), aliases=["alias"])
        client = await lab.client()
        await client.ask(chat("alias", stream=True))
        await client.ask(b"{}")
        await client.ask(msgspec.json.encode({"model": "m"}))
        assert seen == [
            ("m", "alias", 200, "done", True, True),
            (None, None, 400, "refused", False, False),
            ("m", "m", 200, "done", False, True),
        ]
