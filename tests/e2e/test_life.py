"""The whole life of a model on a node reached over SSH, with the real engine and a real model."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from llmgw_core.errors import Refused
from tests.e2e.cluster import Cluster, chat, model_file, stream_chat
from tests.nodes.sshd import make_sshd, running

pytestmark = pytest.mark.engine


def model_toml(source: Path) -> str:
    return f"""
[[models]]
name = "smol"
aliases = ["gpt-4o-mini"]
source = "{source}"
scaling = {{ min = 1, max = 1 }}
[[models.profiles]]
name = "cpu"
engine = "llamacpp"
args = ["--ctx-size", "2048", "--parallel", "1", "--threads", "1"]
min_memory_gb = 0.4
"""


@pytest.fixture(params=["openssh", "own"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    model_file()
    common = f'state_dir = "{tmp_path}/node"\n[nodes.engines]\nllamacpp = "{sys.executable}"\n'
    if request.param == "own":
        made = Cluster(tmp_path, f'[[nodes]]\nname = "n1"\nlocal = true\n{common}')
        try:
            yield made
        finally:
            await made.end()
        return
    async with running(make_sshd(tmp_path / "sshd")) as server:
        toml = (
            f'[[nodes]]\nname = "n1"\nhost = "127.0.0.1"\nport = {server.port}\n'
            f'user = "{server.user}"\nidentity_file = "{server.client_key}"\n{common}'
        )
        made = Cluster(tmp_path, toml)
        try:
            yield made
        finally:
            await made.end()


async def _let_in(cluster: Cluster) -> None:
    """Accept the host key of a node that has never been seen."""
    snapshot = await cluster.until(
        lambda s: s.nodes[0].state in ("ready", "refused"), "the node is known"
    )
    node = snapshot.nodes[0]
    if node.state == "refused":
        assert node.fingerprint is not None
        assert node.fingerprint.startswith("SHA256:")
        await cluster.do("node.trust", name="n1", fingerprint=node.fingerprint)
        await cluster.until(lambda s: s.nodes[0].state == "ready", "the node is ready")


async def test_the_whole_life(cluster: Cluster) -> None:
    await cluster.start()
    await _let_in(cluster)
    await cluster.do("add", toml=model_toml(model_file()))
    (first,) = await cluster.ready(1)
    url = await cluster.url()
    assert await stream_chat(url, "smol")
    assert await stream_chat(url, "gpt-4o-mini") == await stream_chat(url, "smol")

    await cluster.do("scale", name="smol", delta=1)
    both = await cluster.ready(2)
    assert {r.id for r in both} == {"smol.1", "smol.2"}
    (second_pid,) = [r.pid for r in both if r.id == "smol.2"]
    await cluster.do("scale", name="smol", delta=-1)
    (left,) = await cluster.ready(1)
    assert (left.id, left.pid) == (first.id, first.pid)
    assert not Path(f"/proc/{second_pid}").exists()

    await _leave_in_mid_stream(cluster, url)
    await _survive_kill(cluster, url, first.pid)
    await _come_back_from_a_crash(cluster, url)

    await cluster.do("shutdown", stop_replicas=True, stop_gateway=True)
    assert cluster.daemon is not None
    assert await asyncio.to_thread(cluster.daemon.wait, 20) == 0
    await cluster.gone()


async def _leave_in_mid_stream(cluster: Cluster, url: str) -> None:
    """The engine's own count of requests falls to 0 once the client has left."""
    async with (
        httpx.AsyncClient(timeout=60) as http,
        http.stream("POST", f"{url}/v1/chat/completions", json=chat("smol", 1900)) as answer,
    ):
        lines = answer.aiter_lines()  # kept, since dropping it would close the connection
        while '"content"' not in await anext(lines):
            pass
        await cluster.until(lambda s: s.replicas[0].running == 1, "the engine is busy")
    await cluster.until(lambda s: s.replicas[0].running == 0, "the engine is idle again")


async def _survive_kill(cluster: Cluster, url: str, pid: int | None) -> None:
    """With the daemon killed serving goes on; a new one adopts without a restart."""
    await cluster.kill()
    assert await stream_chat(url, "smol", max_tokens=4)
    await cluster.start()
    (adopted,) = await cluster.ready(1)
    assert adopted.pid == pid
    assert await cluster.url() == url
    events = [event async for event in cluster.client.events(follow=False)]
    assert [e.replica for e in events if e.kind == "replica.adopted"] == ["smol.1"]
    assert len([e for e in events if e.kind == "replica.starting"]) == 2
    assert await stream_chat(url, "smol", max_tokens=4)


async def _come_back_from_a_crash(cluster: Cluster, url: str) -> None:
    """A killed engine is noticed, said, and started again after its backoff."""
    (replica,) = await cluster.ready(1)
    assert replica.pid is not None
    os.kill(replica.pid, signal.SIGKILL)
    snapshot = await cluster.until(lambda s: s.replicas[0].state == "failed", "the crash shows")
    assert "137" in snapshot.replicas[0].reason or "kill" in snapshot.replicas[0].reason.lower()
    async with httpx.AsyncClient(timeout=10) as http:
        answer = await http.post(f"{url}/v1/chat/completions", json=chat("smol", 4))
    assert answer.status_code in (502, 503)
    assert answer.json()["error"]["message"]
    (again,) = await cluster.ready(1)
    assert again.pid != replica.pid
    assert await stream_chat(url, "smol", max_tokens=4)


async def test_a_second_controller_is_refused_by_name(cluster: Cluster) -> None:
    await cluster.start()
    from llmgw_core.controller.engine import EngineRun

    assert cluster.daemon is not None
    with pytest.raises(Refused, match=f"daemon with pid {cluster.daemon.pid}"):
        await EngineRun(cluster.state, cluster.config, "console").start()


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "there is no model file"), (b"", "is empty"), (b"not a model" * 1000, "GGUF")],
)
async def test_a_model_file_that_cannot_be_used_is_said(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    model_file()
    source = tmp_path / "broken.gguf"
    if content is not None:
        source.write_bytes(content)
    node = f'[[nodes]]\nname = "n1"\nlocal = true\nstate_dir = "{tmp_path}/node"\n'
    cluster = Cluster(tmp_path, node + f'[nodes.engines]\nllamacpp = "{sys.executable}"\n')
    try:
        await cluster.start()
        await cluster.do("add", toml=model_toml(source))
        snapshot = await cluster.until(
            lambda s: s.replicas and s.replicas[0].state == "failed" and s.replicas[0].reason,
            "the replica fails",
        )
        await cluster.until(lambda s: words in s.replicas[0].reason, f"{words!r} is said")
        assert "Traceback" not in snapshot.replicas[0].reason
        assert snapshot.replicas[0].retry_at is not None
    finally:
        await cluster.end()
