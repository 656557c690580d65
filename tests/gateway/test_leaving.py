"""Clients that leave, and clients that do not read: what it costs the replica and the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from llmgw_core.gateway.settings import GatewaySettings
from llmgw_core.gateway.table import RouteModel, Target
from tests.gateway.lab import Client, Lab, chat, until
from tests.gateway.upstream import (
    STREAM_HEAD,
    Conversation,
    Received,
    completes,
    event,
    hangs,
)


async def streams_then_waits(conversation: Conversation, request: Received) -> bool:
    await conversation.send(STREAM_HEAD)
    await conversation.chunk(event("one"))
    return await hangs(conversation, request)


async def head_then_waits(conversation: Conversation, request: Received) -> bool:
    await conversation.send(STREAM_HEAD)
    return await hangs(conversation, request)


async def _leave(client: Client, how: str) -> None:
    if how == "close":
        await client.leave()
    elif how == "reset":
        client.reset()
    else:
        client.writer.write_eof()


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
@pytest.mark.parametrize("stream", [True, False])
async def test_before_the_first_byte_the_replica_is_stopped(how: str, stream: bool) -> None:
    async with Lab() as lab:
        up = await lab.upstream(hangs)
        lab.serve(up)
        client = await lab.client()
        await client.post(chat(stream=stream))
        await until(lambda: len(up.received) == 1)
        await _leave(client, how)
        await until(lambda: up.open == 0)
        assert lab.outstanding() == 0
        stats = lab.gateway.metrics.stats("m")
        assert (stats.gone, stats.by_status) == (1, {499: 1})


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
async def test_between_head_and_first_byte_the_replica_is_stopped(how: str) -> None:
    async with Lab() as lab:
        up = await lab.upstream(head_then_waits)
        lab.serve(up)
        client = await lab.client()
        await client.post(chat(stream=True))
        await until(lambda: len(up.received) == 1)
        await _leave(client, how)
        await until(lambda: up.open == 0)


@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
async def test_in_mid_stream_the_replica_is_stopped(how: str) -> None:
    async with Lab() as lab:
        up = await lab.upstream(streams_then_waits)
        lab.serve(up)
        client = await lab.client()
        await client.post(chat(stream=True))
        await client.head()
        assert await client.chunk() == event("one")
        await _leave(client, how)
        await until(lambda: up.open == 0)
        assert lab.outstanding() == 0
        assert lab.gateway.metrics.stats("m").by_status == {200: 1}


async def test_while_a_connection_is_made_nothing_is_sent() -> None:
    async with Lab() as lab:
        up = await lab.upstream(completes)
        gate = asyncio.Event()
        real = lab.gateway.pool._open

        async def slow(address: object) -> object:
            await gate.wait()
            return await real(address)  # type: ignore[arg-type]

        lab.gateway.pool._open = slow  # type: ignore[method-assign,assignment]
        lab.serve(up)
        client = await lab.client()
        await client.post(chat())
        await until(lambda: lab.outstanding() == 1)
        await client.leave()
        await until(lambda: lab.outstanding() == 0)
        gate.set()
        await until(lambda: not lab.gateway.pool._tasks)
        assert up.received == []


async def test_the_one_who_leaves_does_not_disturb_the_others() -> None:
    async with Lab() as lab:
        up = await lab.upstream(completes)
        lab.serve(up)
        stay = await lab.client()
        for _ in range(20):
            leaver = await lab.client()
            await leaver.post(chat(stream=True))
            leaver.reset()
            assert (await stay.ask(chat())).status == 200


async def test_what_waits_behind_a_request_is_never_sent() -> None:
    async with Lab() as lab:
        up = await lab.upstream(hangs)
        lab.serve(up)
        client = await lab.client()
        await client.post(chat())
        await client.post(chat())
        await until(lambda: len(up.received) == 1)
        await client.leave()
        await until(lambda: not lab.gateway.clients)
        assert len(up.received) == 1


async def test_a_client_held_back_from_sending_is_seen_to_leave() -> None:
    async with Lab() as lab:
        up = await lab.upstream(hangs)
        lab.serve(up)
        client = await lab.client()
        body = b'{"model":"m","x":"' + b"x" * 200_000 + b'"}'
        await client.post(chat())
        await client.post(body)
        client.writer.write(b"POST /v1/completions HTTP/1.1\r\n" * 100_000)
        await until(lambda: len(up.received) == 1 and lab.gateway.buffered > 200_000)
        client.reset()
        await until(lambda: up.open == 0)


async def test_a_slow_reader_holds_the_replica_back_not_the_memory() -> None:
    sent = 0
    chunk = b"data: " + b"x" * 65_530 + b"\n\n"

    async def floods(conversation: Conversation, request: Received) -> bool:
        nonlocal sent
        await conversation.send(STREAM_HEAD)
        with contextlib.suppress(ConnectionError):
            for _ in range(1600):
                await conversation.chunk(chunk)
                sent += len(chunk)
            await conversation.send(b"0\r\n\r\n")
        return True

    async with Lab() as lab:
        up = await lab.upstream(floods)
        lab.serve(up)
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", lab.port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=65536)
        client = Client(reader, writer)
        await client.post(chat(stream=True))
        await client.head()
        (held,) = lab.gateway.clients
        await until(lambda: held.write_paused)
        transport = held._transport
        stalled = -1
        while stalled != sent:
            stalled = sent
            # the subject: nothing more may come while nobody reads
            await asyncio.sleep(0.2)
        # what the gateway itself holds; the kernel's buffers are not ours
        assert transport.get_write_buffer_size() < 1_000_000
        assert sent < 20_000_000
        total = 0
        while piece := await client.chunk():
            total += len(piece)
        assert total == 1600 * len(chunk)
        await client.leave()


async def test_a_client_that_never_reads_is_given_up() -> None:
    async def floods(conversation: Conversation, request: Received) -> bool:
        await conversation.send(STREAM_HEAD)
        with contextlib.suppress(ConnectionError):
            while True:
                await conversation.chunk(b"x" * 65536)
        return False

    async with Lab(GatewaySettings(gap_timeout_s=0.5)) as lab:
        up = await lab.upstream(floods)
        lab.serve(up)
        client = await lab.client()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.post(chat(stream=True))
        await until(lambda: lab.outstanding() == 1)
        await until(lambda: up.open == 0 and lab.outstanding() == 0)


async def test_many_come_and_go_at_once_and_nothing_is_left() -> None:
    async with Lab() as lab:
        ups = [await lab.upstream(completes), await lab.upstream(streams_then_waits)]
        lab.table(
            RouteModel(
                name="m",
                targets=tuple(
                    Target(id=f"m-{i}", host="127.0.0.1", port=up.port) for i, up in enumerate(ups)
                ),
            )
        )

        async def visit(number: int) -> None:
            client = await lab.client()
            await client.post(chat(stream=bool(number % 2)))
            if number % 3:
                client.reset()
            else:
                await client.head()
                await client.leave()

        await asyncio.gather(*(visit(n) for n in range(60)))
        await until(lambda: not lab.gateway.clients)
        lab.check_clean()
        await until(lambda: ups[1].open == 0)
