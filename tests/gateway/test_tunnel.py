"""Replicas behind a node's SSH connection, which the gateway holds itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path

import asyncssh
import pytest

from llmgw_core.gateway import tunnel as tunnel_module
from llmgw_core.gateway.settings import GatewaySettings
from llmgw_core.gateway.table import RouteModel, Table, Target, Tunnel
from tests.gateway.lab import Lab, chat, until
from tests.gateway.upstream import (
    STREAM_HEAD,
    Conversation,
    Received,
    Upstream,
    completes,
    event,
    hangs,
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel_module, "FIRST_DELAY_S", 0.05)
    # neither the developer's agent nor their keys
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return


class _Server(asyncssh.SSHServer):
    def __init__(self, node: Node) -> None:
        self._node = node

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._node.connections.append(conn)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> bool:
        self._node.channels += 1
        return self._node.forwards


class Node:
    """An SSH server on loopback that forwards.

    It runs on a plain asyncio loop in a thread of its own: under uvloop asyncssh's server loses
    what a forwarded port says first, as an SSH server behind a jump host does.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.user_key = asyncssh.generate_private_key("ssh-ed25519")
        self.connections: list[asyncssh.SSHServerConnection] = []
        self.channels = 0
        self.forwards = True
        self.port = 0
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    async def _there(self, work: Coroutine[None, None, None]) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def __aenter__(self) -> Node:
        (self.folder / "id").write_bytes(self.user_key.export_private_key())
        self.know(self.host_key)
        self._thread.start()
        await self.listen()
        return self

    def know(self, key: asyncssh.SSHKey) -> None:
        line = b"node-a " + key.export_public_key()
        (self.folder / "known_hosts").write_bytes(line)

    async def listen(self) -> None:
        await self._there(self._listen())

    async def _listen(self) -> None:
        authorized = asyncssh.import_authorized_keys(
            self.user_key.export_public_key().decode("ascii")
        )
        self._acceptor = await asyncssh.listen(
            "127.0.0.1",
            self.port,
            server_host_keys=[self.host_key],
            authorized_client_keys=authorized,
            server_factory=lambda: _Server(self),
        )
        self.port = self._acceptor.get_port()

    async def drop(self) -> None:
        """Close the listener and every connection."""
        await self._there(self._drop())

    async def _drop(self) -> None:
        assert self._acceptor is not None
        self._acceptor.close()
        await self._acceptor.wait_closed()
        for connection in self.connections:
            connection.abort()
        for connection in self.connections:
            await connection.wait_closed()
        self.connections.clear()

    async def __aexit__(self, *_: object) -> None:
        await self.drop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    def tunnel(self, jump: Tunnel | None = None) -> Tunnel:
        return Tunnel(
            host="127.0.0.1",
            port=self.port,
            user="someone",
            identity_files=(str(self.folder / "id"),),
            known_hosts=str(self.folder / "known_hosts"),
            host_key_alias="node-a",
            jump=jump,
        )


@dataclass
class _Versions:
    last: int = 0


_versions = _Versions()


def put(lab: Lab, up: Upstream, tunnel: Tunnel | None) -> None:
    """A model behind the node."""
    _versions.last += 1
    target = Target(id="m-1", host="127.0.0.1", port=up.port, tunnel="a")
    tunnels = {"a": tunnel} if tunnel is not None else {}
    model = RouteModel(name="m", targets=(target,), state="ready")
    lab.gateway.set_table(Table(version=_versions.last, models=(model,), tunnels=tunnels))


async def test_requests_and_streams_go_through_the_tunnel(tmp_path: Path) -> None:
    async with Node(tmp_path) as node, Lab() as lab:
        up = await lab.upstream(completes)
        put(lab, up, node.tunnel())
        client = await lab.client()
        assert (await client.ask(chat())).status == 200
        streamed = await client.ask(chat(stream=True))
        assert streamed.body.endswith(b"data: [DONE]\n\n")
        # one connection to the node, one channel, kept alive between requests
        assert (len(node.connections), node.channels, up.connections) == (1, 1, 1)
        big = b'{"model":"m","x":"' + b"x" * 5_000_000 + b'"}'
        assert (await client.ask(big)).status == 200
        assert up.received[-1].body == big


async def test_a_jump_host_is_gone_through(tmp_path: Path) -> None:
    (tmp_path / "jump").mkdir()
    async with Node(tmp_path) as node, Node(tmp_path / "jump") as jump, Lab() as lab:
        up = await lab.upstream(completes)
        put(lab, up, node.tunnel(jump.tunnel()))
        assert (await (await lab.client()).ask(chat())).status == 200
        assert (len(jump.connections), jump.channels) == (1, 1)


async def test_a_client_that_leaves_stops_the_replica_behind_the_tunnel(tmp_path: Path) -> None:
    async def streams(conversation: Conversation, request: Received) -> bool:
        await conversation.send(STREAM_HEAD)
        await conversation.chunk(event("one"))
        return await hangs(conversation, request)

    async with Node(tmp_path) as node, Lab() as lab:
        up = await lab.upstream(streams)
        put(lab, up, node.tunnel())
        client = await lab.client()
        await client.post(chat(stream=True))
        await client.head()
        await client.leave()
        await until(lambda: up.open == 0)


async def test_a_slow_reader_holds_the_replica_back_through_the_tunnel(tmp_path: Path) -> None:
    sent = 0

    async def floods(conversation: Conversation, request: Received) -> bool:
        nonlocal sent
        await conversation.send(STREAM_HEAD)
        for _ in range(1000):
            await conversation.chunk(b"x" * 65536)
            sent += 65536
        await conversation.send(b"0\r\n\r\n")
        return True

    async with Node(tmp_path) as node, Lab() as lab:
        up = await lab.upstream(floods)
        put(lab, up, node.tunnel())
        client = await lab.client()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.post(chat(stream=True))
        await until(lambda: [c for c in lab.gateway.clients if c.write_paused])
        stalled = -1
        while stalled != sent:
            stalled = sent
            # the subject: nothing more may come while nobody reads
            await asyncio.sleep(0.3)
        assert sent < 40_000_000
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        await client.head()
        total = 0
        while piece := await client.chunk():
            total += len(piece)
        assert total == 1000 * 65536


async def test_a_lost_connection_cuts_its_streams_and_comes_back(tmp_path: Path) -> None:
    async def streams(conversation: Conversation, request: Received) -> bool:
        if not request.json()["stream"]:
            return await completes(conversation, request)
        await conversation.send(STREAM_HEAD)
        await conversation.chunk(event("one"))
        return await hangs(conversation, request)

    async with Node(tmp_path) as node, Lab(GatewaySettings(avoid_s=0)) as lab:
        up = await lab.upstream(streams)
        put(lab, up, node.tunnel())
        client = await lab.client()
        await client.post(chat(stream=True))
        await client.head()
        assert await client.chunk() == event("one")
        await node.drop()
        assert b"is incomplete" in await client.chunk()
        other = await lab.client()
        failed = await other.ask(chat())
        assert failed.status == 502
        await node.listen()
        async with asyncio.timeout(20):
            while (await other.ask(chat())).status != 200:
                await asyncio.sleep(0.02)


async def test_a_changed_host_key_is_never_accepted(tmp_path: Path) -> None:
    async with Node(tmp_path) as node, Lab() as lab:
        node.know(asyncssh.generate_private_key("ssh-ed25519"))
        up = await lab.upstream(completes)
        put(lab, up, node.tunnel())
        response = await (await lab.client()).ask(chat())
        assert response.status == 502
        assert up.received == []


async def test_a_node_that_forbids_forwarding_is_named(tmp_path: Path) -> None:
    async with Node(tmp_path) as node, Lab() as lab:
        node.forwards = False
        up = await lab.upstream(completes)
        put(lab, up, node.tunnel())
        response = await (await lab.client()).ask(chat())
        assert response.status == 502
        assert "is not reached from node a" in str(response.error["message"])


async def test_a_target_behind_a_node_without_a_tunnel_is_an_error(tmp_path: Path) -> None:
    async with Lab() as lab:
        put(lab, await lab.upstream(completes), None)
        response = await (await lab.client()).ask(chat())
        assert response.status == 502
        assert "node a" in str(response.error["message"])


async def test_a_tunnel_that_leaves_the_table_is_closed(tmp_path: Path) -> None:
    async with Node(tmp_path) as node, Lab() as lab:
        up = await lab.upstream(completes)
        put(lab, up, node.tunnel())
        assert (await (await lab.client()).ask(chat())).status == 200
        lab.table()
        await until(lambda: up.open == 0)
        assert lab.gateway.tunnels._links == {}
