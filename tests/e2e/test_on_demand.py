"""A model on demand over the real engine: the first request starts it and is answered."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.cluster import Cluster, chat, model_file, stream_chat

pytestmark = pytest.mark.engine

MODEL = """
[[models]]
name = "{name}"
source = "{source}"
scaling = {{ min = 0, max = 1, idle_timeout = "{idle}" }}
[[models.profiles]]
name = "cpu"
engine = "llamacpp"
args = ["--ctx-size", "1024", "--parallel", "1", "--threads", "1"]
min_memory_gb = 0.4
"""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    model_file()
    node = f'[[nodes]]\nname = "n1"\nlocal = true\nstate_dir = "{tmp_path}/node"\n'
    made = Cluster(tmp_path, f'{node}[nodes.engines]\nllamacpp = "{sys.executable}"\n')
    try:
        await made.start()
        yield made
    finally:
        await made.end()


async def test_the_first_requests_start_it_and_all_are_answered(cluster: Cluster) -> None:
    await cluster.do("add", toml=MODEL.format(name="smol", source=model_file(), idle="2s"))
    url = await cluster.url()
    await cluster.until(lambda s: any(n.state == "ready" for n in s.nodes), "the node is ready")
    assert (await cluster.client.snapshot()).replicas == ()
    async with httpx.AsyncClient(timeout=90) as http:
        async with asyncio.timeout(30):  # until the gateway has its first table
            while (await http.get(f"{url}/v1/models/smol")).status_code != 200:
                await asyncio.sleep(0.05)
        whole = {**chat("smol", 4), "stream": False}
        asked = [http.post(f"{url}/v1/chat/completions", json=whole) for _ in range(3)]
        streamed = asyncio.create_task(stream_chat(url, "smol", max_tokens=4))
        answers = await asyncio.gather(*asked)
        text = await streamed
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert text
    told = [event async for event in cluster.client.events(follow=False)]
    assert sum(event.kind == "replica.starting" for event in told) == 1
    await cluster.until(lambda s: not s.replicas, "nobody asks, and it goes")
    assert await stream_chat(url, "smol", max_tokens=4)
