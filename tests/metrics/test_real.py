"""The scraper against the real server."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from llmgw_core.engines.llamacpp import LlamaCpp, context_pool
from llmgw_core.metrics.scrape import ReplicaScraper
from llmgw_core.metrics.values import EngineNumbers, following, rates
from tests.engines.real import real_model
from tests.engines.requests import KEY, request, start

pytestmark = pytest.mark.engine

BOUND_S = 120.0


async def until(scraper: ReplicaScraper, good: Callable[[EngineNumbers], bool]) -> EngineNumbers:
    """Scrape until the numbers are as wanted, within a bound."""
    end = time.monotonic() + BOUND_S
    while True:
        result = await scraper.scrape()
        if result.numbers is not None and good(result.numbers):
            return result.numbers
        assert time.monotonic() < end, result
        await asyncio.sleep(0.05)


async def test_tokens_are_counted_while_an_answer_is_under_way(tmp_path: Path) -> None:
    model = real_model()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    launch = LlamaCpp().launch(request("-c", "2048", source=str(model), port=port, cores=1))
    started = start(launch, tmp_path / "run")
    try:
        async with httpx.AsyncClient(timeout=BOUND_S) as client:
            scraper = ReplicaScraper(
                client,
                f"http://127.0.0.1:{port}",
                "smol",
                LlamaCpp().metrics,
                api_key=KEY,
                context_pool=context_pool(launch.argv),
                timeout_s=30.0,
            )
            before = await until(scraper, lambda _: True)
            assert (before.running, before.waiting, before.kv_usage) == (0, 0, 0)
            asked = {"model": "smol", "prompt": "Once", "max_tokens": 1500, "stream": True,
                     "ignore_eos": True}  # fmt: skip
            headers = {"Authorization": f"Bearer {KEY}"}
            url = f"{scraper.base}/v1/completions"
            async with client.stream("POST", url, json=asked, headers=headers) as answer:
                chunks = answer.aiter_bytes()
                await anext(chunks)
                busy = await until(scraper, lambda now: (now.output_tokens_total or 0) > 5)
                assert busy.running == 1
                assert busy.counted_tokens_total == 0
                assert busy.kv_usage is not None
                assert 0 < busy.kv_usage < 1
                rate = rates(before, following(before, busy), 1.0).output_tokens_per_s
                assert rate is not None
                assert rate > 5
            # the client has left: the engine notices, and counts what it had generated
            idle = await until(scraper, lambda now: now.running == 0)
            assert idle.kv_usage == 0
            assert (idle.counted_tokens_total or 0) >= (busy.output_tokens_total or 0) > 0
        started.process.send_signal(signal.SIGTERM)
        assert started.process.wait(10) == 0
    finally:
        started.end()
