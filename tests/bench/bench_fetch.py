"""How fast weights come to a node: from the mirror with each tool, and pushed over SSH.

A script, not a test: it prints a table. The mirror is a process of its own, the node is this
machine (for the push: behind a real OpenSSH server), so that all of it shares these cores. Times
are of the whole act: download, checksum, flush, rename, and the looks at its log.

    python tests/bench/bench_fetch.py [--mb N] [--folder DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

from llmgw_core.mirror.link import MirrorLink
from llmgw_core.mirror.settings import MirrorSettings
from llmgw_core.mirror.tokens import ensure_secret, fetch_token
from llmgw_core.nodes.facts import NodeState
from llmgw_core.nodes.fetching import ensure_weights
from llmgw_core.nodes.pushing import Pusher
from llmgw_core.nodes.weights import FetchJob, WeightsFile
from tests.mirror.shelves import shelve
from tests.nodes.local_exec import LocalExec, shell_tools
from tests.nodes.shelf import LocalNode, only, sha
from tests.nodes.sshd import make_sshd, running
from tests.nodes.test_fleet import fleet_of, in_state, kept, remote

MB = 1_000_000


def wanted(key: str, content: bytes, url: str, token: str) -> FetchJob:
    """One file of a version of the mirror's."""
    file = WeightsFile("w.gguf", len(content), sha(content), f"{url}/v1/files/{key}/w.gguf")
    return FetchJob(key, (file,), token, margin_bytes=0, pause_s=0.01)


def show(what: str, mb: int, seconds: float, more: str = "") -> None:
    """One line of the table."""
    print(f"{what:16} {seconds:7.2f} s {mb / seconds:7.0f} MB/s {more}")


def children_s() -> float:
    """CPU time of processes that this one waited for."""
    times = os.times()
    return times.children_user + times.children_system


async def fetched(folder: Path, content: bytes, url: str, token: str) -> None:
    """With each tool that a node may have."""
    for tool in ("curl", "wget", "python3"):
        place = folder / tool
        place.mkdir()
        tools = shell_tools("dash", place / "tools")
        assert tools is not None
        node = LocalNode(LocalExec(tools, place), place / "state")
        only(node.local, tool)
        began = time.monotonic()
        job = wanted("m/v", content, url, token)
        await ensure_weights(node.handle(), job, progress=lambda _: None)
        seconds = time.monotonic() - began
        show(f"mirror, {tool}", len(content) // MB, seconds)
        await node.remove_weights("m/v")


async def pushed(folder: Path, content: bytes) -> None:
    """Over SSH, where the mirror cannot be reached."""
    server = make_sshd(folder / "server")
    server.in_home()
    async with running(server):
        fleet = fleet_of(folder, remote("far", server))
        async with kept(fleet):
            node = fleet.nodes["far"]
            await node.trust()
            await in_state(node, NodeState.READY)
            job = wanted("m/v", content, "http://127.0.0.1:1", "")
            before, began = children_s(), time.monotonic()
            await ensure_weights(node, job, progress=lambda _: None, push=Pusher(folder / "store"))
            seconds = time.monotonic() - began
            cpu = f"{children_s() - before:.2f} s CPU of the pushing process"
            show("pushed", len(content) // MB, seconds, cpu)


async def measure(folder: Path, mb: int) -> None:
    """The table."""
    content = os.urandom(mb * MB)
    root = folder / "store"
    shelve(root, "m", "v", {"w.gguf": content})
    secret = ensure_secret(folder / "secret")
    link = MirrorLink(folder / "state")
    address = await link.ensure(MirrorSettings(root=root, secret_file=folder / "secret"))
    try:
        token = fetch_token(secret, "m", "v", expires=time.time() + 3600)
        await fetched(folder, content, address.url, token)
    finally:
        await link.stop(drain_s=1.0)
    await pushed(folder, content)


def main() -> None:
    """Read the options and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mb", type=int, default=256)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        asyncio.run(measure(Path(folder), options.mb))


if __name__ == "__main__":
    main()
