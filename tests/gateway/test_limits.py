"""Limits of keys and owners: never exceeded, and the time to wait is true."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.gateway.errors import ApiError
from llmgw_core.gateway.keys import Gate, Key, KeyRing, digest_of
from llmgw_core.gateway.limits import DAY_S, Limiter, Minute, Now, Ticket
from llmgw_core.gateway.table import KeyLimits, Table
from tests.gateway.lab import Lab, chat, model, until
from tests.gateway.upstream import STREAM_HEAD, Conversation, Received, completes, event, hangs

DAY = 20_000 * DAY_S


def key_of(**limits: int) -> Key:
    return Key("ada", digest_of("secret"), "sk-…", 0.0, "root", limits=KeyLimits(**limits))


def wait_for(limiter: Limiter, key: Key, mono: float) -> int | None:
    """None where a request is let in, else the seconds that it is told to wait."""
    try:
        limiter.admit(key, None, Now(mono, DAY + mono))
    except ApiError as error:
        return error.retry_after_s
    return None


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.floats(0, 40), st.booleans()), min_size=1, max_size=40),
)
def test_no_minute_ever_holds_more_than_it_may(limit: int, steps: list[tuple[float, bool]]) -> None:
    limiter, key, mono = Limiter(), key_of(requests_per_minute=limit), 1000.0
    let_in: list[float] = []
    for pause, waits in steps:
        mono += pause
        wait = wait_for(limiter, key, mono)
        if wait is not None:
            assert 1 <= wait <= 62
            if not waits:
                continue
            mono += wait
            assert wait_for(limiter, key, mono) is None  # who waits as told is let in
        let_in.append(mono)
        assert sum(mono - at < 60 for at in let_in) <= limit


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 9)), max_size=60))
def test_a_minute_never_tells_less_than_there_was(steps: list[tuple[float, int]]) -> None:
    minute, mono, all_of = Minute(), 5.0, []
    for pause, amount in steps:
        mono += pause
        minute.add(amount, mono)
        all_of.append((mono, amount))
        true = sum(a for at, a in all_of if mono - at < 60)
        assert true <= minute.read(mono) <= sum(a for at, a in all_of if mono - at < 62)


def test_days_are_of_utc_and_go_on_over_a_restart() -> None:
    key = key_of(requests_per_day=2, tokens_per_day=100)
    limiter = Limiter()
    evening = Now(10.0, DAY + DAY_S - 90)
    limiter.begin_day([("key", key.id, 1, 99), ("owner", "team", 0, 7)], evening)
    ticket = limiter.admit(key, None, evening)
    limiter.release(ticket, 5, evening)
    with pytest.raises(ApiError, match="2 requests a day; try again in 90 s") as refused:
        limiter.admit(key, None, evening)
    assert refused.value.retry_after_s == 90
    limiter.admit(key, None, Now(101.0, DAY + DAY_S + 1))


def test_tokens_count_when_an_answer_ends() -> None:
    key = key_of(tokens_per_minute=10)
    limiter, start = Limiter(), Now(0.5, DAY)
    one, two = limiter.admit(key, None, start), limiter.admit(key, None, start)
    limiter.release(one, 9, Now(3.0, DAY))
    limiter.admit(key, None, Now(4.0, DAY))
    limiter.release(two, 30, Now(5.0, DAY))
    with pytest.raises(ApiError, match="10 tokens a minute") as refused:
        limiter.admit(key, None, Now(6.0, DAY))
    wait = refused.value.retry_after_s
    assert wait is not None
    limiter.admit(key, None, Now(6.0 + wait, DAY))


def test_an_owner_shares_its_limits_over_keys() -> None:
    limiter, now = Limiter(), Now(0.0, DAY)
    limiter.owners = {"team": KeyLimits(requests_per_minute=2)}
    for _ in range(2):
        limiter.admit(None, "team", now)
    with pytest.raises(ApiError, match="The owner team has reached"):
        limiter.admit(key_of(requests_per_minute=9), "team", now)
    limiter.admit(None, "other", now)
    limiter.admit(None, None, now)


@given(st.lists(st.sampled_from(["in", "out"]), max_size=30))
def test_requests_at_once(steps: list[str]) -> None:
    limiter, key, now = Limiter(), key_of(concurrency=3), Now(0.0, DAY)
    tickets: list[Ticket] = []
    for step in steps:
        if step == "out":
            if tickets:
                limiter.release(tickets.pop(), 0, now)
        elif len(tickets) < 3:
            tickets.append(limiter.admit(key, None, now))
        else:
            with pytest.raises(ApiError, match="3 requests at once") as refused:
                limiter.admit(key, None, now)
            assert refused.value.retry_after_s == 1


async def test_limits_over_the_wire() -> None:
    async def endless(conversation: Conversation, request: Received) -> bool:
        await conversation.send(STREAM_HEAD)
        await conversation.chunk(event("one"))
        return await hangs(conversation, request)

    key = Key("ada", digest_of("secret"), "sk-…", 0.0, "root", limits=KeyLimits(concurrency=1))
    async with Lab() as lab:
        lab.gateway.gate = Gate(KeyRing((key,)))
        lab.table(model(await lab.upstream(endless), name="slow"),
                  model(await lab.upstream(completes), name="m"))  # fmt: skip
        head = "x-api-key: secret\r\n"
        first, second = await lab.client(), await lab.client()
        await first.post(chat("slow", stream=True), head=head)
        await first.head()
        refused = await second.ask(chat(), head=head)
        assert refused.status == 429
        assert refused.headers["retry-after"] == "1"
        assert refused.error["code"] == "rate_limit_exceeded"
        first.reset()  # who leaves frees its place at once
        await until(lambda: lab.outstanding("slow-1") == 0)
        assert (await second.ask(chat(), head=head)).status == 200
        lab.gateway.set_table(
            Table(99, (model(await lab.upstream(completes)),),
                  owners={"team": KeyLimits(requests_per_day=1)})
        )  # fmt: skip
        assert (await second.ask(chat(), head=head)).status == 200
