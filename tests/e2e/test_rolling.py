"""Rolling changes under load, with the real engine: no request is lost, and none goes astray."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from llmgw_core.api.views import ReplicaView
from tests.e2e.cluster import Cluster, chat, model_file, stream_chat

pytestmark = pytest.mark.engine


def toml(source: Path, ctx: int = 1024) -> str:
    return (
        f'[[models]]\nname = "smol"\nsource = "{source}"\nscaling = {{ min = 1, max = 1 }}\n'
        '[[models.profiles]]\nname = "cpu"\nengine = "llamacpp"\nmin_memory_gb = 0.4\n'
        f'args = ["--ctx-size", "{ctx}", "--parallel", "2", "--threads", "1"]\n'
    )


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    model_file()
    node = f'[[nodes]]\nname = "n1"\nlocal = true\nstate_dir = "{tmp_path}/node"\n'
    made = Cluster(tmp_path, f'{node}[nodes.engines]\nllamacpp = "{sys.executable}"\n')
    try:
        await made.start()
        await made.do("add", toml=toml(model_file()))
        await made.ready(1)
        yield made
    finally:
        await made.end()


@asynccontextmanager
async def asked_all_the_time(url: str) -> AsyncIterator[list[str]]:
    """Clients that ask without a pause, streams and whole answers; what went wrong, at the end."""
    wrong: list[str] = []
    enough = asyncio.Event()
    answered = 0

    async def whole() -> None:
        nonlocal answered
        body = {**chat("smol", 4), "stream": False}
        async with httpx.AsyncClient(timeout=60) as http:
            while not enough.is_set():
                answer = await http.post(f"{url}/v1/chat/completions", json=body)
                if answer.status_code != 200:
                    wrong.append(f"{answer.status_code} {answer.text[:200]}")
                answered += 1

    async def streams() -> None:
        nonlocal answered
        while not enough.is_set():
            try:
                await stream_chat(url, "smol", max_tokens=16)
            except (AssertionError, httpx.HTTPError) as error:
                wrong.append(repr(error)[:300])
            answered += 1

    async with asyncio.TaskGroup() as group:
        group.create_task(whole())
        group.create_task(streams())
        try:
            yield wrong
        finally:
            enough.set()
    assert answered > 4


async def replaced(cluster: Cluster, before: ReplicaView) -> ReplicaView:
    """Wait until another replica has taken its place, alone."""
    snapshot = await cluster.until(
        lambda s: len(s.replicas) == 1 and s.replicas[0].pid != before.pid
        and s.replicas[0].state == "ready",
        f"{before.id} is replaced",
    )  # fmt: skip
    return snapshot.replicas[0]


async def starts(cluster: Cluster) -> list[str | None]:
    told = [event async for event in cluster.client.events(follow=False)]
    return [event.replica for event in told if event.kind == "replica.starting"]


async def test_changes_roll_under_load_and_lose_no_request(
    cluster: Cluster, tmp_path: Path
) -> None:
    (now,) = await cluster.ready(1)
    async with asked_all_the_time(await cluster.url()) as wrong:
        await cluster.do("edit", name="smol", toml=toml(model_file(), 1536))
        now = await replaced(cluster, now)
        assert "1536" in now.argv

        copy = tmp_path / "other.gguf"
        await asyncio.to_thread(shutil.copyfile, model_file(), copy)
        await cluster.do("edit", name="smol", toml=toml(copy, 1536))
        now = await replaced(cluster, now)
        assert str(copy) in " ".join(now.argv)

        plan = (await cluster.do(
            "preview", commands=[{"name": "restart", "args": {"replica": "smol"}}]
        )).data["plan"]  # fmt: skip
        assert [(a["kind"], a["replaces"]) for a in plan["actions"]] == [
            ("start", now.id), ("stop", ""),
        ]  # fmt: skip
        assert plan["actions"][0]["load_time_s"] > 0
        before = len(await starts(cluster))
        await cluster.do("restart", replica="smol")
        await cluster.kill()
        await cluster.start()
        now = await replaced(cluster, now)
        assert len(await starts(cluster)) == before + 1
    assert wrong == []


async def test_quick_edits_cost_one_roll_and_one_that_is_taken_back_costs_none(
    cluster: Cluster,
) -> None:
    (first,) = await cluster.ready(1)
    async with asked_all_the_time(await cluster.url()) as wrong:
        await cluster.do("edit", name="smol", toml=toml(model_file(), 1536))
        await cluster.do("edit", name="smol", toml=toml(model_file(), 2048))
        second = await replaced(cluster, first)
        assert "2048" in second.argv
        assert len(await starts(cluster)) <= 3  # one that had begun with the first edit was ended

        await cluster.do("edit", name="smol", toml=toml(model_file(), 1024))
        await cluster.until(lambda s: len(s.replicas) == 2, "a successor starts")
        await cluster.do("edit", name="smol", toml=toml(model_file(), 2048))
        snapshot = await cluster.until(lambda s: len(s.replicas) == 1, "the successor is ended")
        assert (snapshot.replicas[0].id, snapshot.replicas[0].pid) == (second.id, second.pid)
    assert wrong == []
