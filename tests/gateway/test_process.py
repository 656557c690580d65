"""The gateway as a process, from outside: how it starts, is found, is told, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from llmgw_core.gateway.link import LOG_NAME, GatewayLink, last_log_line, spawn
from llmgw_core.gateway.process import LOCK_NAME
from llmgw_core.gateway.settings import GatewaySettings
from llmgw_core.gateway.table import Report, RouteModel, Table
from llmgw_core.gateway.wire import SOCKET_NAME
from tests.gateway.lab import BOUND_S, Client, chat, model, until
from tests.gateway.upstream import (
    DONE,
    STREAM_HEAD,
    Conversation,
    Received,
    Upstream,
    completes,
    event,
    hangs,
)


class Running:
    """A gateway process and a link to it."""

    def __init__(self, state: Path, process: subprocess.Popen[bytes]) -> None:
        self.state = state
        self.process = process
        self.link: GatewayLink
        self.report: Report | None = None
        self.errors: list[str] = []
        self._task: asyncio.Task[None] | None = None
        self._clients: list[Client] = []

    async def connect(self) -> None:
        async with asyncio.timeout(BOUND_S):
            while True:
                try:
                    self.link = await GatewayLink.connect(self.state)
                    break
                except OSError:
                    assert self.process.poll() is None, last_log_line(self.state)
                    await asyncio.sleep(0.02)
        self._task = asyncio.create_task(self._listen())
        await self.link.ask_report()
        await until(lambda: self.report is not None)

    async def _listen(self) -> None:
        with contextlib.suppress(OSError):
            async for message in self.link.messages():
                if message.error is not None:
                    self.errors.append(message.error)
                self.report = message.report or self.report

    async def table(self, version: int, *models: RouteModel) -> None:
        await self.link.send_table(Table(version=version, models=models))
        await until(lambda: self.report is not None and self.report.table_version == version)

    @property
    def port(self) -> int:
        assert self.report is not None
        return int(self.report.address.rpartition(":")[2])

    async def client(self) -> Client:
        made = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self._clients.append(made)
        return made

    async def ended(self) -> int:
        await until(lambda: self.process.poll() is not None)
        return self.process.returncode

    async def close(self) -> None:
        for client in self._clients:
            client.reset()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self.link.close()


@contextlib.asynccontextmanager
async def running(state: Path, settings: GatewaySettings | None = None) -> AsyncIterator[Running]:
    state.mkdir(parents=True, exist_ok=True)
    process = spawn(state, settings or GatewaySettings(port=0))
    made = Running(state, process)
    try:
        await made.connect()
        yield made
    finally:
        await made.close()
        process.kill()
        process.wait(BOUND_S)


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "llmgw_core.gateway", *arguments],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


async def test_it_serves_what_the_control_line_says(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway, Upstream(completes) as up:
        assert gateway.report is not None
        assert gateway.report.pid == gateway.process.pid
        assert gateway.report.address == f"127.0.0.1:{gateway.port}"
        await gateway.table(7, model(up))
        client = await gateway.client()
        assert (await client.ask(chat())).status == 200
        await gateway.link.ask_report()
        await until(lambda: gateway.report is not None and gateway.report.requests_total == 1)
        (demand,) = gateway.report.models
        assert (demand.model, demand.running, demand.requests_total) == ("m", 0, 1)
        assert demand.last_end is not None
        assert gateway.report.open_connections == 1
        await client.leave()
    assert f"listening on 127.0.0.1:{gateway.port}" in (tmp_path / LOG_NAME).read_text()


async def test_its_files_are_for_the_owner_only_and_no_key_is_on_disk(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway, Upstream(completes) as up:
        await gateway.table(1, model(up))
        await (await gateway.client()).ask(chat())
        for name in (SOCKET_NAME, LOG_NAME, LOCK_NAME):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        for path in tmp_path.iterdir():
            assert not path.is_file() or b"replica-key" not in path.read_bytes()
        command = Path(f"/proc/{gateway.process.pid}/cmdline").read_bytes()
        assert b"replica-key" not in command


async def test_it_stands_on_its_own(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        async with running(tmp_path) as gateway:
            pid = gateway.process.pid
            assert os.getsid(pid) == pid
            open_files = {os.readlink(f"/proc/{pid}/fd/{n}") for n in (0, 1, 2)}
            assert open_files == {"/dev/null", str(tmp_path / LOG_NAME)}
            pipe = os.readlink(f"/proc/self/fd/{writer}")
            names = [entry.name for entry in Path(f"/proc/{pid}/fd").iterdir()]
            links = []
            for name in names:
                with contextlib.suppress(OSError):
                    links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
            assert pipe not in links
    finally:
        os.close(reader)
        os.close(writer)


async def test_a_line_that_cannot_be_read_is_answered_without_its_content(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        writer = gateway.link._writer
        writer.write(b'{"table":{"version":"replica-secret"}}\nnot json\n\xff\n')
        await until(lambda: len(gateway.errors) == 3)
        assert not any("replica-secret" in error for error in gateway.errors)
        await gateway.table(2)
    assert "replica-secret" not in (tmp_path / LOG_NAME).read_text()


async def test_any_number_of_controllers_hear_it_and_the_last_table_wins(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        second = Running(tmp_path, gateway.process)
        await second.connect()
        await second.table(5, RouteModel(name="m"))
        await until(lambda: gateway.report is not None and gateway.report.table_version == 5)
        await gateway.table(3)
        await until(lambda: second.report is not None and second.report.table_version == 3)
        await second.close()
        await gateway.table(4)


async def test_the_end_of_a_removed_replicas_last_request_is_told_at_once(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def gated(conversation: Conversation, request: Received) -> bool:
        await go.wait()
        return await completes(conversation, request)

    async with running(tmp_path) as gateway, Upstream(gated) as up:
        await gateway.table(1, model(up))
        client = await gateway.client()
        await client.post(chat())
        await until(lambda: len(up.received) == 1)
        await gateway.table(2)

        def loads() -> dict[str, int]:
            assert gateway.report is not None
            return {load.id: load.outstanding for load in gateway.report.targets}

        assert loads() == {"m-1": 1}
        reports: list[dict[str, int]] = []
        go.set()
        assert (await client.response()).status == 200
        await until(lambda: reports.append(loads()) or loads() == {"m-1": 0})  # type: ignore[func-returns-value]
        assert (await client.ask(chat())).status == 404
        await client.leave()


async def test_a_drain_lets_a_stream_finish_and_takes_nothing_new(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def gated(conversation: Conversation, request: Received) -> bool:
        await conversation.send(STREAM_HEAD)
        await conversation.chunk(event("one"))
        await go.wait()
        await conversation.chunk(DONE)
        await conversation.send(b"0\r\n\r\n")
        return True

    async with running(tmp_path) as gateway, Upstream(gated) as up:
        await gateway.table(1, model(up))
        idle = await gateway.client()
        assert (await idle.get("/health")).status == 200
        client = await gateway.client()
        await client.post(chat(stream=True))
        assert (await client.head())[0] == 200
        gateway.process.send_signal(signal.SIGTERM)
        await until(lambda: gateway.report is not None and gateway.report.draining)
        assert await idle.closed()
        with pytest.raises(ConnectionRefusedError):
            await gateway.client()
        # the place is free for the next one while the old one still works
        async with running(tmp_path) as successor:
            assert successor.report is not None
            assert successor.report.pid != gateway.process.pid
            go.set()
            assert await client.chunk() == event("one")
            assert await client.chunk() == DONE
            assert await client.chunk() == b""
            assert await gateway.ended() == 0


async def test_a_drain_is_bounded(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway, Upstream(hangs) as up:
        await gateway.table(1, model(up))
        client = await gateway.client()
        await client.post(chat())
        await until(lambda: len(up.received) == 1)
        await gateway.link.drain(0.2)
        assert await gateway.ended() == 0
        assert await client.closed()
        await until(lambda: up.open == 0)
    assert not (tmp_path / SOCKET_NAME).exists()


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway, Upstream(hangs) as up:
        await gateway.table(1, model(up))
        client = await gateway.client()
        await client.post(chat())
        await until(lambda: len(up.received) == 1)
        gateway.process.send_signal(signal.SIGTERM)
        await until(lambda: gateway.report is not None and gateway.report.draining)
        gateway.process.send_signal(signal.SIGTERM)
        assert await gateway.ended() == 128 + signal.SIGTERM


async def test_after_a_kill_the_next_one_takes_its_place(tmp_path: Path) -> None:
    async with running(tmp_path) as first:
        first.process.kill()
        await first.ended()
        async with running(tmp_path) as second:
            assert second.report is not None


async def test_a_second_gateway_in_the_same_directory_refuses(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        refused = await asyncio.to_thread(run, "--state", str(tmp_path), "--port", "0")
        assert refused.returncode == 4
        assert refused.stderr == (
            f"A gateway (pid {gateway.process.pid}) runs for {tmp_path} already; "
            "stop it first, or use another state directory.\n"
        )


async def test_a_long_state_directory_works(tmp_path: Path) -> None:
    async with running(tmp_path / ("d" * 90) / ("e" * 90)) as gateway:
        assert gateway.report is not None


def test_a_taken_port_is_named_in_one_sentence(tmp_path: Path) -> None:
    with taken_port() as port:
        failed = run("--state", str(tmp_path), "--port", str(port))
    assert failed.returncode == 3
    assert failed.stderr == (
        f"The gateway cannot listen on 127.0.0.1:{port}: another program does already; "
        "stop it, or choose another port.\n"
    )


def test_an_address_that_others_reach_is_refused_without_keys(tmp_path: Path) -> None:
    failed = run("--state", str(tmp_path), "--host", "0.0.0.0", "--port", "0")
    assert failed.returncode == 4
    assert "checks no keys yet" in failed.stderr
    assert failed.stderr.count("\n") == 1


async def test_it_can_be_made_to_listen_there_all_the_same(tmp_path: Path) -> None:
    async with running(tmp_path, GatewaySettings("0.0.0.0", 0, insecure_no_keys=True)) as gateway:
        assert gateway.report is not None
        assert gateway.report.address == f"0.0.0.0:{gateway.port}"
        client = await gateway.client()
        assert (await client.get("/health")).status == 200


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "no.such.host.invalid"], "does not resolve"),
        (["--max-body-mb", "-1"], "must not be below 0"),
        (["--port", "many"], "invalid int"),
    ],
)
def test_bad_options_are_usage_errors(tmp_path: Path, arguments: list[str], words: str) -> None:
    failed = run("--state", str(tmp_path), *arguments)
    assert failed.returncode == 2
    assert words in failed.stderr


def test_settings_survive_the_command_line() -> None:
    from llmgw_core.gateway.__main__ import parse

    settings = GatewaySettings(
        host="::1", port=0, gap_timeout_s=1.5, max_body_mb=0.5, insecure_no_keys=True, avoid_s=0
    )
    assert parse(["--state", "x", *settings.arguments()]) == (Path("x"), settings)


def test_the_controllers_side_loads_no_server() -> None:
    code = (
        "import sys, llmgw_core.gateway.link\n"
        "print([m for m in ('uvloop', 'httptools', 'asyncssh', 'aiohttp') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND_S, check=True
    )
    assert done.stdout == "[]\n"


def test_the_gateway_loads_no_ssh_and_no_console() -> None:
    code = (
        "import sys, llmgw_core.gateway.__main__\n"
        "print([m for m in ('asyncssh', 'aiohttp', 'httpx', 'textual') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND_S, check=True
    )
    assert done.stdout == "[]\n"
