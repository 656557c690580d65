"""Scripts over a connection: against our own server and against OpenSSH."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from llmgw_core.errors import NodeLost, NodeRefused, RefusedBecause, RemoteFailed
from llmgw_core.nodes import channel, ssh_exec
from llmgw_core.nodes.local_server import LocalServer
from llmgw_core.nodes.ssh_exec import SshExec
from tests.nodes.sshd import Sshd, make_sshd, running

CONNECT = {"known_hosts": None, "config": None, "agent_path": None}


@asynccontextmanager
async def to_local(home: Path) -> AsyncIterator[SshExec]:
    async with (
        LocalServer(home).running() as server,
        _connect(server.port, server.user, [server.client_key]) as connection,
    ):
        yield SshExec(connection, "here")


@asynccontextmanager
async def to_sshd(server: Sshd) -> AsyncIterator[SshExec]:
    async with _connect(server.port, server.user, [str(server.client_key)]) as connection:
        yield SshExec(connection, "there")


@asynccontextmanager
async def _connect(
    port: int, user: str, keys: list[object]
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    connection = await asyncssh.connect(
        "127.0.0.1",
        port,
        username=user,
        client_keys=keys,
        kex_algs=["curve25519-sha256"],
        **CONNECT,
    )
    try:
        yield connection
    finally:
        connection.abort()
        await connection.wait_closed()


@pytest.fixture(params=["local", "sshd"])
async def both(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SshExec]:
    if request.param == "local":
        async with to_local(tmp_path) as found:
            yield found
    else:
        async with running(make_sshd(tmp_path / "sshd")) as server, to_sshd(server) as found:
            yield found


async def until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def test_arguments_output_and_status(both: SshExec) -> None:
    result = await both.script('echo "$1|$2|$#"; echo bad >&2; exit 7', "a.b", "b64:eA==")
    assert (result.stdout, result.stderr, result.exit_status) == (b"a.b|b64:eA==|2\n", b"bad\n", 7)


async def test_the_environment_is_the_same_everywhere(both: SshExec) -> None:
    result = await both.script(
        'umask; echo "$LC_ALL"; case $PATH in *:/usr/sbin:*) echo yes;; esac'
    )
    assert result.stdout == b"0077\nC\nyes\n"


@pytest.mark.parametrize("bad", ["", "a b", "$(id)", "x;y", "'", "a\n"])
async def test_arguments_that_a_shell_would_read_are_refused(tmp_path: Path, bad: str) -> None:
    async with to_local(tmp_path) as exec_:
        with pytest.raises(ValueError, match="argument"):
            await exec_.script("true", bad)


async def test_output_need_not_be_text(both: SshExec) -> None:
    result = await both.script(r"printf '\377\376\000\n'; printf '\303' >&2")
    assert result.stdout == b"\xff\xfe\x00\n"
    assert result.stderr == b"\xc3"
    assert (await both.script("echo still here")).stdout == b"still here\n"


async def test_a_death_by_signal_reads_as_in_a_shell(both: SshExec) -> None:
    assert (await both.script("kill -s KILL $$")).exit_status == 137


async def test_a_large_payload_arrives_whole(both: SshExec) -> None:
    payload = os.urandom(ssh_exec.PAYLOAD_LIMIT)
    result = await both.feed("payload | cksum; payload | wc -c", payload=payload)
    size = str(len(payload)).encode()
    assert result.stdout.split()[1:] == [size, size]
    with pytest.raises(ValueError, match="payload"):
        await both.feed("payload", payload=payload + b"x")


async def test_an_empty_payload(both: SshExec) -> None:
    assert (await both.feed("payload | wc -c", payload=b"")).stdout.strip() == b"0"


async def test_much_output_comes_whole_and_too_much_is_refused(both: SshExec) -> None:
    script = "head -c $1 /dev/zero"
    assert len((await both.script(script, "9000000")).stdout) == 9_000_000
    with pytest.raises(RemoteFailed, match="above 16 MiB"):
        await both.script(script, "20000000")


async def test_many_at_once_share_the_sessions(both: SshExec) -> None:
    results = await asyncio.gather(*(both.script('echo "$1"', str(n)) for n in range(30)))
    assert [r.stdout for r in results] == [f"{n}\n".encode() for n in range(30)]


async def test_a_deadline_ends_the_remote_command(both: SshExec, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with pytest.raises(NodeLost, match="'slow' within"):
        await both.script(
            f'[ "$1" = slow ] || exit 1; echo $$ > {pid_file}; sleep 60', "slow", timeout_s=2.0
        )
    pid = int(pid_file.read_text())
    await until(lambda: not Path(f"/proc/{pid}").exists() or _state(pid) == "Z")
    assert (await both.script("echo on")).stdout == b"on\n"


async def test_giving_up_frees_the_slot(both: SshExec, tmp_path: Path) -> None:
    # more than a server has sessions: given-up ones that stayed would use all of them up
    for number in range(12):
        mark = tmp_path / f"mark{number}"
        task = asyncio.create_task(both.script(f"echo > {mark}; sleep 60", timeout_s=600))
        await until(mark.exists)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (await both.script("echo free")).stdout == b"free\n"


async def test_giving_up_at_any_moment_leaves_the_connection_usable(both: SshExec) -> None:
    for step in range(20):
        task = asyncio.create_task(both.script("sleep 60", timeout_s=600))
        await asyncio.sleep(step * 0.002)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (await both.script("echo free")).stdout == b"free\n"


async def test_a_background_child_does_not_hold_the_answer_back(both: SshExec) -> None:
    started = time.monotonic()
    result = await both.script("sleep 30 & echo $!")
    assert result.stdout.strip().isdigit()
    assert time.monotonic() - started < 25
    os.kill(int(result.stdout), 9)


async def test_a_stream_gives_lines_until_its_end(both: SshExec) -> None:
    script = r"i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done; printf rest"
    lines = [line async for line in both.stream(script)]
    assert lines[:2] == [b"line 0", b"line 1"]
    assert lines[-2:] == [b"line 4999", b"rest"]
    assert len(lines) == 5001


async def test_a_stream_that_is_left_ends_the_command(both: SshExec, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"echo $$ > {pid_file}; while :; do echo x; sleep 0.1; done"
    async with aclosing(both.stream(script)) as lines:  # type: ignore[type-var]
        async for line in lines:
            assert line == b"x"
            break
    pid = int(pid_file.read_text())
    await until(lambda: not Path(f"/proc/{pid}").exists() or _state(pid) == "Z")


async def test_an_unread_stream_makes_the_node_wait(both: SshExec) -> None:
    lines = both.stream("yes 0123456789012345678901234567890123456789 | head -c 40000000")
    assert await anext(lines) == b"0123456789" * 4
    count = 1
    async for _ in lines:
        count += 1
    assert count == -(-40_000_000 // 41)


async def test_overlong_lines_are_cut(both: SshExec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "LINE_LIMIT", 1000)
    lines = [line async for line in both.stream("head -c 50000 /dev/zero; echo; echo next")]
    assert lines == [b"\0" * 1000, b"next"]


async def test_login_noise_is_cut_off(tmp_path: Path) -> None:
    server = make_sshd(tmp_path)
    server.in_home(r"printf 'Welcome!\n@@BEGIN nothing\n\377half a line'; echo warn >&2;")
    async with running(server), to_sshd(server) as exec_:
        assert (await exec_.script("echo ok")).stdout == b"ok\n"
        assert [line async for line in exec_.stream("echo a; echo b")] == [b"a", b"b"]


async def test_a_shell_that_is_none_is_named(tmp_path: Path) -> None:
    server = make_sshd(tmp_path, ForceCommand="echo This account is not available.; exit 1")
    async with running(server), to_sshd(server) as exec_:
        with pytest.raises(NodeRefused, match="This account is not available") as caught:
            await exec_.script("echo ok")
        assert caught.value.because is RefusedBecause.SHELL
        with pytest.raises(NodeRefused):
            await anext(exec_.stream("echo ok"))


async def test_a_login_shell_that_hangs_is_named(tmp_path: Path) -> None:
    server = make_sshd(tmp_path)
    server.options["ForceCommand"] = "sleep 60"
    async with running(server), to_sshd(server) as exec_:
        with pytest.raises(NodeLost, match=r"login shell of there .* within 1 s"):
            await exec_.script("echo ok", timeout_s=1.0)


async def test_a_refused_session_is_asked_for_again(tmp_path: Path) -> None:
    async with (
        running(make_sshd(tmp_path, MaxSessions="2")) as server,
        to_sshd(server) as exec_,
    ):
        results = await asyncio.gather(
            *(exec_.script("echo $1; sleep 0.1", str(n)) for n in range(4))
        )
        assert [r.stdout for r in results] == [b"0\n", b"1\n", b"2\n", b"3\n"]


async def test_sessions_that_stay_taken_are_an_error_of_that_call_only(tmp_path: Path) -> None:
    async with (
        running(make_sshd(tmp_path, MaxSessions="1")) as server,
        to_sshd(server) as exec_,
        aclosing(exec_.stream("echo up; sleep 60")) as lines,  # type: ignore[type-var]
    ):
        assert await anext(lines) == b"up"
        with pytest.raises(NodeLost, match="MaxSessions"):
            await exec_.script("echo never")


async def test_a_killed_session_is_an_error_and_no_result(tmp_path: Path) -> None:
    async with running(make_sshd(tmp_path)) as server, to_sshd(server) as exec_:
        mark = tmp_path / "mark"
        task = asyncio.create_task(exec_.script(f"echo part; echo > {mark}; sleep 60"))
        stream = exec_.stream("echo up; sleep 60")
        assert await anext(stream) == b"up"
        await until(mark.exists)
        server.kill_sessions()
        with pytest.raises(NodeLost, match="there"):
            await task
        with pytest.raises(NodeLost, match="there"):
            await anext(stream)
        with pytest.raises(NodeLost, match="there"):
            await exec_.script("echo more")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
