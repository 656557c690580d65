from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import cast

import pytest

from llmgw_core.controller.probing import HttpProber, HttpProbers
from llmgw_core.controller.replica import Replica
from llmgw_core.metrics.scrape import Answer, ReplicaScraper, ScrapeResult
from llmgw_core.metrics.values import EngineNumbers
from llmgw_core.nodes.instance import Endpoint


class Told:
    """A scraper whose results are given."""

    def __init__(self, *results: ScrapeResult) -> None:
        self.results = list(results)

    async def scrape(self) -> ScrapeResult:
        return self.results.pop(0)


def prober(*results: ScrapeResult) -> HttpProber:
    return HttpProber(cast(ReplicaScraper, Told(*results)))


def ready(output: float, counted: float, **numbers: float) -> ScrapeResult:
    values = EngineNumbers(
        output_tokens_total=output, counted_tokens_total=counted, prompt_tokens_total=0, **numbers
    )
    return ScrapeResult(Answer.OK, True, serves=True, numbers=values)


async def test_counters_become_rates_and_gauges_pass_through() -> None:
    asked = prober(ready(10, 0, running=1, kv_usage=0.25), ready(50, 0, running=2))
    first = (await asked.ask(at=100.0)).numbers
    second = (await asked.ask(at=102.0)).numbers
    assert first is not None
    assert second is not None
    assert (first.running, first.kv_usage, first.tokens_per_s) == (1, 0.25, None)
    assert (second.running, second.tokens_per_s, second.prompt_tokens_per_s) == (2, 20, 0)


async def test_an_answer_that_ends_between_questions_shows_no_spike() -> None:
    asked = prober(ready(400, 0), ready(0, 0), ready(404, 404))
    rates = [(await asked.ask(at=at)).numbers for at in (1.0, 2.0, 3.0)]
    assert [numbers and numbers.tokens_per_s for numbers in rates] == [None, 0, 4]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (ScrapeResult(Answer.OK, True, serves=True), (True, True, True)),
        (ScrapeResult(Answer.TIMEOUT, True, serves=True), (True, True, True)),
        (ScrapeResult(Answer.LOADING), (False, True, False)),
        (ScrapeResult(Answer.TIMEOUT), (False, False, False)),
        (ScrapeResult(Answer.NO_CONNECTION), (False, False, False)),
        (ScrapeResult(Answer.UNEXPECTED, True, serves=False), (True, True, False)),
    ],
)
async def test_health_tells_apart_what_the_life_cycle_needs(
    result: ScrapeResult, expected: tuple[bool, bool, bool]
) -> None:
    health = (await prober(result).ask(at=7.0)).health
    assert (health.healthy, health.answered, health.serves) == expected
    assert health.at == 7.0


@pytest.fixture
async def probers() -> AsyncIterator[HttpProbers]:
    made = HttpProbers(timeout_s=1.0)
    yield made
    await made.aclose()


async def test_replicas_share_a_client_but_for_those_behind_a_tunnel(probers: HttpProbers) -> None:
    replica = cast(
        Replica,
        SimpleNamespace(
            engine="llamacpp", model="m", api_key="k", argv=("x", "--ctx-size", "4096")
        ),
    )
    one, two = (probers.make(replica, Endpoint("::1", port)).scraper for port in (1, 2))
    far = probers.make(replica, Endpoint("h", 3, uds="/run/t")).scraper
    assert one.client is two.client
    assert far.client is not one.client
    assert one.base == "http://[::1]:1"
    assert one.context_pool == 4096
    await asyncio.gather(probers.aclose(), probers.aclose())
