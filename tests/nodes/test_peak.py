"""How much memory an instance has held at most, as its node tells it."""

from __future__ import annotations

import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from llmgw_core.nodes.instance import InstanceSpec, InstanceState, InstanceStatus
from llmgw_core.nodes.instances import Instances
from llmgw_core.nodes.records import parse_listing
from llmgw_core.nodes.sampler import samples
from tests.nodes.local_exec import LocalExec
from tests.nodes.shells import local, node, state, until

__all__ = ["local", "node", "state"]

GIVEN_BACK = """
import mmap, signal
own = mmap.mmap(-1, 192 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(own), 4096): own[at] = 1
own.close()
print("done", flush=True)
signal.pause()
"""
SHARED = """
import mmap, os, signal
common = mmap.mmap(-1, 192 << 20)
def touch():
    for at in range(0, len(common), 4096): common[at] = 1
touch()
ready, done = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        touch()
        os.write(done, b"1")
        signal.pause()
for _ in range(2): os.read(ready, 1)
print("done", flush=True)
signal.pause()
"""
GIB = 1 / 1024


async def held(node: Instances, code: str) -> InstanceStatus:
    """How the instance stands once its program has said that it is done."""
    await node.start(InstanceSpec("a", "t1", (sys.executable, "-S", "-c", code)))

    async def said() -> bytes:
        return (await node.read_log("a")).data

    await until(said, lambda log: b"done" in log)
    return (await node.refresh())["a"]


async def test_what_was_given_back_counts(local: LocalExec, node: Instances, state: Path) -> None:
    status = await held(node, GIVEN_BACK)
    assert status.rss_gb is not None
    assert status.peak_gb is not None
    assert status.rss_gb < 100 * GIB
    assert 192 * GIB < status.peak_gb < 260 * GIB
    async with aclosing(samples(local, str(state), 0.2)) as ticks:
        seen = (await anext(ticks)).instances["a"]
    assert seen.peak_gb == pytest.approx(status.peak_gb, rel=0.05)


async def test_what_processes_share_counts_once(node: Instances) -> None:
    status = await held(node, SHARED)
    assert status.rss_gb is not None
    assert status.peak_gb is not None
    assert status.rss_gb > 3 * 192 * GIB, "this is to show what a plain sum says"
    assert 192 * GIB < status.peak_gb < 300 * GIB


@pytest.mark.parametrize(
    ("tail", "peak_gb"), [(b"", None), (b" -", None), (b" x", None), (b" 1048576", 1.0)]
)
def test_a_node_may_leave_it_out(tail: bytes, peak_gb: float | None) -> None:
    status = parse_listing([b"i a running 1 2 boot t - 1024 0" + tail])["a"]
    assert status.state is InstanceState.RUNNING
    assert status.rss_gb == 1 / 1024
    assert status.peak_gb == peak_gb


async def test_what_has_ended_has_no_peak(node: Instances) -> None:
    await node.start(InstanceSpec("a", "t1", ("true",)))
    seen = await until(node.refresh, lambda all_: all_["a"].state is InstanceState.EXITED)
    assert seen["a"].peak_gb is None
