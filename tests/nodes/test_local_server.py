"""The SSH server of our own, as any SSH client meets it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from llmgw_core.nodes.local_server import LocalServer


@asynccontextmanager
async def client(
    server: LocalServer, key: asyncssh.SSHKey | None = None
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    known = asyncssh.import_known_hosts(server.known_hosts_line("here"))
    connection = await asyncssh.connect(
        "127.0.0.1",
        server.port,
        username=server.user,
        client_keys=[key or server.client_key],
        known_hosts=known,
        host_key_alias="here",
        agent_path=None,
        config=None,
    )
    try:
        yield connection
    finally:
        connection.abort()
        await connection.wait_closed()


async def until(condition: Callable[[], object], seconds: float = 15.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def number_in(path: Path) -> int:
    text = path.read_text().strip() if path.exists() else ""
    return int(text) if text.isdigit() else 0


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LocalServer]:
    async with LocalServer(tmp_path).running() as found:
        yield found


async def test_only_its_own_key_opens(server: LocalServer) -> None:
    with pytest.raises(asyncssh.PermissionDenied):
        async with client(server, asyncssh.generate_private_key("ssh-ed25519")):
            pass


async def test_it_listens_on_loopback_only_and_runs_once(tmp_path: Path) -> None:
    server = LocalServer(tmp_path)
    with pytest.raises(RuntimeError):
        _ = server.port
    await server.start()
    port = server.port
    await server.start()
    assert server.port == port
    await server.stop()
    await server.stop()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_commands_run_at_home_with_little_of_our_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1/")
    monkeypatch.setenv("LLMGW_DIR", "/somewhere")
    async with (
        LocalServer(tmp_path, env={"EXTRA": "1"}).running() as server,
        client(server) as connection,
    ):
        result = await connection.run("pwd; env", encoding=None)
        assert isinstance(result.stdout, bytes)
        lines = result.stdout.decode().splitlines()
    assert lines[0] == str(tmp_path)
    env = dict(line.split("=", 1) for line in lines[1:] if "=" in line)
    assert env["HOME"] == str(tmp_path)
    assert env["PIP_INDEX_URL"] == "http://127.0.0.1/"
    assert env["LLMGW_DIR"] == "/somewhere"
    assert env["EXTRA"] == "1"
    assert "HF_TOKEN" not in env


async def test_each_command_leads_a_session_of_its_own(server: LocalServer) -> None:
    async with client(server) as connection:
        result = await connection.run("cat /proc/$$/stat", encoding=None)
    assert isinstance(result.stdout, bytes)
    pid, fields = int(result.stdout.split()[0]), result.stdout.rpartition(b")")[2].split()
    assert int(fields[2]) == int(fields[3]) == pid  # group and session
    assert int(fields[4]) == 0  # no terminal
    assert int(fields[3]) != os.getsid(0)


async def test_input_output_and_status(server: LocalServer) -> None:
    async with client(server) as connection:
        payload = os.urandom(3_000_000)
        result = await connection.run("cat; echo done >&2; exit 3", input=payload, encoding=None)
        assert (result.stdout, result.stderr, result.exit_status) == (payload, b"done\n", 3)
        killed = await connection.run("kill -s TERM $$", encoding=None)
        assert killed.exit_signal is not None
        assert killed.exit_signal[0] == "TERM"


async def test_a_command_that_does_not_read(server: LocalServer) -> None:
    async with client(server) as connection:
        result = await connection.run("echo early", input=b"x" * 5_000_000, encoding=None)
        assert result.stdout == b"early\n"


async def test_thirty_at_once(server: LocalServer) -> None:
    async with client(server) as connection:
        results = await asyncio.gather(
            *(connection.run(f"sleep 0.1; echo {n}", encoding=None) for n in range(30))
        )
    assert [r.stdout for r in results] == [f"{n}\n".encode() for n in range(30)]


async def test_signals_reach_the_whole_group(server: LocalServer, tmp_path: Path) -> None:
    async with client(server) as connection:
        process = await connection.create_process(
            f"sleep 600 & echo $! > {tmp_path}/child; wait", encoding=None
        )
        await until(lambda: number_in(tmp_path / "child"))
        process.kill()
        await process.wait()
        await until(lambda: not alive(number_in(tmp_path / "child")))


async def test_a_lost_client_ends_its_commands_and_not_the_engines(
    server: LocalServer, tmp_path: Path
) -> None:
    command = (
        f"setsid sh -c 'echo $$ > {tmp_path}/engine; exec sleep 600' </dev/null >/dev/null 2>&1 & "
        f"sh -c 'trap \"\" TERM; echo $$ > {tmp_path}/stubborn; while :; do sleep 1; done' & "
        f"echo $$ > {tmp_path}/leader; wait"
    )
    async with client(server) as connection:
        await connection.create_process(command, encoding=None)
        await until(lambda: all(number_in(tmp_path / n) for n in ("engine", "stubborn", "leader")))
        connection.abort()
        await until(lambda: not alive(number_in(tmp_path / "leader")))
        await until(lambda: not alive(number_in(tmp_path / "stubborn")))
    engine = number_in(tmp_path / "engine")
    assert alive(engine)
    os.kill(engine, 9)


async def test_stopping_ends_commands_and_leaves_engines(tmp_path: Path) -> None:
    async with LocalServer(tmp_path).running() as server, client(server) as connection:
        await connection.create_process(
            f"trap '' TERM; echo $$ > {tmp_path}/leader; "
            f"setsid sh -c 'echo $$ > {tmp_path}/engine; exec sleep 600' "
            "</dev/null >/dev/null 2>&1 & while :; do sleep 1; done",
            encoding=None,
        )
        await until(lambda: number_in(tmp_path / "leader") and number_in(tmp_path / "engine"))
        await server.stop()
        assert not alive(number_in(tmp_path / "leader"))
    engine = number_in(tmp_path / "engine")
    assert alive(engine)
    os.kill(engine, 9)


async def test_no_shell_no_subsystem_no_forwarding(server: LocalServer) -> None:
    async with client(server) as connection:
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.create_process(encoding=None)
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.start_sftp_client()
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_connection("127.0.0.1", server.port)
        assert (await connection.run("echo on", encoding=None)).stdout == b"on\n"


async def test_a_home_that_is_not_there_is_an_error_of_the_command(tmp_path: Path) -> None:
    async with (
        LocalServer(tmp_path / "gone").running() as server,
        client(server) as connection,
    ):
        result = await connection.run("echo never", encoding=None)
        assert result.exit_status == 127
        assert isinstance(result.stderr, bytes)
        assert b"gone" in result.stderr
