"""Waiting for a place: bounded, by class and arrival, with signs of life, and nobody forgotten."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.gateway.keys import Gate, Key, KeyRing, digest_of
from llmgw_core.gateway.settings import GatewaySettings
from llmgw_core.gateway.table import RouteModel, Table, Target
from llmgw_core.gateway.waiting import Lines
from tests.gateway.lab import Lab, chat, until
from tests.gateway.upstream import STREAM_HEAD, Conversation, Received, Upstream, completes, event


class Someone:
    """Waits, and goes on where ``places`` has one."""

    def __init__(self, number: int, lines: Lines, places: list[int], went: list[int]) -> None:
        self.number, self.lines, self.places, self.went = number, lines, places, went

    def called(self) -> bool:
        if not self.places[0]:
            return False
        self.places[0] -= 1
        self.lines.leave("m", self)
        self.went.append(self.number)
        return True


STEPS = st.lists(
    st.tuples(st.sampled_from(["join", "leave", "free"]), st.integers(0, 3)), max_size=60
)


@given(STEPS)
def test_who_waits_goes_on_by_class_and_arrival(steps: list[tuple[str, int]]) -> None:
    lines, places, went = Lines(), [0], list[int]()
    standing: list[tuple[int, int, Someone]] = []
    for number, (step, which) in enumerate(steps):
        match step:
            case "join":
                someone = Someone(number, lines, places, went)
                standing.append((-which, number, someone))
                lines.join("m", someone, rank=which, since=float(number))
            case "leave" if standing:
                _, _, gone = standing.pop(which % len(standing))
                lines.leave("m", gone)
            case "free":
                places[0] += 1
                lines.call("m")
                if standing:
                    first = min(standing, key=lambda one: one[:2])
                    standing.remove(first)
                    assert went[-1] == first[1]
                else:
                    places[0] = 0
        assert lines.count("m") == len(standing)
    for _ in list(standing):
        places[0] += 1
        lines.call("m")
    assert lines.count("m") == 0
    assert len(went) == len(set(went))


class Engine:
    """Holds each request until it is let go, in the order in which they came."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gates: list[asyncio.Event] = []
        self.most = self.now = 0

    async def __call__(self, conversation: Conversation, request: Received) -> bool:
        gate = asyncio.Event()
        self.asked.append(request.headers.get("x-request-id", ""))
        self.gates.append(gate)
        self.now += 1
        self.most = max(self.most, self.now)
        await gate.wait()
        self.now -= 1
        return await completes(conversation, request)


def table(up: Upstream | None, version: int = 1, **more: object) -> Table:
    targets: tuple[Target, ...] = ()
    if up is not None:
        targets = (Target("m-1", "127.0.0.1", up.port, slots=1, api_key="replica-key"),)
    values = {"name": "m", "targets": targets, "state": "ready" if up else "on demand"} | more
    return Table(
        version, (msgspec.convert(values, RouteModel, from_attributes=True),),
        ranks={"critical": 300, "low": 1},
    )  # fmt: skip


def named(name: str, key: str = "") -> str:
    return f"x-request-id: {name}\r\n" + (f"x-api-key: {key}\r\n" if key else "")


async def test_a_replica_gets_as_many_as_it_works_on_and_the_rest_by_class() -> None:
    engine = Engine()
    ring = KeyRing(tuple(
        Key(name, digest_of(name), "…", 0.0, "root", model_class=name)
        for name in ("low", "critical")
    ))  # fmt: skip
    async with Lab() as lab:
        lab.gateway.gate = Gate(ring)
        lab.gateway.set_table(table(await lab.upstream(engine), rank=200))
        order = [("1", "low"), ("2", "low"), ("3", "critical"), ("4", "low"), ("5", "critical")]
        clients, lines = [], lab.gateway.state.lines
        for number, (name, key) in enumerate(order):
            client = await lab.client()
            await client.post(chat(), head=named(name, key))
            clients.append(client)
            await until(partial(lambda n: len(engine.asked) + lines.count("m") > n, number))
        for done in range(1, 6):
            await until(partial(lambda n: len(engine.gates) == n, done))
            engine.gates[-1].set()
        for client in clients:
            assert (await client.response()).status == 200
        assert engine.asked == ["1", "3", "5", "2", "4"]
        assert engine.most == 1


async def test_the_line_is_bounded_in_length_and_time() -> None:
    engine = Engine()
    async with Lab(GatewaySettings(max_waiting=1, queue_timeout_s=0.3)) as lab:
        lab.gateway.set_table(table(await lab.upstream(engine)))
        first, second, third = [await lab.client() for _ in range(3)]
        await first.post(chat())
        await until(lambda: engine.gates)
        await second.post(chat())
        await until(lambda: lab.gateway.state.lines.count("m"))
        full = await third.ask(chat())
        assert (full.status, full.error["code"]) == (429, "queue_full")
        assert int(full.headers["retry-after"]) >= 1
        late = await second.response()
        assert (late.status, late.error["code"]) == (503, "queue_timeout")
        assert "no replica had a free place" in str(late.error["message"])
        engine.gates[0].set()
        assert (await first.response()).status == 200
        assert lab.gateway.state.lines.count("m") == 0


async def test_who_leaves_the_line_is_never_sent_on() -> None:
    engine = Engine()
    async with Lab() as lab:
        lab.gateway.set_table(table(await lab.upstream(engine)))
        first, second, third = [await lab.client() for _ in range(3)]
        await first.post(chat(), head=named("1"))
        await until(lambda: engine.gates)
        for client, name in ((second, "2"), (third, "3")):
            await client.post(chat(), head=named(name))
        await until(lambda: lab.gateway.state.lines.count("m") == 2)
        second.reset()
        await until(lambda: lab.gateway.state.lines.count("m") == 1)
        engine.gates[0].set()
        await until(lambda: len(engine.gates) == 2)
        engine.gates[1].set()
        assert (await third.response()).status == 200
        assert engine.asked == ["1", "3"]


async def test_a_request_wakes_its_model_and_others_wait_with_it() -> None:
    async with Lab() as lab:
        woken = []
        lab.gateway.state.lines.on_wait = lambda: woken.append(1)
        lab.gateway.set_table(table(None, wakes=True))
        clients = [await lab.client() for _ in range(3)]
        for client in clients:
            await client.post(chat())
        await until(lambda: lab.gateway.state.lines.count("m") == 3)
        assert woken
        (demand,) = lab.gateway.report().models
        assert (demand.waiting, demand.running) == (3, 0)
        up = await lab.upstream(completes)
        lab.gateway.set_table(table(up, 2))
        for client in clients:
            assert (await client.response()).status == 200


async def test_a_client_may_say_that_it_does_not_wait() -> None:
    async with Lab() as lab:
        lab.gateway.set_table(
            table(None, wakes=True, state="starting", progress=0.42, node="gpu1", reason="")
        )
        client = await lab.client()
        answer = await client.ask(chat(), head="prefer: respond-async, wait=0\r\n")
        assert answer.status == 503
        assert answer.headers["retry-after"] == "5"
        assert "starting on gpu1, 42% loaded" in str(answer.error["message"])
        assert answer.error["loading"] == {
            "state": "starting", "progress": 0.42, "node": "gpu1", "waiting": 0,
        }  # fmt: skip


@pytest.mark.parametrize("ends", ["served", "gone", "refused"])
async def test_a_stream_that_waits_shows_signs_of_life(ends: str) -> None:
    async def wants_less(conversation: Conversation, request: Received) -> bool:
        body = b'{"error":{\n"message":"too long"}}'
        head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
        await conversation.send(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        return True

    async with Lab(GatewaySettings(heartbeat_s=0.2)) as lab:
        lab.gateway.set_table(table(None, wakes=True, state="starting", node="gpu1"))
        client = await lab.client()
        await client.post(chat(stream=True))
        status, headers = await client.head()
        assert status == 200
        assert headers["content-type"] == "text/event-stream"
        for _ in range(2):
            assert await client.chunk() == b": m is starting on gpu1\n\n"
        match ends:
            case "served":
                lab.gateway.set_table(table(await lab.upstream(completes), 2))
                got = b""
                while piece := await client.chunk():
                    got += piece
                assert got.endswith(b"data: [DONE]\n\n")
                assert b'"one "' in got
            case "refused":
                lab.gateway.set_table(table(await lab.upstream(wants_less), 2))
                rest = await client.rest()
                assert b'data: {"error":{"message":"too long"}}\n\n' in rest
                assert not rest.endswith(b"0\r\n\r\n")
            case "gone":
                lab.gateway.set_table(Table(2))
                rest = await client.rest()
                assert b'data: {"error"' in rest
                assert b"has no ready replica" in rest
                assert not rest.endswith(b"0\r\n\r\n")


async def test_a_replica_that_thinks_long_keeps_its_stream_alive() -> None:
    steps = [asyncio.Event(), asyncio.Event()]

    async def thinks(conversation: Conversation, request: Received) -> bool:
        await conversation.send(STREAM_HEAD)
        await conversation.chunk(event("one"))
        await steps[0].wait()
        await conversation.chunk(event("two")[:9])
        await steps[1].wait()
        await conversation.chunk(event("two")[9:] + b"data: [DONE]\n\n")
        await conversation.send(b"0\r\n\r\n")
        return True

    async with Lab(GatewaySettings(heartbeat_s=0.2)) as lab:
        lab.gateway.set_table(table(await lab.upstream(thinks)))
        client = await lab.client()
        await client.post(chat(stream=True))
        await client.head()
        assert await client.chunk() == event("one")
        assert await client.chunk() == b": m works\n\n"
        for step in steps:
            step.set()
        got = b""
        while piece := await client.chunk():
            got += piece
        assert got.replace(b": m works\n\n", b"") == event("two") + b"data: [DONE]\n\n"
