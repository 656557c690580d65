"""The mirror as a process, from outside: how it starts, is found, moves, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from llmgw_core.errors import InvalidInput, LlmgwError
from llmgw_core.mirror import link as link_module
from llmgw_core.mirror.link import Address, MirrorLink, last_log_line
from llmgw_core.mirror.settings import (
    LOCK_NAME,
    LOG_NAME,
    SOCKET_NAME,
    STATE_NAME,
    MirrorSettings,
    MirrorStatus,
    decode_settings,
    decode_status,
    encode,
)
from llmgw_core.mirror.tokens import ensure_secret, fetch_token
from tests.mirror.shelves import BOUND_S, Client, Response, shelve, until

CONTENT = random.Random(2).randbytes(3_000_001)
TARGET = "/v1/files/m/v1/w.gguf"


class World:
    """A state directory, a store with one version, and links to whatever serves it."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.root = folder / "store"
        self.secret_file = self.state / "mirror.secret"
        self.secret = ensure_secret(self.secret_file)
        self.settings = MirrorSettings(root=self.root, secret_file=self.secret_file)
        self.link = MirrorLink(self.state)
        self.token = fetch_token(self.secret, "m", "v1", expires=time.time() + 600)
        self.clients: list[Client] = []
        shelve(self.root, "m", "v1", {"w.gguf": CONTENT})

    async def client(self, address: Address) -> Client:
        made = Client(*await asyncio.open_connection(address.host, address.port))
        self.clients.append(made)
        return made

    async def fetch(self, address: Address, **headers: str) -> Response:
        return await (await self.client(address)).ask(TARGET, self.token, **headers)

    async def begin(self, address: Address) -> Client:
        """A download that has begun."""
        client = await self.client(address)
        await client.send(TARGET, {"Authorization": f"Bearer {self.token}"})
        assert (await client.head()).status == 200
        return client

    async def status(self, link: MirrorLink | None = None) -> MirrorStatus:
        found = await (link or self.link).status()
        assert found is not None
        return found

    @property
    def log(self) -> str:
        return (self.state / LOG_NAME).read_text()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    try:
        yield made
    finally:
        for client in made.clients:
            client.leave()
        await made.link.stop(drain_s=0.0)
        for child in made.link._children:
            child.kill()
            child.wait()


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_it_is_started_once_and_serves(world: World) -> None:
    address = await world.link.ensure(world.settings)
    assert address == Address("127.0.0.1", address.port)
    assert address.url == f"http://127.0.0.1:{address.port}"
    got = await world.fetch(address)
    assert (got.status, got.body) == (200, CONTENT)
    status = await world.status()
    for _ in range(3):
        assert await world.link.ensure(world.settings) == address
    assert (await world.status()).pid == status.pid
    assert status.bytes_sent == len(CONTENT)
    assert (status.versions[0].model, status.versions[0].version) == ("m", "v1")
    assert f"mirror.listens host=127.0.0.1 port={address.port}" in world.log


async def test_its_files_are_for_the_owner_only_and_no_secret_leaks(world: World) -> None:
    address = await world.link.ensure(world.settings)
    await world.fetch(address)
    for name in (SOCKET_NAME, LOG_NAME, LOCK_NAME, STATE_NAME):
        assert stat.S_IMODE((world.state / name).stat().st_mode) == 0o600, name
    for path in world.state.iterdir():
        if path.is_file() and path != world.secret_file:
            assert world.secret not in path.read_text()
            assert world.token not in path.read_text()
    proc = Path(f"/proc/{(await world.status()).pid}")
    for kept in (proc / "cmdline", proc / "environ"):
        assert world.secret.encode() not in kept.read_bytes()
    assert str(world.root).encode() not in (proc / "cmdline").read_bytes()


async def test_it_stands_on_its_own(world: World) -> None:
    await world.link.ensure(world.settings)
    pid = (await world.status()).pid
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"
    assert os.readlink(f"/proc/{pid}/fd/1") == str(world.state / LOG_NAME)
    assert MirrorLink(world.state)._state == world.state


STARTER = """
import asyncio, sys, time
from pathlib import Path
from llmgw_core.mirror.link import MirrorLink
from llmgw_core.mirror.settings import decode_settings

async def main():
    link = MirrorLink(Path(sys.argv[1]))
    await link.ensure(decode_settings(sys.stdin.buffer.read()))
    print((await link.status()).pid, flush=True)
    time.sleep(600)

asyncio.run(main())
"""


async def test_it_outlives_its_starter_and_is_found_again(world: World) -> None:
    settings = replace(world.settings, rate_limit=2_000_000.0)
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(world.state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert starter.stdin is not None
    assert starter.stdout is not None
    with starter, contextlib.ExitStack() as stack:
        stack.callback(starter.kill)
        starter.stdin.write(encode(settings))
        starter.stdin.close()
        pid = int(await asyncio.to_thread(starter.stdout.readline))
        before = await world.status()
        assert before.pid == pid
        client = await world.begin(Address(before.host, before.port))
        os.killpg(starter.pid, signal.SIGKILL)
        await asyncio.to_thread(starter.wait, BOUND_S)
        assert await client.reader.readexactly(len(CONTENT)) == CONTENT
    address = await world.link.ensure(settings)
    assert (address.host, address.port) == (before.host, before.port)
    assert (await world.status()).pid == pid
    await world.link.stop(drain_s=0.0)
    assert not is_running(pid)


async def test_after_a_kill_another_one_serves_at_the_same_place(world: World) -> None:
    address = await world.link.ensure(replace(world.settings, rate_limit=1_000_000.0))
    client = await world.begin(address)
    have = await client.reader.readexactly(10_000)
    first = (await world.status()).pid
    os.kill(first, signal.SIGKILL)
    have += await client.rest()
    assert 10_000 <= len(have) < len(CONTENT)
    assert await world.link.ensure(world.settings) == address
    assert (await world.status()).pid != first
    got = await world.fetch(address, Range=f"bytes={len(have)}-")
    assert have + got.body == CONTENT
    children = world.link._children
    await until(lambda: sum(child.poll() is None for child in children) == 1)


async def test_another_limit_is_put_in_force_under_running_downloads(world: World) -> None:
    slow = replace(world.settings, rate_limit=20_000.0)
    address = await world.link.ensure(slow)
    client = await world.begin(address)
    pid = (await world.status()).pid
    assert (await world.status()).settings == slow
    assert await world.link.ensure(world.settings) == address
    assert await client.reader.readexactly(len(CONTENT)) == CONTENT
    assert (await world.status()).pid == pid
    assert await world.link.ensure(slow) == address
    assert (await world.status()).settings.rate_limit == 20_000.0


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


async def test_with_other_settings_it_moves_and_cuts_nobody(world: World) -> None:
    old = await world.link.ensure(replace(world.settings, rate_limit=3_000_000.0))
    first = (await world.status()).pid
    client = await world.begin(old)
    moved = replace(world.settings, port=free_port())
    new = await world.link.ensure(moved)
    assert (new.port, (await world.status()).pid != first) == (moved.port, True)
    with pytest.raises(ConnectionRefusedError):
        await world.client(old)
    assert (await world.fetch(new)).body == CONTENT
    assert await client.reader.readexactly(len(CONTENT)) == CONTENT
    await until(lambda: not is_running(first))
    # on the same port too: the old one has left it before the new one comes
    kept = await world.link.ensure(replace(moved, stall_timeout_s=7.0))
    assert kept == new
    assert (await world.status()).settings.stall_timeout_s == 7.0


async def test_another_secret_takes_the_old_tokens_power(world: World) -> None:
    address = await world.link.ensure(world.settings)
    world.secret_file.unlink()
    ensure_secret(world.secret_file)
    address = await world.link.ensure(world.settings)
    assert (await world.fetch(address)).status == 401


async def test_sigterm_lets_downloads_finish_and_leaves_the_place(world: World) -> None:
    address = await world.link.ensure(replace(world.settings, rate_limit=3_000_000.0))
    status = await world.status()
    (child,) = world.link._children
    client = await world.begin(address)
    idle = await world.client(address)
    assert (await idle.ask("/health", "")).status == 200
    os.kill(status.pid, signal.SIGTERM)
    assert await idle.rest() == b""
    successor = await world.link.ensure(world.settings)
    assert (await world.status()).pid != status.pid
    assert (await world.fetch(successor)).body == CONTENT
    assert await client.reader.readexactly(len(CONTENT)) == CONTENT
    assert await asyncio.to_thread(child.wait, BOUND_S) == 0


async def test_its_end_is_bounded(world: World) -> None:
    await world.link.ensure(replace(world.settings, rate_limit=20_000.0, drain_timeout_s=0.2))
    status = await world.status()
    (child,) = world.link._children
    client = await world.begin(Address(status.host, status.port))
    os.kill(status.pid, signal.SIGTERM)
    assert await asyncio.to_thread(child.wait, BOUND_S) == 0
    assert len(await client.rest()) < len(CONTENT)
    assert "mirror.cut downloads=1" in world.log
    assert await world.link.status() is None


async def test_a_second_signal_ends_it_at_once(world: World) -> None:
    await world.link.ensure(replace(world.settings, rate_limit=20_000.0))
    status = await world.status()
    (child,) = world.link._children
    await world.begin(Address(status.host, status.port))
    os.kill(status.pid, signal.SIGTERM)
    await until(lambda: "mirror.drains" in world.log)
    os.kill(status.pid, signal.SIGTERM)
    assert await asyncio.to_thread(child.wait, BOUND_S) == 128 + signal.SIGTERM


async def test_stopping_waits_for_the_end(world: World) -> None:
    address = await world.link.ensure(world.settings)
    pid = (await world.status()).pid
    await world.link.stop(drain_s=5.0)
    assert not is_running(pid)
    assert await world.link.status() is None
    with pytest.raises(ConnectionRefusedError):
        await world.client(address)
    await world.link.stop(drain_s=5.0)


async def test_two_controllers_at_once_have_one_mirror(world: World) -> None:
    links = [MirrorLink(world.state) for _ in range(3)]
    found = await asyncio.gather(*(link.ensure(world.settings) for link in links))
    assert len(set(found)) == 1
    children = [child for link in links for child in link._children]
    await until(lambda: sum(child.poll() is None for child in children) == 1)
    for link in links:
        await link.stop(drain_s=0.0)


def run(state: Path, settings: bytes) -> subprocess.CompletedProcess[str]:
    """A mirror that is expected to end at once."""
    done = subprocess.run(
        [sys.executable, "-m", "llmgw_core.mirror.process", "--state", str(state)],
        input=settings,
        capture_output=True,
        timeout=BOUND_S,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, "", done.stderr.decode())


async def test_a_second_one_in_the_same_directory_refuses(world: World) -> None:
    await world.link.ensure(world.settings)
    refused = await asyncio.to_thread(run, world.state, encode(world.settings))
    assert refused.returncode == 4
    assert refused.stderr == (
        f"A mirror runs for {world.state} already; stop it first, or use another state directory.\n"
    )


async def test_a_start_that_fails_is_told_and_not_tried_again_at_once(world: World) -> None:
    now = 0.0
    link = MirrorLink(world.state, clock=lambda: now)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = replace(world.settings, port=port)
        words = (
            f"The mirror ended with status 3: The mirror cannot listen on 127.0.0.1:{port}: "
            "another program does already; choose another address or port"
        )
        for _ in range(3):
            with pytest.raises(LlmgwError) as error:
                await link.ensure(settings)
            assert str(error.value) == words
        assert world.log.count("cannot listen") == 1
        now = 0.6
        with pytest.raises(LlmgwError):
            await link.ensure(settings)
        assert world.log.count("cannot listen") == 2
    now = 2.0
    assert (await link.ensure(settings)).port == port
    await link.stop(drain_s=0.0)


async def test_one_that_hangs_is_said_to(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.link.ensure(world.settings)
    pid = (await world.status()).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        monkeypatch.setattr(link_module, "ANSWER_MOST_S", 0.2)
        with pytest.raises(LlmgwError, match=r"has not answered for 0\.2 s; see whether its disk"):
            await world.link.ensure(world.settings)
    finally:
        monkeypatch.undo()
        os.kill(pid, signal.SIGCONT)
    await world.link.ensure(world.settings)
    assert (await world.status()).pid == pid


async def test_what_cannot_be_understood_is_answered_by_hanging_up(world: World) -> None:
    await world.link.ensure(world.settings)
    for line in (b"not json\n", b'{"drain":"soon"}\n', b"\xff\n", b"x" * 2_000_000):
        reader, writer = await asyncio.open_unix_connection(world.state / SOCKET_NAME)
        with contextlib.suppress(ConnectionError):
            writer.write(line)
            async with asyncio.timeout(BOUND_S):
                assert await reader.read() == b""
        writer.close()
    await world.status()


async def test_a_mirror_of_another_release_is_replaced(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.link.ensure(world.settings)
    first = (await world.status()).pid
    real = decode_status

    def decode(line: bytes) -> MirrorStatus:
        found = real(line)
        if found.pid == first:
            raise InvalidInput("of another release")
        return found

    monkeypatch.setattr(link_module, "decode_status", decode)
    await world.link.ensure(world.settings)
    assert (await world.status()).pid != first


async def test_a_long_state_directory_works(tmp_path: Path) -> None:
    long = World(tmp_path / ("d" * 90) / ("e" * 90))
    address = await long.link.ensure(long.settings)
    assert (await long.fetch(address)).body == CONTENT
    long.clients[0].leave()
    await long.link.stop(drain_s=0.0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (b"", "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"root":"/x","secret_file":"/y","port":70000}', "port is 70000"),
        (b'{"root":"/x","secret_file":"/nowhere/y"}', "/nowhere/y cannot be read"),
        (b'{"root":"/x","secret_file":"/y","rate_limit":1}', "must be at least 16384"),
    ],
)
def test_settings_that_cannot_be_used_are_one_sentence(
    tmp_path: Path, settings: bytes, words: str
) -> None:
    failed = run(tmp_path, settings)
    assert failed.returncode == 2
    assert words in failed.stderr
    assert failed.stderr.count("\n") == 1


async def test_a_host_that_is_no_address_is_one_sentence(world: World) -> None:
    settings = replace(world.settings, host="no.such.host.invalid")
    failed = await asyncio.to_thread(run, world.state, encode(settings))
    assert failed.returncode == 2
    assert "the host does not resolve" in failed.stderr


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    made = World(tmp_path)
    made.secret_file.chmod(0o644)
    failed = run(made.state, encode(made.settings))
    assert failed.returncode == 2
    assert "can be read by others" in failed.stderr
    assert made.secret not in failed.stderr


def test_settings_survive_the_pipe() -> None:
    settings = MirrorSettings(
        root=Path("/a b/ü"), secret_file=Path("s"), host="::1", port=7, rate_limit=1e6
    )
    assert decode_settings(encode(settings)) == settings


@pytest.mark.parametrize(
    "options",
    [
        {"port": -1},
        {"rate_limit": 0.0},
        {"rate_limit": float("nan")},
        {"stall_timeout_s": 0.0},
        {"drain_timeout_s": -1.0},
        {"max_downloads": 0},
    ],
)
def test_settings_out_of_their_bounds_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match="The mirror's"):
        MirrorSettings(root=Path("r"), secret_file=Path("s"), **options)  # type: ignore[arg-type]


def test_the_controllers_side_loads_no_server() -> None:
    code = (
        "import sys, llmgw_core.mirror.link\n"
        "print([m for m in ('aiohttp', 'httpx', 'asyncssh', 'uvloop') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND_S, check=True
    )
    assert done.stdout == "[]\n"


def test_the_server_loads_no_ssh_hub_or_console() -> None:
    heavy = "('asyncssh', 'httpx', 'huggingface_hub', 'gguf', 'numpy', 'textual', 'pydantic')"
    code = f"import sys, llmgw_core.mirror.process\nprint([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=BOUND_S, check=True
    )
    assert done.stdout == "[]\n"


def test_nothing_was_logged_where_nothing_runs(tmp_path: Path) -> None:
    assert last_log_line(tmp_path) == ""


def test_what_it_logged_last_is_one_harmless_line(tmp_path: Path) -> None:
    (tmp_path / LOG_NAME).write_bytes(b"first\npath=\x1b[2J\xc2\x9b" + b"x" * 1500 + b"\n")
    said = last_log_line(tmp_path)
    assert said.startswith("path=·[2J·xx")
    assert len(said) == 300
