"""The live stream of a node."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import aclosing
from pathlib import Path

import pytest

from llmgw_core.errors import RemoteFailed
from llmgw_core.nodes.instance import InstanceSpec, InstanceState
from llmgw_core.nodes.instances import Instances
from llmgw_core.nodes.sampler import TickParser, samples
from llmgw_core.nodes.script import load
from tests.nodes.local_exec import LocalExec
from tests.nodes.shells import local, node, start_of, state, until_true

__all__ = ["local", "node", "state"]

INTERVAL_S = 0.2


async def test_the_host_is_measured(local: LocalExec, state: Path) -> None:
    async with aclosing(samples(local, str(state), INTERVAL_S)) as ticks:
        first = await anext(ticks)
        second = await anext(ticks)
    assert first.sample.cpu is None
    assert second.sample.cpu is not None
    assert 0 <= second.sample.cpu <= 1
    assert second.sample.memory_used_gb is not None
    assert second.sample.memory_used_gb > 0
    assert second.sample.memory_available_gb is not None
    assert second.sample.load1 is not None
    assert second.instances == {}


async def test_an_exit_is_seen_with_the_next_tick(
    local: LocalExec, node: Instances, state: Path
) -> None:
    started = await node.start(InstanceSpec("a", "t1", ("sleep", "600"), record={"model": "m"}))
    async with aclosing(samples(local, str(state), INTERVAL_S)) as ticks:
        seen = (await anext(ticks)).instances["a"]
        assert (seen.state, seen.pid, seen.token) == (InstanceState.RUNNING, started.pid, "t1")
        assert seen.record == {"model": "m"}
        assert seen.rss_gb is not None
        assert seen.log_bytes == 0
        assert seen.age_s is not None
        assert (await anext(ticks)).instances["a"].record == {"model": "m"}
        assert started.pid is not None
        os.kill(started.pid, signal.SIGKILL)
        # one that was being taken just then, and one in which its end is being written
        for _ in range(3):
            seen = (await anext(ticks)).instances["a"]
            if seen.state is InstanceState.EXITED:
                break
        assert (seen.state, seen.exit_status) == (InstanceState.EXITED, 137)
        assert seen.record == {"model": "m"}
        assert seen.age_s is None
        await node.start(InstanceSpec("a", "t2", ("sleep", "600"), record={"model": "n"}))
        await anext(ticks)
        seen = (await anext(ticks)).instances["a"]
        assert (seen.token, seen.record) == ("t2", {"model": "n"})
        await node.stop("a", 5.0)
        await node.forget("a")
        await anext(ticks)
        assert (await anext(ticks)).instances == {}


async def test_a_state_directory_that_cannot_be_is_said(local: LocalExec, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RemoteFailed, match="cannot create"):
        async with aclosing(samples(local, str(tmp_path / "file" / "x"), INTERVAL_S)) as ticks:
            await anext(ticks)


async def test_gpus_come_along(local: LocalExec, state: Path, tmp_path: Path) -> None:
    fake = tmp_path / "gpu tools"
    fake.mkdir()
    (fake / "nvidia-smi").write_text(
        "#!/bin/sh\nwhile :; do\n"
        "echo 'GPU-1, 1, NVIDIA H200, 143771, 1024, 50, 570.1'\n"
        "echo 'GPU-0, 0, NVIDIA H200, 143771, [N/A], [N/A], 570.1'\nsleep 0.2\ndone\n"
    )
    (fake / "nvidia-smi").chmod(0o755)
    local.env["PATH"] = f"{fake}:{local.env['PATH']}"
    async with aclosing(samples(local, str(state), INTERVAL_S)) as ticks:
        async for tick in ticks:
            if tick.sample.gpus and len(tick.sample.gpus) == 2:
                break
    assert tick.sample.gpus is not None
    zero, one = tick.sample.gpus
    assert (zero.index, zero.utilization, zero.memory_used_gb) == (0, None, None)
    assert (one.index, one.utilization, one.memory_used_gb) == (1, 0.5, 1.0)


@pytest.mark.parametrize("what", ["sampler", "follow"])
async def test_what_runs_on_ends_with_the_connection(
    local: LocalExec, node: Instances, state: Path, what: str
) -> None:
    """Also where it has nothing to write, so that no broken pipe could end it."""
    await node.start(InstanceSpec("a", "t1", ("sh", "-c", "echo one; exec sleep 600")))
    if what == "sampler":
        script, args = load("lib.sh", "cgroup.sh", "lease.sh", "sampler.sh"), f"'{state}' 0.1"
    else:
        script, args = load("lib.sh", "files.sh"), f"follow '{state}' run/a 0"
    out = state.parent / "out"
    out.touch()
    shell = local.tools / "sh"
    link = await asyncio.create_subprocess_exec(
        "/bin/sh",
        "-c",
        f"exec 3<&0; '{shell}' -s -- {args} <&3 >'{out}' & echo $!; exec sleep 600",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=local.env,
    )
    assert link.stdin is not None
    assert link.stdout is not None
    link.stdin.write(script.encode())
    loop = int(await link.stdout.readline())
    await until_true(lambda: out.stat().st_size > 0)
    link.kill()
    link.stdin.close()
    await link.wait()
    await until_true(lambda: start_of(loop) is None)


def test_ticks_are_read_with_care() -> None:
    parser = TickParser()
    for line in (b"c  x y", b"m 1000 -", b"l x", b"what", b"", b"\xff", b"i a"):
        assert parser.take(line) is None
    tick = parser.take(b".")
    assert tick is not None
    assert tick.sample.cpu is None
    assert tick.sample.memory_used_gb is None
    assert tick.sample.load1 is None


def test_the_busy_share_is_between_two_ticks_and_limits_bound_the_memory() -> None:
    parser = TickParser()
    gib = 1 << 20
    limits = f"{2 << 30} {1536 << 20} {512 << 20}"
    for line in (
        "c 100 0 100 700 100 0 0 0 5 5",
        ".",
        "c 150 0 150 750 100 0 0 50 9 9",
        f"m {8 * gib} {6 * gib} {limits}",
        "l 1.5",
    ):
        parser.take(line.encode())
    tick = parser.take(b".")
    assert tick is not None
    assert tick.sample.cpu == pytest.approx(0.75)
    assert tick.sample.memory_available_gb == pytest.approx(1.0)
    assert tick.sample.memory_used_gb == pytest.approx(1.0)
    assert tick.sample.load1 == 1.5
