"""Pushing weights to a node that cannot reach the mirror: a real SSH server, a real process."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from llmgw_core.errors import NodeLost, RemoteFailed
from llmgw_core.nodes.facts import NodeState
from llmgw_core.nodes.fetching import ensure_weights
from llmgw_core.nodes.fleet import Fleet
from llmgw_core.nodes.node import Node
from llmgw_core.nodes.push import push
from llmgw_core.nodes.pushing import Pusher, PushFile, PushOrder, PushSaid
from llmgw_core.nodes.weights import FetchExit, FetchJob, FetchProgress, WeightsFile
from tests.nodes.shelf import KEY, TOKEN, Shelf, serving, sha
from tests.nodes.sshd import Sshd, make_sshd, running
from tests.nodes.test_fleet import fleet_of, in_state, kept, remote

CONTENTS = {
    "model 1 of 2's.gguf": random.Random(1).randbytes(700_001),
    "sub/model-2.gguf": random.Random(2).randbytes(100_000),
    "empty": b"",
}
TOTAL = sum(len(data) for data in CONTENTS.values())
SHELLS = ("sh", "bash", "busybox sh")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The mirror's folder."""
    for path, data in CONTENTS.items():
        file = tmp_path / "store" / KEY / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return tmp_path / "store"


@pytest.fixture(params=SHELLS)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sshd]:
    shell: str = request.param
    if shutil.which(shell.split()[0]) is None:
        pytest.skip(f"{shell} is not installed")
    found = make_sshd(tmp_path / "server")
    found.options["ForceCommand"] = f'cd; set -- $SSH_ORIGINAL_COMMAND; shift 2; exec {shell} "$@"'
    async with running(found):
        yield found


one_shell = pytest.mark.parametrize("server", ["sh"], indirect=True)


@pytest.fixture
async def node(server: Sshd, tmp_path: Path) -> AsyncIterator[Node]:
    fleet: Fleet = fleet_of(tmp_path, remote("far", server))
    async with kept(fleet):
        found = fleet.nodes["far"]
        await found.trust()
        await in_state(found, NodeState.READY)
        yield found


def job(url: str = "http://127.0.0.1:1") -> FetchJob:
    files = tuple(
        WeightsFile(path, len(data), sha(data), f"{url}/v1/files/{KEY}/{number}")
        for number, (path, data) in enumerate(CONTENTS.items())
    )
    return FetchJob(KEY, files, TOKEN, margin_bytes=0, pause_s=0.01)


def weights(node: Node) -> Path:
    path = node.weights_path(KEY)
    assert path is not None
    return Path(path)


def half(node: Node, path: str) -> Path:
    return weights(node).parents[1] / ".partial" / KEY / sha(CONTENTS[path])


def order_for(node: Node, store: Path) -> PushOrder:
    return Pusher(store)._order(node, job())


async def test_a_node_that_cannot_reach_the_mirror_is_pushed_to(node: Node, store: Path) -> None:
    heard: list[FetchProgress] = []
    path = await ensure_weights(node, job(), progress=heard.append, push=Pusher(store))
    assert path == str(weights(node))
    for name, data in CONTENTS.items():
        assert (weights(node) / name).read_bytes() == data
    assert any(p.phase == "push" and p.bytes_total == TOTAL for p in heard)
    assert heard[-1].done
    assert node.facts is not None
    assert node.facts.weights == frozenset({KEY})
    assert await node.refresh_instances() == {}


async def test_only_what_is_missing_is_sent(node: Node, store: Path) -> None:
    first, second, _ = CONTENTS
    half(node, first).parent.mkdir(parents=True)
    half(node, first).write_bytes(CONTENTS[first][:300_000])
    # a wrong start of the source must not be seen: it is not sent again
    source = store / KEY / first
    source.write_bytes(b"?" * 300_000 + CONTENTS[first][300_000:])
    said: list[PushSaid] = []
    await push(order_for(node, store), said.append)
    assert half(node, first).read_bytes() == CONTENTS[first]
    assert half(node, second).read_bytes() == CONTENTS[second]
    assert said[0].done == 300_000
    assert said[-1].done == TOTAL


@one_shell
async def test_a_push_that_is_given_up_goes_on_later(node: Node, store: Path) -> None:
    big = random.Random(5).randbytes(32 << 20)
    (store / KEY / "big").write_bytes(big)
    name = sha(big)
    wanted = replace(job(), files=(WeightsFile("big", len(big), name, "http://127.0.0.1:1/x"),))
    begun = asyncio.Event()

    def hear(seen: FetchProgress) -> None:
        if seen.phase == "push":
            begun.set()

    task = asyncio.create_task(ensure_weights(node, wanted, progress=hear, push=Pusher(store)))
    await begun.wait()
    part = weights(node).parents[1] / ".partial" / KEY / name
    async with asyncio.timeout(60):
        while not part.exists() or part.stat().st_size < 1 << 16:
            await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert Path(await ensure_weights(node, wanted, progress=hear, push=Pusher(store))).exists()
    assert (weights(node) / "big").read_bytes() == big


@one_shell
async def test_what_is_verified_is_not_sent(node: Node, store: Path) -> None:
    await ensure_weights(node, job(), progress=lambda _: None, push=Pusher(store))
    shutil.rmtree(store / KEY / "sub")
    (store / KEY / "sub").mkdir()
    (store / KEY / "sub/model-2.gguf").write_bytes(b"")
    said: list[PushSaid] = []
    await push(order_for(node, store), said.append)
    assert said[-1].done == TOTAL


@one_shell
async def test_a_disk_without_room_is_said(node: Node, store: Path) -> None:
    huge = replace_file(order_for(node, store), size=1 << 60)
    with pytest.raises(RemoteFailed, match=r"too full for .* free some space there") as caught:
        await push(huge, lambda _: None)
    assert caught.value.exit_status == FetchExit.NO_SPACE


def replace_file(order: PushOrder, **change: object) -> PushOrder:
    first = order.files[0]
    fields = {name: getattr(first, name) for name in ("path", "size", "sha256", "source")}
    file = PushFile(**{**fields, **change})
    return PushOrder(order.tunnel, order.label, order.state_dir, order.key, (file,))


@one_shell
async def test_a_source_that_is_gone_or_too_short(node: Node, store: Path) -> None:
    order = order_for(node, store)
    with pytest.raises(RemoteFailed, match="cannot be read: No such file"):
        await push(replace_file(order, source=str(store / "none")), lambda _: None)
    with pytest.raises(RemoteFailed, match="is shorter than it has to be"):
        await push(replace_file(order, size=TOTAL * 2), lambda _: None)


@one_shell
async def test_a_node_that_is_gone(node: Node, store: Path, server: Sshd) -> None:
    pusher = Pusher(store)
    await server.stop()
    with pytest.raises(NodeLost, match="far cannot be reached to push to"):
        await pusher(node, job(), lambda _: None)


@one_shell
async def test_the_process_says_lines_of_json_and_no_secret(node: Node, store: Path) -> None:
    import msgspec

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "llmgw_core.nodes.push"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    text = msgspec.json.encode(order_for(node, store))
    assert TOKEN.encode() not in text
    out, _ = await process.communicate(text + b"\n")
    assert process.returncode == 0
    assert json.loads(out.splitlines()[-1]) == {"done": TOTAL}


@one_shell
async def test_a_fetch_over_a_real_link_outlives_it(
    node: Node, server: Sshd, tmp_path: Path
) -> None:
    names = {str(number): data for number, data in enumerate(CONTENTS.values())}
    async with serving(Shelf(names, gate=asyncio.Event())) as shelf:
        task = asyncio.create_task(ensure_weights(node, job(shelf.url), progress=lambda _: None))
        await shelf.held_back.wait()
        server.kill_sessions()
        with pytest.raises(NodeLost):
            await task
        await in_state(node, NodeState.READY)
        assert shelf.gate is not None
        shelf.gate.set()
        await ensure_weights(node, job(shelf.url), progress=lambda _: None)
        assert len(shelf.asked) == 2  # an empty file needs no request
        assert shelf.sent == TOTAL
    assert (weights(node) / "empty").read_bytes() == b""
    assert os.stat(weights(node)).st_mode & 0o077 == 0
