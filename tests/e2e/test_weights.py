"""A real model from a hub through the mirror to a node, broken off halfway everywhere."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from llmgw_core.api.views import MirrorVersionView, Snapshot
from llmgw_core.errors import Refused
from tests.e2e.cluster import Cluster, model_file, stream_chat
from tests.gguf.writer import good
from tests.mirror.origin import Origin, publish, serving
from tests.nodes.sshd import make_sshd, running

pytestmark = pytest.mark.engine

REPO = "llmgw/smol-GGUF"
FILE = "SmolLM2-135M-Instruct.gguf"


@pytest.fixture(scope="module")
def weights() -> bytes:
    return model_file().read_bytes()


@pytest.fixture
def hub(weights: bytes) -> Iterator[tuple[Origin, Origin]]:
    """A hub, and the server that it sends for weights to."""
    with serving() as origin, serving() as store:
        publish(origin, store, REPO, {FILE: weights, "README.md": b"# smol"})
        yield origin, store


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(params=["local", "ssh", "pushed"])
async def cluster(
    request: pytest.FixtureRequest, tmp_path: Path, hub: tuple[Origin, Origin]
) -> AsyncIterator[Cluster]:
    """One node: this machine, another one that reaches the mirror, and one that does not."""
    common = f'state_dir = "{tmp_path}/node"\n[nodes.engines]\nllamacpp = "{sys.executable}"\n'
    mirror = f'[mirror]\nhub_endpoint = "{hub[0].base}"\nrate_limit_mb_s = 60\n'
    if request.param == "local":
        made = Cluster(tmp_path, f'{mirror}[[nodes]]\nname = "n1"\nlocal = true\n{common}')
        try:
            yield made
        finally:
            await made.end()
        return
    if request.param == "ssh":
        port = free_port()
        mirror += f'port = {port}\nurl = "http://127.0.0.1:{port}"\n'
    async with running(make_sshd(tmp_path / "sshd")) as server:
        toml = (
            f'{mirror}[[nodes]]\nname = "n1"\nhost = "127.0.0.1"\nport = {server.port}\n'
            f'user = "{server.user}"\nidentity_file = "{server.client_key}"\n{common}'
        )
        made = Cluster(tmp_path, toml)
        try:
            yield made
        finally:
            await made.end()


async def _let_in(cluster: Cluster) -> None:
    snapshot = await cluster.until(
        lambda s: s.nodes[0].state in ("ready", "refused"), "the node is known"
    )
    if snapshot.nodes[0].state == "refused":
        await cluster.do("node.trust", name="n1", fingerprint=snapshot.nodes[0].fingerprint)
        await cluster.until(lambda s: s.nodes[0].state == "ready", "the node is ready")


def version(snapshot: Snapshot) -> MirrorVersionView | None:
    return next(iter(snapshot.mirror.versions), None)


async def _pull_with_a_break(cluster: Cluster, store: Origin, size: int) -> None:
    """Hold the pull at half of its bytes, end it there, and go on later."""
    store.hold_at = size // 2
    await cluster.do("mirror.pull", source=f"hf:{REPO}:*.gguf", model="smol", version="v1")
    await asyncio.to_thread(store.holding.wait, 30)
    await cluster.until(
        lambda s: (v := version(s)) and v.bytes_done > size // 4, "half of it has come"
    )
    await cluster.do("mirror.cancel", model="smol", version="v1")
    store.hold_at = None
    store.held.set()
    snapshot = await cluster.until(
        lambda s: (v := version(s)) and v.state != "pulling", "the pull has ended"
    )
    half = version(snapshot)
    assert half is not None
    assert half.state == "incomplete"
    assert half.bytes_done >= size // 4
    await cluster.do("mirror.pull", source=f"hf:{REPO}:*.gguf", model="smol", version="v1")
    await cluster.until(lambda s: (v := version(s)) and v.state == "done", "the pull is done")
    asked = [a.range for a in store.asked if a.method == "GET" and a.range]
    assert asked, "the rest was asked for, not everything again"


async def test_pull_serve_chat(
    cluster: Cluster, hub: tuple[Origin, Origin], weights: bytes
) -> None:
    await cluster.start()
    await _let_in(cluster)
    await cluster.until(lambda s: s.mirror.state == "serving", "the mirror serves")
    await _pull_with_a_break(cluster, hub[1], len(weights))

    fields = {"ctx_pool": "2048", "parallel": "1", "name": "smol"}
    plan = (await cluster.do("serve.plan", source="smol", fields=fields)).data
    assert (plan["engine"], plan["refusal"], plan["architecture"]) == ("llamacpp", "", "llama")
    assert plan["where"]["node"] == "n1"
    assert plan["where"]["fetch_bytes"] == len(weights)
    await cluster.do("add", toml=plan["toml"])

    snapshot = await cluster.until(
        lambda s: any(r.state == "fetching" and (r.fetched_bytes or 0) > 0 for r in s.replicas),
        "the node fetches",
    )
    if snapshot.mirror.pid is not None:
        os.kill(snapshot.mirror.pid, signal.SIGKILL)
    await cluster.ready(1)
    assert await stream_chat(await cluster.url(), "smol")

    held = await cluster.until(
        lambda s: (v := version(s)) and v.nodes == ("n1",) and v.used_by == ("smol",),
        "it is known where the weights are and who uses them",
    )
    assert held.mirror.versions[0].state == "done"
    with pytest.raises(Refused, match="smol"):
        await cluster.do("mirror.rm", model="smol", version="v1")
    again = (await cluster.do("serve.plan", source="smol", fields=fields)).data
    assert again["where"]["fetch_bytes"] == 0
    assert again["where"]["held_by"] == ["n1"]

    await cluster.do("remove", name="smol")
    await cluster.until(lambda s: not s.replicas, "the replica has stopped")
    told = await cluster.do("mirror.rm", model="smol", version="v1")
    assert "its copies on n1 are removed too" in told.text
    assert not list((cluster.folder / "node" / "weights").rglob("*.gguf"))


async def test_a_source_of_the_hub_is_pulled_by_itself_and_survives_a_killed_controller(
    cluster: Cluster, hub: tuple[Origin, Origin]
) -> None:
    await cluster.start()
    await _let_in(cluster)
    source = f"hf:{REPO}:{FILE}"
    plan = (await cluster.do("serve.plan", source=source, fields={"ctx_pool": "2048"})).data
    assert (plan["model"], plan["in_mirror"]) == ("smol-gguf", False)
    assert plan["file_type"] == "Q4_1"
    await cluster.do("add", toml=plan["toml"])
    await cluster.until(
        lambda s: any(r.state == "fetching" and (r.fetched_bytes or 0) > 0 for r in s.replicas),
        "the node fetches",
    )
    await cluster.kill()
    await cluster.start()
    await cluster.ready(1)
    assert await stream_chat(await cluster.url(), "smol-gguf")


@pytest.mark.parametrize("cluster", ["local"], indirect=True)
async def test_what_the_engine_cannot_load_is_refused_before_anything_moves(
    cluster: Cluster, tmp_path: Path
) -> None:
    odd = tmp_path / "odd.gguf"
    odd.write_bytes(bytes(good()).replace(b"llama", b"lemma"))
    await cluster.start()
    await _let_in(cluster)
    await cluster.do("mirror.pull", source=str(odd), model="odd", version="v1")
    await cluster.until(lambda s: (v := version(s)) and v.state == "done", "it is in the mirror")
    plan = (await cluster.do("serve.plan", source="odd/v1", fields={})).data
    assert "unknown architecture 'lemma'" in plan["refusal"]
    assert "on n1" in plan["refusal"]
    # somebody who adds it all the same is told why nothing happens
    await cluster.do("add", toml=plan["toml"])
    snapshot = await cluster.until(
        lambda s: s.models and "unknown architecture 'lemma'" in s.models[0].reason,
        "the model says why it does not run",
    )
    assert snapshot.replicas == ()
    assert snapshot.mirror.versions[0].nodes == ()


@pytest.mark.parametrize("cluster", ["local"], indirect=True)
async def test_a_pull_goes_on_with_the_next_controller(
    cluster: Cluster, hub: tuple[Origin, Origin], weights: bytes
) -> None:
    store = hub[1]
    store.hold_at = len(weights) // 2
    await cluster.start()
    await cluster.do("mirror.pull", source=f"hf:{REPO}:*.gguf", model="smol", version="")
    await asyncio.to_thread(store.holding.wait, 30)
    await cluster.until(
        lambda s: (v := version(s)) and v.bytes_done > len(weights) // 4, "half of it has come"
    )
    await cluster.do("shutdown", stop_replicas=False, stop_gateway=False)
    assert cluster.daemon is not None
    await asyncio.to_thread(cluster.daemon.wait, 20)
    await cluster.client.aclose()
    store.hold_at = None
    store.held.set()
    await cluster.start()
    snapshot = await cluster.until(
        lambda s: (v := version(s)) and v.state == "done", "the pull is done"
    )
    assert len(snapshot.mirror.versions) == 1
    assert any(asked.range for asked in store.asked if asked.method == "GET")
