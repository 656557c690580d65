"""A real engine that stops working is found out and replaced, and its clients are served."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.cluster import Cluster, chat, model_file

pytestmark = pytest.mark.engine

MODEL = """
[[models]]
name = "smol"
source = "{source}"
scaling = {{ min = 2, max = 2 }}
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
    engines = f'[nodes.engines]\nllamacpp = "{sys.executable}"\n'
    made = Cluster(tmp_path, f'unresponsive = "6s"\n{node}{engines}')
    try:
        await made.start()
        await made.do("add", toml=MODEL.format(source=model_file()))
        yield made
    finally:
        await made.end()


def session(leader: int) -> list[int]:
    """An engine and its children."""
    return [
        int(entry.name)
        for entry in Path("/proc").glob("[0-9]*")
        if (stat := _stat(entry)) is not None and stat[3] == str(leader)
    ]


def _stat(entry: Path) -> list[str] | None:
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


async def test_a_frozen_engine_is_replaced_and_nobody_notices(cluster: Cluster) -> None:
    one, _ = await cluster.ready(2)
    url = await cluster.url()
    assert one.pid is not None
    answers: list[int] = []

    async def ask() -> None:
        body = {**chat("smol", 2), "stream": False}
        async with httpx.AsyncClient(timeout=90) as http:
            while True:
                answer = await http.post(f"{url}/v1/chat/completions", json=body)
                answers.append(answer.status_code)

    asking = [asyncio.create_task(ask()) for _ in range(3)]
    try:
        for pid in session(one.pid):
            os.kill(pid, signal.SIGSTOP)
        failed = await cluster.until(
            lambda s: any(r.id == one.id and r.state == "failed" for r in s.replicas), "it is found"
        )
        (view,) = [r for r in failed.replicas if r.id == one.id]
        assert "its process is stopped by a signal" in view.reason
        again = await cluster.ready(2)
    finally:
        for task in asking:
            task.cancel()
        ended = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ended)
    assert set(answers) == {200}
    assert one.pid not in {replica.pid for replica in again}
    assert not Path(f"/proc/{one.pid}").exists()
