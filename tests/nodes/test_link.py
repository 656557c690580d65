"""Links against a real OpenSSH server: host keys, logins, jump hosts, tunnels, loss."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from llmgw_core.config import NodeConfig
from llmgw_core.errors import NodeLost, NodeRefused, RefusedBecause
from llmgw_core.nodes import dial
from llmgw_core.nodes.dial import Dialer
from llmgw_core.nodes.host_keys import HostKeyStore
from llmgw_core.nodes.link import Link, linked
from llmgw_core.nodes.route import route_to
from llmgw_core.nodes.ssh_config import Home
from llmgw_core.nodes.trouble import HostKeyRefused
from llmgw_core.nodes.tunnel import SocketFolder
from tests.nodes.sshd import Sshd, make_sshd, running


class World:
    """One controller's side: a home, a state directory and what follows from them."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "me"
        self.ssh = self.home / ".ssh"
        self.ssh.mkdir(parents=True)
        self.config = self.ssh / "config"
        self.store = HostKeyStore(folder / "state" / "known_hosts")
        self.reached = HostKeyStore(folder / "state" / "reached")
        self.sockets = SocketFolder()
        self.nodes: dict[str, NodeConfig] = {}
        self.agent: str | None = None

    @property
    def dialer(self) -> Dialer:
        home = Home(self.home, self.config, self.agent)
        return Dialer(home, self.store, self.reached)

    def node(self, name: str, server: Sshd, **more: object) -> NodeConfig:
        fields: dict[str, object] = {
            "host": "127.0.0.1",
            "port": server.port,
            "user": server.user,
            "identity_file": str(server.client_key),
            **more,
        }
        node = NodeConfig(name, **fields)  # type: ignore[arg-type]
        self.nodes[name] = node
        return node

    def knows(self, alias: str, server: Sshd) -> None:
        self.store.add(alias, asyncssh.read_private_key(str(server.folder / "host")))

    @asynccontextmanager
    async def linked(self, name: str, dialer: Dialer | None = None) -> AsyncIterator[Link]:
        dialer = dialer or self.dialer
        hop = await route_to(self.nodes[name], self.nodes, dialer.home)
        async with linked(dialer, hop, name, self.sockets) as link:
            yield link


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Sshd]:
    async with running(make_sshd(tmp_path / "server")) as found:
        yield found


async def refusal(world: World, name: str) -> NodeRefused:
    with pytest.raises(NodeRefused) as caught:
        async with world.linked(name):
            pass
    return caught.value


async def loss(world: World, name: str) -> str:
    with pytest.raises(NodeLost) as caught:
        async with world.linked(name):
            pass
    return str(caught.value)


async def test_an_unknown_key_is_shown_and_once_trusted_it_lets_in(
    world: World, server: Sshd
) -> None:
    world.node("n1", server)
    refused = await refusal(world, "n1")
    assert isinstance(refused, HostKeyRefused)
    assert refused.because is RefusedBecause.HOST_KEY_UNKNOWN
    shown = asyncssh.read_private_key(str(server.folder / "host")).get_fingerprint()
    assert refused.fingerprint == shown
    assert shown in str(refused)
    assert refused.old_fingerprint is None
    world.store.add("n1", refused.key)
    async with world.linked("n1") as link:
        assert (await link.exec.script("echo in")).stdout == b"in\n"
        rtt = await link.rtt()
        assert rtt is not None
        assert 0 < rtt < 10


async def test_a_changed_key_refuses_and_names_both(world: World, server: Sshd) -> None:
    world.node("n1", server)
    other = asyncssh.generate_private_key("ssh-ed25519")
    world.store.add("n1", other)
    refused = await refusal(world, "n1")
    assert isinstance(refused, HostKeyRefused)
    assert refused.because is RefusedBecause.HOST_KEY_CHANGED
    assert refused.old_fingerprint == other.get_fingerprint()
    assert refused.fingerprint != refused.old_fingerprint
    assert other.get_fingerprint() in str(refused)


async def test_a_key_of_another_kind_is_a_changed_key(world: World, server: Sshd) -> None:
    world.node("n1", server)
    other = asyncssh.generate_private_key("ecdsa-sha2-nistp256")
    world.store.add("n1", other)
    refused = await refusal(world, "n1")
    assert isinstance(refused, HostKeyRefused)
    assert refused.because is RefusedBecause.HOST_KEY_CHANGED
    assert refused.fingerprint.startswith("SHA256:")
    assert refused.fingerprint != other.get_fingerprint()


async def test_the_persons_known_hosts_count_and_our_own_outrank_them(
    world: World, server: Sshd
) -> None:
    world.node("n1", server)
    known = world.ssh / "known_hosts"
    place = f"[127.0.0.1]:{server.port}"
    known.write_text("this line is broken\n" + server.host_key_line(place))
    async with world.linked("n1"):
        pass
    # what was reached is written down for the gateway's own connections
    assert world.reached.lookup("n1", host="", port=22).host_keys
    world.store.add("n1", asyncssh.generate_private_key("ssh-ed25519"))
    assert (await refusal(world, "n1")).because is RefusedBecause.HOST_KEY_CHANGED


async def test_a_revoked_key_is_never_accepted(world: World, server: Sshd) -> None:
    world.node("n1", server)
    world.knows("n1", server)
    place = f"[127.0.0.1]:{server.port}"
    (world.ssh / "known_hosts").write_text("@revoked " + server.host_key_line(place))
    assert "revoked" in str(await refusal(world, "n1"))


async def test_a_host_certificate_is_accepted_from_a_known_authority(
    world: World, tmp_path: Path
) -> None:
    server = make_sshd(tmp_path / "server")
    authority = asyncssh.generate_private_key("ssh-ed25519")
    host = asyncssh.read_private_key(str(server.folder / "host"))
    cert = authority.generate_host_certificate(host, "host", principals=["127.0.0.1"])
    (server.folder / "host-cert.pub").write_bytes(cert.export_certificate())
    server.options["HostCertificate"] = str(server.folder / "host-cert.pub")
    async with running(server):
        world.node("n1", server)
        assert (await refusal(world, "n1")).because is RefusedBecause.HOST_KEY_UNKNOWN
        line = f"@cert-authority * {authority.export_public_key().decode()}"
        (world.ssh / "known_hosts").write_text(line)
        async with world.linked("n1"):
            pass


async def test_a_wrong_key_says_which_was_tried(world: World, server: Sshd, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(asyncssh.generate_private_key("ssh-ed25519").export_private_key())
    world.node("n1", server, identity_file=str(path))
    world.knows("n1", server)
    refused = await refusal(world, "n1")
    assert refused.because is RefusedBecause.AUTH
    assert str(path) in str(refused)
    assert "authorized_keys" in str(refused)


async def test_too_many_keys_are_told_apart(world: World, server: Sshd) -> None:
    world.node("n1", server, identity_file=None)
    world.knows("n1", server)
    lines = []
    for number in range(8):
        path = world.ssh / f"key{number}"
        path.write_bytes(asyncssh.generate_private_key("ssh-ed25519").export_private_key())
        lines.append(f"IdentityFile {path}")
    world.config.write_text("\n".join(lines))
    refused = await refusal(world, "n1")
    assert refused.because is RefusedBecause.AUTH
    assert "too many keys" in str(refused)
    assert "identity_file" in str(refused)


async def test_a_key_with_a_passphrase_is_explained(
    world: World, server: Sshd, tmp_path: Path
) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    path = tmp_path / "locked"
    path.write_bytes(key.export_private_key(passphrase="secret"))
    world.node("n1", server, identity_file=str(path))
    world.knows("n1", server)
    message = str(await refusal(world, "n1"))
    assert f"{path} (it has a passphrase" in message
    assert "ssh-add" in message


async def test_a_key_file_that_is_not_there(world: World, server: Sshd, tmp_path: Path) -> None:
    world.node("n1", server, identity_file=str(tmp_path / "none"))
    world.knows("n1", server)
    assert "there is no such file" in str(await refusal(world, "n1"))


async def test_the_agent_signs_for_a_locked_key(world: World, server: Sshd, tmp_path: Path) -> None:
    sock = tmp_path / "agent"
    agent = await asyncio.create_subprocess_exec(
        "ssh-agent", "-D", "-a", str(sock), stdout=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(10):
            while not sock.exists():
                await asyncio.sleep(0.02)
        client = await asyncssh.connect_agent(str(sock))
        await client.add_keys([str(server.client_key)])
        client.close()
        await client.wait_closed()
        key = asyncssh.read_private_key(str(server.client_key))
        server.client_key.write_bytes(key.export_private_key(passphrase="secret"))
        world.agent = str(sock)
        world.knows("n1", server)
        world.node("n1", server)
        async with world.linked("n1") as link:
            assert link.is_up
        world.node("n1", server, identity_file=None)
        async with world.linked("n1") as link:
            assert link.is_up
    finally:
        agent.terminate()
        await agent.wait()


async def test_a_stale_agent_is_said_and_passed_over(world: World, server: Sshd) -> None:
    world.agent = "/nonexistent/agent"
    world.node("n1", server, identity_file=None)
    world.knows("n1", server)
    assert "/nonexistent/agent" in str(await refusal(world, "n1"))


async def test_unreachable_hosts_are_told_apart(world: World, server: Sshd) -> None:
    world.node("gone", server)
    await server.stop()
    message = await loss(world, "gone")
    assert f"127.0.0.1 port {server.port}" in message
    assert "refuses connections" in message
    world.nodes["odd"] = NodeConfig("odd", host="no-such-host.invalid")
    assert "no name server knows" in await loss(world, "odd")


async def test_a_silent_server_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dial, "CONNECT_TIMEOUT_S", 0.3)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        world.nodes["mute"] = NodeConfig("mute", host="127.0.0.1", port=port)
        assert "does not answer" in await loss(world, "mute")


async def test_the_ssh_configuration_leads_there(world: World, server: Sshd) -> None:
    world.config.write_text(
        f"Host alias\n HostName 127.0.0.1\n Port {server.port}\n User {server.user}\n"
        f" IdentityFile {server.client_key}\n IdentityFile ~/.ssh/missing\n HostKeyAlias box\n"
        " RemoteCommand echo never\n RequestTTY yes\n"
    )
    (world.ssh / "known_hosts").write_text(server.host_key_line("box"))
    world.nodes["n1"] = NodeConfig("n1", host="alias")
    async with world.linked("n1") as link:
        assert (await link.exec.script("echo in; [ -t 1 ] && echo tty")).stdout == b"in\n"


async def test_a_configuration_that_only_openssh_reads(world: World, server: Sshd) -> None:
    world.config.write_text(
        f"Host alias\n HostName 127.0.0.1 # the box\n Port {server.port}\n User {server.user}\n"
        f" IdentityFile {server.client_key}\n"
    )
    world.knows("n1", server)
    world.nodes["n1"] = NodeConfig("n1", host="alias")
    async with world.linked("n1") as link:
        assert link.is_up


async def test_jumps_are_shared_and_strict(world: World, server: Sshd, tmp_path: Path) -> None:
    bastion = make_sshd(tmp_path / "bastion")
    async with running(bastion):
        world.node("bastion", bastion)
        world.node("n1", server, jump="bastion")
        world.node("n2", server, jump="bastion")
        world.knows("n1", server)
        world.knows("n2", server)
        refused = await refusal(world, "n1")
        assert isinstance(refused, HostKeyRefused)
        assert refused.hop.alias == "bastion"
        assert "jump host bastion" in str(refused)
        world.knows("bastion", bastion)
        dialer = world.dialer
        async with world.linked("n1", dialer) as one, world.linked("n2", dialer) as two:
            assert (await one.exec.script("echo 1")).stdout == b"1\n"
            assert (await two.exec.script("echo 2")).stdout == b"2\n"
            logins = [line for line in bastion.log().splitlines() if "Accepted publickey" in line]
            assert len(logins) == 1
            bastion.kill_sessions()
            async with asyncio.timeout(10):
                assert "gone" in str(await one.lost())
                await two.lost()
        async with world.linked("n1", dialer) as again:
            assert again.is_up


async def test_a_jump_by_address_and_one_of_the_ssh_configuration(
    world: World, server: Sshd, tmp_path: Path
) -> None:
    bastion = make_sshd(tmp_path / "bastion")
    async with running(bastion):
        world.config.write_text(
            f"Host far\n ProxyJump {bastion.user}@127.0.0.1:{bastion.port}\n HostName 127.0.0.1\n"
            f" Port {server.port}\n"
            f"Host *\n IdentityFile {bastion.client_key}\n IdentityFile {server.client_key}\n"
        )
        known = world.ssh / "known_hosts"
        known.write_text(bastion.host_key_line(f"[127.0.0.1]:{bastion.port}"))
        world.knows("n1", server)
        world.knows("n2", server)
        world.node("n1", server, jump=f"{bastion.user}@127.0.0.1:{bastion.port}")
        world.nodes["n2"] = NodeConfig("n2", host="far", user=server.user)
        for name in ("n1", "n2"):
            async with world.linked(name) as link:
                assert link.is_up
        assert bastion.log().count("Accepted publickey") == 2


async def test_a_jump_that_is_down_is_named(world: World, server: Sshd, tmp_path: Path) -> None:
    bastion = make_sshd(tmp_path / "bastion")
    await bastion.start()
    world.node("bastion", bastion)
    world.node("n1", server, jump="bastion")
    world.node("n2", server, jump="bastion", port=1)
    world.knows("bastion", bastion)
    message = await loss(world, "n2")
    assert "n2" in message
    assert "through jump host bastion" in message
    await bastion.stop()
    message = await loss(world, "n1")
    assert "jump host bastion" in message
    assert "refuses connections" in message


async def test_jumps_in_a_circle(world: World, server: Sshd) -> None:
    world.node("a", server, jump="b")
    world.node("b", server, jump="a")
    refused = await refusal(world, "a")
    assert refused.because is RefusedBecause.CONFIG
    assert "circle" in str(refused)


async def test_a_proxy_command_is_run(world: World, server: Sshd) -> None:
    world.config.write_text(
        f"Host n1\n ProxyCommand /bin/bash -c 'exec 3<>/dev/tcp/127.0.0.1/{server.port}; "
        f"cat <&3 & exec cat >&3'\n User {server.user}\n IdentityFile {server.client_key}\n"
    )
    world.knows("n1", server)
    world.nodes["n1"] = NodeConfig("n1")
    async with world.linked("n1") as link:
        assert (await link.exec.script("echo in")).stdout == b"in\n"


async def test_a_tunnel_reaches_a_loopback_server(world: World, server: Sshd) -> None:
    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nhello")
        await writer.drain()
        writer.close()

    world.node("n1", server)
    world.knows("n1", server)
    listener = await asyncio.start_server(hello, "127.0.0.1", 0)
    async with listener, world.linked("n1") as link:
        port = listener.sockets[0].getsockname()[1]
        path, same = await asyncio.gather(
            link.forwards.socket_to(port), link.forwards.socket_to(port)
        )
        assert path == same
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert len(str(path)) < 100
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert (await reader.read()).endswith(b"hello")
        writer.close()
    assert not path.exists()
    world.sockets.remove()
    assert not path.parent.exists()


async def test_a_server_that_forbids_tunnels_says_so(world: World, tmp_path: Path) -> None:
    async with running(make_sshd(tmp_path / "server", AllowTcpForwarding="no")) as server:
        world.node("n1", server)
        world.knows("n1", server)
        async with world.linked("n1") as link:
            with pytest.raises(NodeRefused, match="AllowTcpForwarding"):
                await link.forwards.socket_to(1)
            assert link.is_up


async def test_a_frozen_server_is_noticed_within_ten_seconds(world: World, server: Sshd) -> None:
    world.node("n1", server)
    world.knows("n1", server)
    async with world.linked("n1") as link:
        frozen = server.sessions()
        start = time.monotonic()
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(60):
                error = await link.lost()
        finally:
            for pid in frozen:  # one may have been on its way out before
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert "no longer answers" in str(error)
        # 9 s by design; the rest is for a machine that is busy
        assert time.monotonic() - start < 20


async def test_nothing_of_the_library_reaches_stderr(
    world: World, server: Sshd, capfd: pytest.CaptureFixture[str]
) -> None:
    world.agent = "/nonexistent/agent"
    world.node("n1", server)
    await refusal(world, "n1")
    world.knows("n1", server)
    async with world.linked("n1"):
        pass
    assert capfd.readouterr().err == ""
