"""Starting, telling apart and stopping real processes, under each shell a node may have."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from llmgw_core.errors import InvalidInput, RemoteFailed
from llmgw_core.nodes.instance import InstanceSpec, InstanceState, InstanceStatus
from llmgw_core.nodes.instances import Instances
from llmgw_core.nodes.script import load
from tests.nodes.local_exec import LocalExec
from tests.nodes.shells import local, marked, node, start_of, state, until, until_true

__all__ = ["local", "node", "state"]

LIVES = (sys.executable, "-c", "import time; time.sleep(600)")
IGNORES_TERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
while True:
    time.sleep(600)
"""
LEAVES_A_WORKER = """
import subprocess, sys, time
deaf = '''
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("worker", os.getpid(), flush=True)
time.sleep(600)
'''
subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
time.sleep(600)
"""


def spec(name: str = "a", token: str = "t1", argv: tuple[str, ...] = LIVES) -> InstanceSpec:
    return InstanceSpec(name=name, token=token, argv=argv, record={"model": "m"})


async def status(node: Instances, name: str = "a") -> InstanceStatus:
    return (await node.refresh())[name]


async def ended(node: Instances, name: str = "a") -> InstanceStatus:
    return await until(
        lambda: status(node, name),
        lambda s: not s.state.alive and s.state is not InstanceState.ENDING,
    )


async def only_marked(state: Path, pid: int | None) -> None:
    """Wait until this is the one process with our mark: it bears it only once it has begun."""
    async with asyncio.timeout(20):
        while marked(state) != [pid]:
            await asyncio.sleep(0.02)


async def log_says(node: Instances, words: bytes, name: str = "a") -> bytes:
    async def read() -> bytes:
        return (await node.read_log(name)).data

    return await until(read, lambda data: words in data)


def pid_file(state: Path, name: str = "a") -> Path:
    return state / "run" / name / "pid"


def forge(state: Path, position: int, value: str, name: str = "a") -> None:
    """Change one word of a record: supervisor, its start, engine, its start, boot, token."""
    words = pid_file(state, name).read_text().split()
    words[position] = value
    pid_file(state, name).write_text(" ".join(words) + "\n")


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is not ours, and must outlive everything."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        yield process
        lives = process.poll() is None
        process.kill()
    assert lives, "a process that is not the instance's was hit"


async def test_a_start_runs_and_says_what_it_is(node: Instances) -> None:
    started = await node.start(spec())
    assert started.state is InstanceState.RUNNING
    assert started.token == "t1"
    assert started.record == {"model": "m"}
    assert started.pid is not None
    assert start_of(started.pid) == started.start_time
    seen = await status(node)
    assert (seen.state, seen.pid) == (InstanceState.RUNNING, started.pid)
    assert seen.age_s is not None
    assert 0 <= seen.age_s < 60
    assert seen.rss_gb is not None
    assert 0.001 < seen.rss_gb < 1


async def test_three_starts_at_once_are_one_process(node: Instances, state: Path) -> None:
    statuses = await asyncio.gather(*(node.start(spec()) for _ in range(3)))
    assert {s.state for s in statuses} == {InstanceState.RUNNING}
    assert len({s.pid for s in statuses}) == 1
    await only_marked(state, statuses[0].pid)


async def test_of_two_tokens_at_once_one_is_refused(node: Instances, state: Path) -> None:
    results = await asyncio.gather(
        *(node.start(spec(token=f"t{n}")) for n in range(3)), return_exceptions=True
    )
    started = [r for r in results if isinstance(r, InstanceStatus)]
    assert len(started) == 1
    assert sum(isinstance(r, RemoteFailed) for r in results) == 2
    await only_marked(state, started[0].pid)


async def test_another_token_is_refused_while_the_first_lives(node: Instances) -> None:
    first = await node.start(spec())
    with pytest.raises(RemoteFailed, match="a is running under another start"):
        await node.start(spec(token="t2"))
    assert (await status(node)).pid == first.pid
    await node.stop("a", 5.0)
    assert (await node.start(spec(token="t2"))).state is InstanceState.RUNNING


async def test_a_token_that_has_ended_is_not_started_again(node: Instances) -> None:
    await node.start(spec(argv=("sh", "-c", "exit 3")))
    first = await ended(node)
    again = await node.start(spec())
    assert (again.state, again.exit_status) == (InstanceState.EXITED, 3)
    assert again.pid == first.pid


@pytest.mark.parametrize(
    ("command", "exit_status"),
    [
        (("sh", "-c", "exit 3"), 3),
        (("sh", "-c", "kill -s SEGV $$"), 139),
        (("/nonexistent/engine",), 127),
        (("true",), 0),
    ],
)
async def test_how_it_ended_is_written_down(
    node: Instances, command: tuple[str, ...], exit_status: int
) -> None:
    await node.start(spec(argv=command))
    end = await ended(node)
    assert (end.state, end.exit_status) == (InstanceState.EXITED, exit_status)


@pytest.mark.parametrize(("number", "exit_status"), [(signal.SIGTERM, 143), (signal.SIGKILL, 137)])
async def test_a_signal_from_elsewhere_is_written_down(
    node: Instances, number: int, exit_status: int
) -> None:
    started = await node.start(spec())
    assert started.pid is not None
    os.kill(started.pid, number)
    end = await ended(node)
    assert (end.state, end.exit_status) == (InstanceState.EXITED, exit_status)


async def test_stop_leaves_no_process(node: Instances, state: Path) -> None:
    started = await node.start(spec())
    supervisor = int(pid_file(state).read_text().split()[0])
    result = await node.stop("a", 10.0)
    assert (result.status.state, result.status.exit_status) == (InstanceState.EXITED, 143)
    assert not result.killed
    assert result.left == ()
    assert marked(state) == []
    assert started.pid is not None
    await until_true(lambda: in_session(supervisor) == [])
    again = await node.stop("a", 10.0)
    assert again.status.exit_status == 143
    assert not again.killed


def in_session(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found


async def test_stop_of_what_was_never_there(node: Instances) -> None:
    result = await node.stop("never", 1.0)
    assert result.status.state is InstanceState.NONE
    await node.forget("never")


async def test_an_engine_deaf_to_term_is_killed_after_its_grace(
    node: Instances, state: Path
) -> None:
    await node.start(spec(argv=(sys.executable, "-c", IGNORES_TERM)))
    await log_says(node, b"deaf")
    before = time.monotonic()
    result = await node.stop("a", 1.0)
    assert time.monotonic() - before >= 1.0
    assert result.killed
    assert (result.status.state, result.status.exit_status) == (InstanceState.EXITED, 137)
    assert marked(state) == []


async def test_a_worker_that_left_the_session_is_found_and_killed(
    node: Instances, state: Path
) -> None:
    await node.start(spec(argv=(sys.executable, "-c", LEAVES_A_WORKER)))
    worker = int((await log_says(node, b"worker")).split()[1])
    assert worker in marked(state)
    result = await node.stop("a", 1.0)
    assert result.killed
    assert result.left == ()
    assert start_of(worker) is None


async def test_workers_of_a_crashed_engine_are_ended(node: Instances, state: Path) -> None:
    leaves = LEAVES_A_WORKER.replace("signal.SIG_IGN", "signal.SIG_DFL")
    started = await node.start(spec(argv=(sys.executable, "-c", leaves)))
    worker = int((await log_says(node, b"worker")).split()[1])
    assert started.pid is not None
    os.kill(started.pid, signal.SIGKILL)
    end = await ended(node)
    assert (end.state, end.exit_status) == (InstanceState.EXITED, 137)
    assert start_of(worker) is None
    assert marked(state) == []


async def test_an_engine_without_supervisor_is_an_orphan_and_can_be_stopped(
    node: Instances, state: Path
) -> None:
    started = await node.start(spec())
    supervisor = int(pid_file(state).read_text().split()[0])
    os.kill(supervisor, signal.SIGKILL)
    seen = await until(lambda: status(node), lambda s: s.state is InstanceState.ORPHAN)
    assert seen.pid == started.pid
    with pytest.raises(RemoteFailed, match="orphan"):
        await node.start(spec(token="t2"))
    result = await node.stop("a", 10.0)
    assert result.status.state is InstanceState.LOST
    assert marked(state) == []
    # the keeper of its log ends with it
    await until_true(lambda: in_session(supervisor) == [])
    assert (await node.start(spec(token="t2"))).state is InstanceState.RUNNING


async def test_a_start_ends_what_nobody_ended(node: Instances, state: Path) -> None:
    started = await node.start(spec(argv=(sys.executable, "-c", LEAVES_A_WORKER)))
    worker = int((await log_says(node, b"worker")).split()[1])
    assert started.pid is not None
    os.kill(int(pid_file(state).read_text().split()[0]), signal.SIGKILL)
    os.kill(started.pid, signal.SIGKILL)
    assert (await ended(node)).state is InstanceState.LOST
    assert start_of(worker) is not None
    again = await node.start(spec(token="t2"))
    assert start_of(worker) is None
    await only_marked(state, again.pid)


async def test_a_record_of_another_boot_is_rebooted_and_not_ours(
    node: Instances, state: Path, stranger: subprocess.Popen[bytes]
) -> None:
    started = await node.start(spec())
    await node.stop("a", 5.0)
    (state / "run" / "a" / "exit").unlink()
    forge(state, 2, str(stranger.pid))
    forge(state, 3, str(start_of(stranger.pid)))
    forge(state, 4, "00000000-0000-4000-8000-000000000000")
    assert started.pid != stranger.pid
    assert (await status(node)).state is InstanceState.REBOOTED
    assert (await node.stop("a", 0.5)).status.state is InstanceState.REBOOTED
    assert (await node.start(spec(token="t2"))).state is InstanceState.RUNNING


async def test_a_reused_pid_is_not_ours_and_never_signalled(
    node: Instances, state: Path, stranger: subprocess.Popen[bytes]
) -> None:
    await node.start(spec())
    await node.stop("a", 5.0)
    (state / "run" / "a" / "exit").unlink()
    forge(state, 2, str(stranger.pid))
    assert (await status(node)).state is InstanceState.LOST
    result = await node.stop("a", 0.5)
    assert result.status.state is InstanceState.LOST
    assert not result.killed


async def test_a_zombie_does_not_count_as_running(node: Instances, state: Path) -> None:
    await node.start(spec())
    await node.stop("a", 5.0)
    (state / "run" / "a" / "exit").unlink()
    child = subprocess.Popen(["true"])
    stat = Path(f"/proc/{child.pid}/stat")
    await until_true(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
    forge(state, 2, str(child.pid))
    forge(state, 3, stat.read_text().rpartition(")")[2].split()[19])
    assert (await status(node)).state is InstanceState.LOST
    child.wait()


async def test_a_damaged_record_is_nobodys(
    node: Instances, state: Path, stranger: subprocess.Popen[bytes]
) -> None:
    await node.start(spec())
    await node.stop("a", 5.0)
    for text in ("", "\n", "x", f"1 2 {stranger.pid}\n", "$(false) ; x y z w\n", "- - - - - -\n"):
        pid_file(state).write_text(text)
        assert not (await status(node)).state.alive
        await node.stop("a", 0.2)


async def test_two_homes_with_the_same_name_do_not_touch_each_other(
    local: LocalExec, tmp_path: Path
) -> None:
    one = Instances(local, str(tmp_path / "one"))
    other = Instances(local, str(tmp_path / "one more"))
    mine = await one.start(spec())
    theirs = await other.start(spec())
    assert mine.pid != theirs.pid
    await one.stop("a", 5.0)
    assert (await status(other)).state is InstanceState.RUNNING
    assert (await other.stop("a", 5.0)).status.state is InstanceState.EXITED


async def test_start_survives_the_death_of_who_asked(
    node: Instances, local: LocalExec, state: Path
) -> None:
    """A link that is cut kills the asking script, at any moment; asking again makes it one."""
    for _ in range(5):
        task = asyncio.create_task(node.start(spec()))
        await asyncio.sleep(0.03)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    started = await node.start(spec())
    assert started.state is InstanceState.RUNNING
    await only_marked(state, started.pid)


async def test_stop_can_be_asked_twice_at_once(node: Instances, state: Path) -> None:
    await node.start(spec(argv=(sys.executable, "-c", IGNORES_TERM)))
    await log_says(node, b"deaf")
    results = await asyncio.gather(node.stop("a", 0.5), node.stop("a", 0.5))
    assert {r.status.exit_status for r in results} == {137}
    assert marked(state) == []


async def test_forget_takes_all_but_a_living_one(node: Instances, state: Path) -> None:
    await node.start(spec())
    with pytest.raises(RemoteFailed, match="a is running; stop it"):
        await node.forget("a")
    await node.stop("a", 5.0)
    await node.forget("a")
    assert await node.refresh() == {}
    assert sorted(p.name for p in (state / "run").iterdir()) == [".lock"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
async def test_a_full_disk_refuses_the_start_and_keeps_what_was_there(
    local: LocalExec, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)], check=True)
    try:
        node = Instances(local, str(small))
        await node.start(replace(spec(argv=("sh", "-c", "exit 3")), log_limit_mb=0.01))
        before = await ended(node)
        (small / "fill").write_bytes(b"x" * filling(small))
        with pytest.raises(RemoteFailed, match="disk is full"):
            await node.start(spec(token="t2"))
        assert await status(node) == before
        assert [p.name for p in (small / "run").iterdir() if p.name.startswith(".new")] == []
        (small / "fill").unlink()
        assert (await node.start(spec(token="t2"))).state is InstanceState.RUNNING
        (small / "fill").write_bytes(b"x" * filling(small))
        # how it ends is written down all the same
        result = await node.stop("a", 5.0)
        assert (result.status.state, result.status.exit_status) == (InstanceState.EXITED, 143)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def filling(folder: Path) -> int:
    free = os.statvfs(folder)
    return free.f_bavail * free.f_frsize


async def test_without_flock_the_pid_file_decides(
    node: Instances, local: LocalExec, state: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "no flock"
    broken.mkdir()
    (broken / "flock").write_text("#!/bin/sh\nexit 127\n")
    (broken / "flock").chmod(0o755)
    local.env["PATH"] = f"{broken}:{local.env['PATH']}"
    statuses = await asyncio.gather(*(node.start(spec()) for _ in range(3)))
    assert len({s.pid for s in statuses}) == 1
    await only_marked(state, statuses[0].pid)
    assert (await node.stop("a", 5.0)).status.exit_status == 143


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "a;b", ".lock", "a\n", "x" * 300])
async def test_names_that_are_no_names(node: Instances, name: str) -> None:
    for act in (node.start(spec(name=name)), node.stop(name, 1.0), node.forget(name)):
        with pytest.raises(InvalidInput):
            await act


def test_scripts_say_nothing_that_only_bash_knows() -> None:
    text = load("lib.sh", "lease.sh", "instances.sh", "files.sh", "sup.sh", "cmd.sh", "cgroup.sh")
    text += load(
        "lease_verbs.sh", "sampler.sh", "gpus.sh", "probe.sh", "install.sh", "architecture.sh"
    )
    for word in ("[[", "<<<", "local ", "function ", "source ", "&>", "((i", "echo -e", "pipefail"):
        assert word not in text, word


async def test_two_who_forget_at_once_both_find_it_gone(node: Instances, state: Path) -> None:
    for number in range(5):
        await node.start(spec(token=f"t{number}"))
        await node.stop("a", 5.0)
        await asyncio.gather(*(node.forget("a") for _ in range(4)))
        assert not (state / "run" / "a").exists()
