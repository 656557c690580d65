"""Accounting: what engines say is booked exactly, and hidden from who did not ask."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.gateway.accounts import entry_of
from llmgw_core.gateway.metrics import Outcome, RequestRecord
from llmgw_core.gateway.table import RouteModel
from llmgw_core.gateway.usage import NOTHING, StreamReader, Usage, read_document
from llmgw_core.ledger.usage import UsageKey, UsageSum
from tests.gateway.lab import Client, Lab, Response, model, until
from tests.gateway.upstream import STREAM_HEAD, Conversation, Received


def sse(document: object) -> bytes:
    return b"data: " + msgspec.json.encode(document) + b"\n\n"


def delta(text: str, **more: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}}], **more}


LAST = {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 3,
                                 "prompt_tokens_details": {"cached_tokens": 4}}}  # fmt: skip
SAID = Usage(11, 3, 4)


@given(st.data())
def test_a_stream_is_read_alike_however_it_is_cut_into_reads(data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.sampled_from(["a", '"usage"', "usage", "\n\n", "é"]), max_size=6))
    line_end = data.draw(st.sampled_from([b"\n", b"\r\n"]))
    events = [sse(delta(text)) for text in texts]
    events += [b": still there\n\n", sse(delta("x", usage=None))]
    events = [event.replace(b"\n", line_end) for event in events]
    usage = sse(LAST).replace(b"\n", line_end)
    done = b"data: [DONE]" + line_end * 2
    whole = b"".join([*events, usage, done])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    for hide in (True, False):
        reader = StreamReader(hide=hide)
        got = b"".join(
            reader.feed(whole[start:end])
            for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)
        )
        got += reader.rest()
        assert got == (b"".join([*events, done]) if hide else whole)
        assert reader.usage == SAID


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_any_bytes_pass_a_stream_that_hides_nothing(raw: bytes, cuts: list[int]) -> None:
    reader = StreamReader(hide=False)
    places = sorted({min(cut, len(raw)) for cut in cuts} | {0, len(raw)})
    got = b"".join(
        reader.feed(raw[a:b]) for a, b in zip(places, [*places[1:], len(raw)], strict=True)
    )
    assert got + reader.rest() == raw


@pytest.mark.parametrize(
    ("document", "usage"),
    [
        ({"usage": {"prompt_tokens": 5, "completion_tokens": 2}}, Usage(5, 2)),
        ({"usage": {"prompt_tokens": 5, "total_tokens": 5}, "data": []}, Usage(5, 0)),
        ({"usage": {"input_tokens": 5, "output_tokens": 2,
                    "input_tokens_details": {"cached_tokens": 1}}}, Usage(5, 2, 1)),
        ({"type": "response.completed",
          "response": {"usage": {"input_tokens": 5, "output_tokens": 2}}}, Usage(5, 2)),
        ({"usage": {"input_tokens": 5, "cache_read_input_tokens": 3,
                    "cache_creation_input_tokens": 1, "output_tokens": 2}}, Usage(9, 2, 3)),
        ({"type": "message_start", "message": {"usage": {"input_tokens": 5}}}, Usage(5)),
        ({"type": "message_delta", "usage": {"output_tokens": 7}}, Usage(None, 7)),
        ({"usage": None}, NOTHING),
        ({"usage": "much"}, NOTHING),
        ({"usage": {"prompt_tokens": "5"}}, NOTHING),
        ({"choices": [{"message": {"usage": 3}}]}, NOTHING),
        ([], NOTHING),
    ],
)  # fmt: skip
def test_what_engines_say(document: object, usage: Usage) -> None:
    assert read_document(msgspec.json.encode(document))[0] == usage


class Engine:
    """Answers in as many tokens as it is asked for, and counts what it has sent."""

    def __init__(self) -> None:
        self.prompt = self.completion = self.requests = self.untold = 0
        self.asked: list[dict[str, Any]] = []

    async def __call__(self, conversation: Conversation, request: Received) -> bool:
        body: dict[str, Any] = request.json()
        self.asked.append(body)
        self.requests += 1
        tokens, prompt = body["max_tokens"], len(str(body["messages"]))
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens}
        if body.get("fail"):
            await conversation.send(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}")
            return True
        if not body.get("stream"):
            self.prompt += prompt
            self.completion += tokens
            answer = msgspec.json.encode({"choices": [{"message": {}}], "usage": usage})
            head = (
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            )
            await conversation.send(head % len(answer) + answer)
            return True
        return await self._stream(conversation, body, usage)

    async def _stream(
        self, conversation: Conversation, body: dict[str, Any], usage: dict[str, int]
    ) -> bool:
        await conversation.send(STREAM_HEAD)
        for number in range(usage["completion_tokens"]):
            await conversation.chunk(sse(delta(str(number))))
            if body.get("cut") == number:
                self.untold += 1
                if body.get("by") == "client":
                    await conversation.until_closed()
                return False
        asked = (body.get("stream_options") or {}).get("include_usage")
        if asked:
            self.prompt += usage["prompt_tokens"]
            self.completion += usage["completion_tokens"]
            await conversation.chunk(sse({"choices": [], "usage": usage}))
        else:
            self.untold += 1
        await conversation.chunk(b"data: [DONE]\n\n")
        await conversation.send(b"0\r\n\r\n")
        return True


def ask(**fields: object) -> bytes:
    messages = [{"role": "user", "content": "x" * random.Random(str(fields)).randrange(50)}]
    return msgspec.json.encode({"messages": messages, "model": "m", "max_tokens": 2, **fields})


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({}, False),
        ({"stream_options": None}, False),
        ({"stream_options": {}}, False),
        ({"stream_options": {"include_usage": False}}, False),
        ({"stream_options": {"x": 1, "include_usage": None}}, False),
        ({"stream_options": {"include_usage": True}}, True),
    ],
)
async def test_usage_is_asked_for_and_shown_only_to_who_asked(
    options: dict[str, object], shown: bool
) -> None:
    engine = Engine()
    async with Lab() as lab:
        records: list[RequestRecord] = []
        lab.gateway.observers.append(records.append)
        lab.table(model(await lab.upstream(engine), aliases=["alias"]))
        client = await lab.client()
        answer = await client.ask(ask(stream=True, model="alias", **options))
        assert answer.complete
        assert (b'"usage"' in answer.body) is shown
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert answer.body.count(b"delta") == 2
        (record,) = records
        assert record.usage == Usage(engine.prompt, 2)
        assert (record.model, record.requested) == ("m", "alias")
        sent = engine.asked[0]
        assert sent["stream_options"]["include_usage"] is True
        assert sent["model"] == "m"
        assert ("x" in sent["stream_options"]) is ("x" in (options.get("stream_options") or {}))  # type: ignore[operator]


async def test_options_that_are_no_object_are_left_to_the_engine() -> None:
    engine = Engine()
    async with Lab() as lab:
        lab.table(model(await lab.upstream(engine)))
        client = await lab.client()
        answer = await client.ask(ask(stream=True, fail=True, stream_options=3))
        assert answer.status == 400
        assert engine.asked[0]["stream_options"] == 3


async def test_two_thousand_mixed_requests_are_booked_as_the_engines_counted_them() -> None:
    rng = random.Random(5)
    booked: dict[UsageKey, UsageSum] = {}

    def book(record: RequestRecord) -> None:
        entry = entry_of(record, "2026-11-30")
        if entry is not None:
            booked[entry[0]] = booked.get(entry[0], UsageSum()) + entry[1]

    engine = Engine()
    async with Lab() as lab:
        lab.gateway.observers.append(book)
        up = await lab.upstream(engine)
        lab.table(
            model(up, aliases=["alias"]), RouteModel(name="stopped"),
        )  # fmt: skip
        clients = [await lab.client() for _ in range(8)]
        sent = cut = failed = refused = 0
        for number in range(2000):
            place = number % len(clients)
            fields, kind = _some_request(rng)
            if kind == "left":
                await _leave_in_the_middle(clients[place], ask(**fields))
                clients[place] = await lab.client()
            else:
                answer = await clients[place].ask(ask(**fields))
                if kind == "broken":
                    assert not answer.complete
                    assert b"is incomplete" in answer.body
                    clients[place] = await lab.client()
                _check(answer, kind)
            cut += kind in ("left", "broken")
            failed += kind == "failed"
            refused += kind == "refused"
            sent += kind != "refused"
        await until(lambda: lab.outstanding() == 0)
    total = sum(booked.values(), UsageSum())
    assert total.requests == engine.requests == sent
    assert total.prompt_tokens == engine.prompt
    assert total.completion_tokens == engine.completion
    assert (total.cut, total.refused) == (cut, refused)
    assert total.untold == engine.untold == cut
    assert {line.requested for line in booked} == {"m", "alias", "stopped"}
    assert min(cut, failed, refused) > 50


def _some_request(rng: random.Random) -> tuple[dict[str, object], str]:
    tokens = rng.randrange(1, 6)
    fields: dict[str, object] = {"max_tokens": tokens, "model": rng.choice(["m", "alias"])}
    kind = rng.choice(["whole", "whole", "stream", "stream", "left", "broken", "failed", "refused"])
    match kind:
        case "stream":
            fields |= {"stream": True}
            if rng.random() < 0.5:
                fields |= {"stream_options": {"include_usage": rng.random() < 0.5}}
        case "left" | "broken":
            by = "client" if kind == "left" else "engine"
            fields |= {"stream": True, "cut": rng.randrange(tokens), "by": by}
        case "failed":
            fields |= {"fail": True}
        case "refused":
            fields |= {"model": "stopped"}
    return fields, kind


async def _leave_in_the_middle(client: Client, body: bytes) -> None:
    await client.post(body)
    await client.head()
    wanted, seen = msgspec.json.decode(body)["cut"] + 1, 0
    while seen < wanted:  # one chunk may hold several events
        seen += (await client.chunk()).count(b"delta")
    client.reset()


def _check(answer: Response, kind: str) -> None:
    wanted = {"failed": 400, "refused": 503}
    assert answer.status == wanted.get(kind, 200)


def test_what_a_record_is_booked_under() -> None:
    record = RequestRecord(
        model="m", requested="a", target="m-1", status=200, outcome=Outcome.DONE, stream=False,
        ttft_s=None, duration_s=1.0, chunks=1, tries=1, owner="team",
    )  # fmt: skip
    entry = entry_of(record, "2026-11-30")
    assert entry == (
        UsageKey("2026-11-30", "team", "", "", "m", "a"), UsageSum(requests=1, untold=1)
    )  # fmt: skip
