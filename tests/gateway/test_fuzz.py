"""Whatever bytes come, the gateway answers or closes, and nothing goes wrong inside."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw_core.gateway.settings import GatewaySettings
from tests.gateway.lab import Lab, chat
from tests.gateway.upstream import Conversation, Received, answer, completes

TOKENS = [
    b"GET", b"POST", b"HEAD", b"CONNECT", b"OPTIONS", b" ", b"/", b"/health", b"/v1/models",
    b"/v1/completions", b"*", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"\r\n", b"\r\n\r\n", b"\n",
    b"\r", b":", b"host: g", b"content-length: 13", b"content-length: 0",
    b"transfer-encoding: chunked", b"connection: close", b"connection: upgrade",
    b"upgrade: websocket", b"expect: 100-continue", b'{"model":"m"}', b"d\r\n", b"0\r\n\r\n",
    b"ffffffffffffffff\r\n", b"\0", b"\xff", b"x: y", b"a" * 300, b"\x16\x03\x01",
]  # fmt: skip
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\n"

input_bytes = st.one_of(
    st.binary(max_size=300),
    st.lists(st.sampled_from(TOKENS), max_size=30).map(b"".join),
    st.lists(st.sampled_from(TOKENS), max_size=20).map(lambda parts: HEAD + b"\r\n".join(parts)),
)


async def _throw(lab: Lab, pieces: list[bytes]) -> None:
    client = await lab.client()
    with contextlib.suppress(ConnectionError):
        for piece in pieces:
            await client.send(piece)
            await asyncio.sleep(0)
        client.writer.write_eof()
        heard = await client.rest()
        assert heard == b"" or heard.startswith(b"HTTP/1.1 ")
    await client.leave()


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=input_bytes, cuts=st.lists(st.integers(0, 400), max_size=3))
def test_any_bytes_from_a_client(data: bytes, cuts: list[int]) -> None:
    async def case() -> None:
        async with Lab(GatewaySettings(max_body_mb=0.01, max_header_kb=1)) as lab:
            lab.serve(await lab.upstream(completes))
            edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
            await _throw(lab, [data[a:b] for a, b in itertools.pairwise(edges)])
            other = await lab.client()
            assert (await other.get("/health")).status == 200

    asyncio.run(case())


GOOD = [
    answer(b"hello"),
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n",
]


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 30), garbage=st.binary(max_size=60))
def test_any_bytes_from_a_replica(seed: int, garbage: bytes) -> None:
    chance = random.Random(seed)
    raw = bytearray(b"".join(chance.sample(GOOD, chance.randint(1, 3))))
    for _ in range(chance.randint(0, 3)):
        raw[chance.randrange(len(raw))] = chance.randrange(256)
    cut = chance.randint(0, len(raw))
    data = bytes(raw[:cut]) + garbage + bytes(raw[cut:]) if chance.random() < 0.5 else bytes(raw)

    async def script(conversation: Conversation, request: Received) -> bool:
        middle = chance.randint(0, len(data))
        await conversation.send(data[:middle])
        await asyncio.sleep(0)
        await conversation.send(data[middle:])
        return False

    async def case() -> None:
        async with Lab() as lab:
            lab.serve(await lab.upstream(script))
            client = await lab.client()
            await client.post(chat())
            with contextlib.suppress(ConnectionError):
                heard = await client.reader.readuntil(b"\r\n\r\n")
                assert heard.startswith(b"HTTP/1.1 ")

    asyncio.run(case())
