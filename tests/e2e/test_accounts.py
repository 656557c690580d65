"""Keys and usage over the real engine: what is booked is what the engine counted."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from llmgw_core.ledger.usage import FILE, UsageStore, UsageSum
from tests.e2e.cluster import Cluster, chat, model_file
from tests.e2e.test_life import model_toml

pytestmark = pytest.mark.engine


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    model_file()
    node = f'[[nodes]]\nname = "n1"\nlocal = true\nstate_dir = "{tmp_path}/node"\n'
    made = Cluster(tmp_path, f'{node}[nodes.engines]\nllamacpp = "{sys.executable}"\n')
    try:
        await made.start()
        await made.do("add", toml=model_toml(model_file()))
        await made.ready(1)
        yield made
    finally:
        await made.end()


async def _counted(cluster: Cluster) -> tuple[float, float]:
    """Prompt tokens that the engine worked on, and tokens that it made, since it started."""
    (replica,) = (await cluster.client.snapshot()).replicas
    key = (cluster.folder / "node" / "run" / replica.id / "spec.json").read_text()
    (secret,) = re.findall(r'"key":"([^"]+)"', key)
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {secret}"}) as http:
        text = (await http.get(f"http://127.0.0.1:{replica.port}/metrics")).text
    values = dict(re.findall(r"^(llamacpp:\w+) (\S+)$", text, re.MULTILINE))
    return (
        float(values["llamacpp:prompt_tokens_total"]),
        float(values["llamacpp:tokens_predicted_total"]),
    )


async def _booked(cluster: Cluster, requests: int) -> UsageSum:
    """The sum of all lines, once so many requests are in it."""
    store = UsageStore(cluster.state / FILE)
    async with asyncio.timeout(20):
        while True:
            rows = store.read([])
            if rows and rows[0].sums.requests >= requests:
                return rows[0].sums
            await asyncio.sleep(0.05)


async def test_usage_is_what_the_engine_counted(cluster: Cluster) -> None:
    url = await cluster.url()
    before = await _counted(cluster)
    made = (await cluster.do("keys.add", name="ada", models=["smol"])).data
    async with httpx.AsyncClient(timeout=60) as http:
        async with asyncio.timeout(20):
            while (await http.get(f"{url}/v1/models")).status_code != 401:
                await asyncio.sleep(0.05)
        http.headers["authorization"] = f"Bearer {made['key']}"
        for number in range(4):
            body = {**chat("gpt-4o-mini" if number % 2 else "smol", 8 + number), "stream": False}
            answer = await http.post(f"{url}/v1/chat/completions", json=body)
            assert answer.status_code == 200
            streamed = await http.post(f"{url}/v1/chat/completions", json=body | {"stream": True})
            assert '"usage"' not in streamed.text
            assert "[DONE]" in streamed.text
            text = {"model": "smol", "prompt": f"{number} rivers", "max_tokens": 5}
            assert (await http.post(f"{url}/v1/completions", json=text)).status_code == 200
            text["stream"] = True  # whose last piece holds the usage in any case
            assert (await http.post(f"{url}/v1/completions", json=text)).status_code == 200
        booked = await _booked(cluster, 16)
        after = await _counted(cluster)
        assert booked.completion_tokens == after[1] - before[1]
        assert booked.prompt_tokens - booked.cached_tokens == after[0] - before[0]
        assert (booked.requests, booked.untold, booked.cut) == (16, 0, 0)

        # killed, the gateway loses nothing that it had answered
        pid = (await cluster.client.snapshot()).gateway.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await cluster.until(lambda s: s.gateway.pid not in (None, pid), "another gateway")
        url = await cluster.url()
        async with asyncio.timeout(20):
            while (await http.post(f"{url}/v1/completions", json=text)).status_code != 200:
                await asyncio.sleep(0.05)  # it waits for its first table
        assert (await _booked(cluster, 17)).requests == 17

        rows = UsageStore(cluster.state / FILE).read(["key_name", "model", "requested"])
        assert {tuple(row.by.values()) for row in rows} == {
            ("ada", "smol", "smol"), ("ada", "smol", "gpt-4o-mini")
        }  # fmt: skip

        await cluster.do("keys.revoke", name="ada")
        async with asyncio.timeout(20):
            while (await http.get(f"{url}/v1/models")).status_code != 401:
                await asyncio.sleep(0.05)
    told = [event.text async for event in cluster.client.events(follow=False)]
    assert any("made the key ada" in text for text in told)
    assert not any(made["key"] in text for text in told)
    files = [cluster.folder / "daemon.log", *cluster.state.glob("*.log*")]
    for file in (*files, *cluster.state.glob("*.json")):
        assert made["key"] not in file.read_text(errors="replace")
