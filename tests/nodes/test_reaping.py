"""Stops that engines resist, and processes that outlive their record, under each shell."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw_core.nodes.instance import InstanceState
from llmgw_core.nodes.instances import Instances
from tests.nodes.local_exec import LocalExec
from tests.nodes.shells import local, marked, node, start_of, state, until_true
from tests.nodes.test_supervision import (
    IGNORES_TERM,
    LEAVES_A_WORKER,
    ended,
    log_says,
    pid_file,
    spec,
    status,
    stranger,
)

__all__ = ["local", "node", "state", "stranger"]

RETITLES = """
import ctypes, time
ctypes.CDLL(None).prctl(15, b"kworker/0:1", 0, 0, 0)
print("retitled", flush=True)
time.sleep(600)
"""


def state_letter(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_an_engine_that_is_stopped_by_a_signal_ends_within_its_grace(
    node: Instances, state: Path
) -> None:
    started = await node.start(spec())
    assert started.pid is not None
    os.kill(started.pid, signal.SIGSTOP)
    await until_true(lambda: state_letter(started.pid or 0) == "T")
    result = await node.stop("a", 30.0)
    assert (result.killed, result.left) == (False, ())
    assert result.status.exit_status == 143
    assert marked(state) == []


async def test_an_engine_that_gives_itself_another_name_is_stopped(
    node: Instances, state: Path
) -> None:
    await node.start(spec(argv=(sys.executable, "-c", RETITLES)))
    await log_says(node, b"retitled")
    assert (await node.stop("a", 10.0)).left == ()
    assert marked(state) == []


async def test_a_frozen_supervisor_does_not_keep_a_stop_from_its_end(
    node: Instances, state: Path
) -> None:
    """Its engine stays a zombie until it goes on; a zombie has ended."""
    started = await node.start(spec())
    supervisor = int(pid_file(state).read_text().split()[0])
    os.kill(supervisor, signal.SIGSTOP)
    await until_true(lambda: state_letter(supervisor) == "T")
    assert started.pid is not None
    os.kill(started.pid, signal.SIGKILL)
    await until_true(lambda: state_letter(started.pid or 0) == "Z")
    assert (await status(node)).state is InstanceState.ENDING
    result = await node.stop("a", 1.0)
    assert (result.status.state, result.status.exit_status) == (InstanceState.EXITED, 137)
    await node.forget("a")
    assert marked(state) == []


async def test_what_outlives_a_record_that_was_deleted_by_hand_is_found_and_ended(
    node: Instances, local: LocalExec, state: Path, stranger: subprocess.Popen[bytes]
) -> None:
    started = await node.start(spec(argv=(sys.executable, "-c", LEAVES_A_WORKER)))
    worker = int((await log_says(node, b"worker")).split()[1])
    other = Instances(local, str(state.parent / "another directory"))
    theirs = await other.start(spec())
    await node.start(spec(name="good"))
    supervisor = int(pid_file(state).read_text().split()[0])
    os.kill(supervisor, signal.SIGKILL)
    shutil.rmtree(state / "run" / "a")
    assert {n: set(p) for n, p in (await node.strays()).items()} == {"a": {started.pid, worker}}
    result = await node.reap("a", 0.5)
    assert set(result.found) == {started.pid, worker}
    assert (result.killed, result.left) == (True, ())  # the worker is deaf to SIGTERM
    assert start_of(worker) is None
    assert await node.strays() == {}
    assert (await status(node, "good")).state is InstanceState.RUNNING
    assert (await status(other)).pid == theirs.pid
    assert (await other.stop("a", 5.0)).status.exit_status == 143


async def test_workers_of_an_engine_that_died_without_a_supervisor_are_strays(
    node: Instances, state: Path
) -> None:
    started = await node.start(spec(argv=(sys.executable, "-c", LEAVES_A_WORKER)))
    worker = int((await log_says(node, b"worker")).split()[1])
    assert started.pid is not None
    os.kill(int(pid_file(state).read_text().split()[0]), signal.SIGKILL)
    os.kill(started.pid, signal.SIGKILL)
    assert (await ended(node)).state is InstanceState.LOST
    assert await node.strays() == {"a": (worker,)}
    assert (await node.reap("a", 0.2)).found == (worker,)
    assert start_of(worker) is None


async def test_a_living_instance_is_no_stray_and_is_not_reaped(node: Instances) -> None:
    started = await node.start(spec(argv=(sys.executable, "-c", IGNORES_TERM)))
    await log_says(node, b"deaf")
    assert await node.strays() == {}
    assert (await node.reap("a", 0.2)).found == ()
    assert (await status(node)).pid == started.pid


@pytest.mark.parametrize("name", ["never", "a"])
async def test_reaping_what_is_not_there_does_nothing(node: Instances, name: str) -> None:
    result = await node.reap(name, 1.0)
    assert (result.found, result.left) == ((), ())
