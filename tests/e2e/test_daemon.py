"""The daemon by itself: signals, reload, and the socket."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llmgw_core.api.views import Command
from llmgw_core.cli.console import Connection
from llmgw_core.cli.place import Place
from llmgw_core.controller.engine import EngineRun
from llmgw_core.errors import InvalidInput, NotFound, Refused
from tests.e2e.cluster import Cluster


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path, f'[[nodes]]\nname = "a"\nlocal = true\nstate_dir = "{tmp_path}/a"\n')
    try:
        yield made
    finally:
        await made.end()


async def test_sigterm_drains_the_gateway_and_exits_0(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.url()
    assert cluster.daemon is not None
    cluster.daemon.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(cluster.daemon.wait, 30) == 0
    await cluster.gone()
    assert "Traceback" not in (cluster.folder / "daemon.log").read_text()


async def test_sighup_reloads_and_a_bad_file_leaves_the_old_in_force(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.until(lambda s: s.nodes[0].state == "ready", "the node is ready")
    good = cluster.config.read_text()
    more = f'[[nodes]]\nname = "b"\nlocal = true\nstate_dir = "{cluster.folder}/b"\n'
    cluster.config.write_text(good + more)
    assert cluster.daemon is not None
    cluster.daemon.send_signal(signal.SIGHUP)
    snapshot = await cluster.until(
        lambda s: [n.name for n in s.nodes if n.state == "ready"] == ["a", "b"], "b is ready"
    )
    since = snapshot.nodes[0].since
    cluster.config.write_text(good + '[[nodes]]\nnaem = "c"\n')
    with pytest.raises(InvalidInput, match="the old one stays in force"):
        await cluster.do("reload")
    snapshot = await cluster.until(
        lambda s: any("naem" in error for error in s.controller.config_errors),
        "the fault is shown",
    )
    assert [n.name for n in snapshot.nodes] == ["a", "b"]
    assert snapshot.nodes[0].since == since


async def test_systemd_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "n"))
        sock.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
        cluster = Cluster(tmp_path, "")
        try:
            await cluster.start()
            assert await asyncio.to_thread(sock.recv, 100) == b"READY=1"
        finally:
            await cluster.end()
        assert await asyncio.to_thread(sock.recv, 100) == b"STOPPING=1"


async def test_the_socket_is_private_and_speaks_plainly_of_errors(cluster: Cluster) -> None:
    await cluster.start()
    assert os.stat(cluster.state / "control.sock").st_mode & 0o777 == 0o600
    assert os.stat(cluster.state).st_mode & 0o777 == 0o700
    with pytest.raises(NotFound, match="there is no model"):
        await cluster.do("scale", name="nobody", delta=1)
    with pytest.raises(NotFound, match="nodes: a"):
        await cluster.do("node.cordon", name="nobody")
    with pytest.raises(NotFound, match="there is no replica"):
        async for _ in cluster.client.logs("nobody"):
            pass
    with pytest.raises(InvalidInput, match="no command"):
        await cluster.do("fly")


async def test_cordons_outlive_the_daemon(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.until(lambda s: s.nodes[0].state == "ready", "the node is ready")
    await cluster.do("node.cordon", name="a")
    await cluster.until(lambda s: s.nodes[0].state == "cordoned", "it is cordoned")
    await cluster.kill()
    await cluster.start()
    await cluster.until(lambda s: s.nodes[0].state == "cordoned", "it is cordoned still")
    await cluster.do("node.uncordon", name="a")
    await cluster.until(lambda s: s.nodes[0].state == "ready", "it is ready again")


async def test_the_gateway_moves_to_a_new_address_on_reload(cluster: Cluster) -> None:
    await cluster.start()
    old = await cluster.url()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    text = cluster.config.read_text().replace("port = 0", f"port = {port}")
    cluster.config.write_text(text)
    await cluster.do("reload")
    new = f"127.0.0.1:{port}"
    await cluster.until(lambda s: s.gateway.address == new, "it serves at the new address")
    assert old != f"http://{new}"


async def test_a_killed_gateway_is_started_again(cluster: Cluster) -> None:
    await cluster.start()
    await cluster.url()
    before = (await cluster.client.snapshot()).gateway.pid
    assert before is not None
    os.kill(before, signal.SIGKILL)
    await cluster.until(
        lambda s: s.gateway.pid not in (None, before) and s.gateway.state == "serving",
        "another gateway serves",
    )


async def test_what_was_stopped_is_not_handed_over(tmp_path: Path) -> None:
    """A terminal that closes just after a shutdown must not bring everything back."""
    config = tmp_path / "config.toml"
    config.write_text("[gateway]\nport = 0\n")
    engine = EngineRun(tmp_path / "state", config, "console")
    client = await engine.start()
    try:
        stop = {"stop_replicas": True, "stop_gateway": True}
        await client.command(Command("shutdown", stop, "test"))
        with pytest.raises(Refused, match="ends already"):
            await client.command(Command("handover", {}, "test"))
        assert not engine.handed_over
    finally:
        await client.aclose()


async def test_a_console_hears_that_its_engine_was_ended(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[gateway]\nport = 0\n")
    connection = Connection(Place(config, tmp_path / "state"))
    heard = asyncio.create_task(connection.ended())
    client = await connection.open(lambda _: None)
    try:
        assert client.where == "here"
        assert not heard.done()
        stop = {"stop_replicas": True, "stop_gateway": True}
        await client.command(Command("shutdown", stop, "test"))
        async with asyncio.timeout(20):
            assert "was ended" in await heard
    finally:
        heard.cancel()
        await client.aclose()
