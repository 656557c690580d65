"""A fleet end to end: states, trust, loss and return, changes of the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from llmgw_core.config import DataPath, NodeConfig, Reserve
from llmgw_core.errors import NodeLost, NodeRefused, Refused, RefusedBecause
from llmgw_core.nodes.api import FleetHandle, NodeHandle
from llmgw_core.nodes.facts import NodeState
from llmgw_core.nodes.fleet import Fleet
from llmgw_core.nodes.instance import InstanceSpec, InstanceState
from llmgw_core.nodes.local_server import LocalServer
from llmgw_core.nodes.node import Node
from tests.nodes.sshd import Sshd, make_sshd, running


def fleet_of(folder: Path, *nodes: NodeConfig, homes: dict[str, Path] | None = None) -> Fleet:
    return Fleet(
        nodes,
        state_dir=folder / "state",
        rng=lambda: 0.0,
        ssh_config=folder / "none" / "config",
        local_homes=homes,
        agent_path=None,
    )


@asynccontextmanager
async def kept(fleet: Fleet) -> AsyncIterator[Fleet]:
    task = asyncio.create_task(fleet.run())
    try:
        yield fleet
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def in_state(node: Node, state: NodeState, seconds: float = 30.0) -> None:
    try:
        await until(lambda: node.status.state is state, seconds)
    except TimeoutError:
        pytest.fail(f"{node.config.name} is {node.status}, not {state}")


def local(name: str, folder: Path) -> tuple[NodeConfig, Path]:
    home = folder / name
    home.mkdir(exist_ok=True)
    return NodeConfig(name, local=True), home


def remote(name: str, server: Sshd, **more: object) -> NodeConfig:
    return replace(
        NodeConfig(
            name,
            host="127.0.0.1",
            port=server.port,
            user=server.user,
            identity_file=str(server.client_key),
        ),
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Sshd]:
    found = make_sshd(tmp_path / "server")
    found.in_home()
    async with running(found):
        yield found


def test_the_real_classes_keep_the_protocols(tmp_path: Path) -> None:
    fleet: FleetHandle = fleet_of(tmp_path, NodeConfig("a", local=True))
    node: NodeHandle = fleet.nodes["a"]
    assert node.status.state is NodeState.CONNECTING
    assert (node.facts, node.sample, node.instances, node.instances_at) == (None,) * 4
    assert node.cpu_history == ()
    assert node.tunnel() is None


async def test_what_is_asked_of_a_node_that_is_not_connected(tmp_path: Path) -> None:
    node = fleet_of(tmp_path, NodeConfig("a", local=True)).nodes["a"]
    with pytest.raises(NodeLost, match="a is not connected yet"):
        await node.refresh_instances()
    with pytest.raises(NodeLost, match="not connected"):
        await anext(node.follow_log("x", offset=0))


async def test_a_local_node_is_ready_and_live(tmp_path: Path) -> None:
    config, home = local("here", tmp_path)
    fleet = fleet_of(tmp_path, config, homes={"here": home})
    told: list[str] = []
    fleet.on_change(told.append)

    def faulty(name: str) -> None:
        raise ValueError(name)

    fleet.on_change(faulty)
    async with kept(fleet):
        node = fleet.nodes["here"]
        await in_state(node, NodeState.READY)
        assert "here" in told
        facts = node.facts
        assert facts is not None
        assert facts.home == str(home)
        assert facts.cores_logical
        assert facts.state_dir is not None
        assert facts.state_dir.startswith(str(home))
        await until(lambda: node.sample is not None and node.instances == {})
        await until(lambda: node.status.rtt_s is not None)
        assert node.cpu_history
        assert (await node.endpoint(18000)).host == "127.0.0.1"
        assert await node.stat_file("/nonexistent") is None
        data = bytes(range(256)) * 4096 * 4
        (home / "m.gguf").write_bytes(data)
        assert await node.read_file("~/m.gguf", offset=3, length=len(data)) == data[3:]
        assert 18000 <= await node.free_port(frozenset({18000})) <= 18999
        assert (await node.probe()).boot_id == facts.boot_id
    assert node.sample is None


async def test_an_instance_lives_through_the_loss_of_the_link(tmp_path: Path) -> None:
    config, home = local("here", tmp_path)
    fleet = fleet_of(tmp_path, config, homes={"here": home})
    async with kept(fleet):
        node = fleet.nodes["here"]
        await in_state(node, NodeState.READY)
        spec = InstanceSpec(
            "i1",
            "t1",
            ("/bin/sh", "-c", "echo hello; exec sleep 600"),
            record={"model": "m"},
        )
        started = await node.start_instance(spec)
        assert started.state is InstanceState.RUNNING
        again = await node.start_instance(spec)
        assert again.pid == started.pid
        assert node.instances is not None
        assert node.instances["i1"].record == {"model": "m"}
        # the live stream knows it too, with a reading later than the start
        at = node.instances_at
        assert at is not None
        await until(lambda: (node.instances_at or 0) > at)
        assert node.instances["i1"].state is InstanceState.RUNNING
        assert node.instances["i1"].record == {"model": "m"}
    fleet = fleet_of(tmp_path, config, homes={"here": home})
    async with kept(fleet):
        node = fleet.nodes["here"]
        await in_state(node, NodeState.READY)
        assert node.instances is not None
        assert node.instances["i1"].pid == started.pid
        assert node.instances["i1"].record == {"model": "m"}
        assert (await node.read_log("i1")).data == b"hello\n"
        pieces = node.follow_log("i1", offset=0)
        assert await anext(pieces) == b"hello\n"
        await pieces.aclose()  # type: ignore[attr-defined]
        result = await node.stop_instance("i1", grace_s=5.0)
        assert result.left == ()
        assert not result.status.state.alive
        await node.forget_instance("i1")
        assert node.instances == {}
        assert await node.refresh_instances() == {}


async def test_two_local_nodes_are_two_machines(tmp_path: Path) -> None:
    (a, home_a), (b, home_b) = local("a", tmp_path), local("b", tmp_path)
    fleet = fleet_of(tmp_path, a, b, homes={"a": home_a, "b": home_b})
    async with kept(fleet):
        one, two = fleet.nodes.values()
        await in_state(one, NodeState.READY)
        await in_state(two, NodeState.READY)
        await one.start_instance(InstanceSpec("i1", "t1", ("/bin/sleep", "600")))
        assert set(await one.refresh_instances()) == {"i1"}
        assert await two.refresh_instances() == {}
        await one.stop_instance("i1", grace_s=5.0)


async def test_an_unknown_key_waits_for_trust_and_is_then_ready(
    tmp_path: Path, server: Sshd
) -> None:
    fleet = fleet_of(tmp_path, remote("n1", server))
    shown = asyncssh.read_private_key(str(server.folder / "host")).get_fingerprint()
    async with kept(fleet):
        node = fleet.nodes["n1"]
        await in_state(node, NodeState.REFUSED)
        status = node.status
        assert status.fingerprint == shown
        assert status.old_fingerprint is None
        assert shown in status.reason
        await until(lambda: node.status.retry_at is not None)
        assert (node.status.retry_at or 0) - status.since >= 50
        with pytest.raises(NodeRefused) as refused:
            await node.refresh_instances()
        assert refused.value.because is RefusedBecause.HOST_KEY_UNKNOWN
        with pytest.raises(Refused, match="not SHA256:wrong"):
            await node.trust("SHA256:wrong")
        assert await node.trust() == shown
        await in_state(node, NodeState.READY)
        assert node.status.fingerprint is None
        assert node.status.reason == ""
        assert await node.trust(shown) == shown


async def test_a_changed_key_needs_its_fingerprint_spelled_out(
    tmp_path: Path, server: Sshd
) -> None:
    fleet = fleet_of(tmp_path, remote("n1", server))
    async with kept(fleet):
        node = fleet.nodes["n1"]
        await in_state(node, NodeState.REFUSED)
        old = await node.trust()
        await in_state(node, NodeState.READY)
        await server.stop()
        new = server.new_host_key()
        await server.start()
        await in_state(node, NodeState.REFUSED)
        assert (node.status.fingerprint, node.status.old_fingerprint) == (new, old)
        with pytest.raises(Refused, match="another key"):
            await node.trust()
        with pytest.raises(Refused, match="not SHA256"):
            await node.trust(old)
        assert node.status.state is NodeState.REFUSED
        assert await node.trust(new) == new
        await in_state(node, NodeState.READY)


async def test_a_killed_session_is_noticed_and_made_anew(tmp_path: Path, server: Sshd) -> None:
    fleet = fleet_of(tmp_path, remote("n1", server))
    async with kept(fleet):
        node = fleet.nodes["n1"]
        await in_state(node, NodeState.REFUSED)
        await node.trust()
        await in_state(node, NodeState.READY)
        await until(lambda: node.sample is not None)
        facts = node.facts
        seen: list[tuple[NodeState, bool]] = []
        fleet.on_change(
            lambda _: seen.append((node.status.state, node.sample is None and not node.instances))
        )
        server.kill_sessions()
        await until(lambda: (NodeState.UNREACHABLE, True) in seen)
        assert node.facts is not None
        await in_state(node, NodeState.READY)
        assert node.facts == facts or node.facts.boot_id == facts.boot_id  # type: ignore[union-attr]
        await until(lambda: node.sample is not None)
        assert None in node.cpu_history


async def test_a_node_that_is_off_is_unreachable_until_it_is_back(
    tmp_path: Path, server: Sshd
) -> None:
    await server.stop()
    fleet = fleet_of(tmp_path, remote("n1", server))
    async with kept(fleet):
        node = fleet.nodes["n1"]
        await in_state(node, NodeState.UNREACHABLE)
        since = node.status.since
        assert "refuses connections" in node.status.reason
        with pytest.raises(NodeLost, match="refuses connections"):
            await node.probe()
        await until(lambda: node.status.retry_at is not None)
        assert node.status.since == since
        await server.start()
        await in_state(node, NodeState.REFUSED)
        await node.trust()
        await in_state(node, NodeState.READY)
        assert (await node.probe()).hostname


async def test_no_usable_shell(tmp_path: Path) -> None:
    server = make_sshd(tmp_path / "server", ForceCommand="echo go away; exit 1")
    async with running(server):
        fleet = fleet_of(tmp_path, remote("n1", server))
        async with kept(fleet):
            node = fleet.nodes["n1"]
            await in_state(node, NodeState.REFUSED)
            await node.trust()
            await until(lambda: "go away" in node.status.reason)
            assert node.status.state is NodeState.REFUSED


async def test_changes_leave_links_alone_that_they_do_not_touch(
    tmp_path: Path, server: Sshd
) -> None:
    (a, home_a), (b, home_b) = local("a", tmp_path), local("b", tmp_path)
    (c, home_c) = local("c", tmp_path)
    fleet = fleet_of(tmp_path, a, b, homes={"a": home_a, "b": home_b, "c": home_c})
    async with kept(fleet):
        one, two = fleet.nodes.values()
        await in_state(one, NodeState.READY)
        await in_state(two, NodeState.READY)
        since = one.status.since
        fleet.apply((c, replace(a, labels={"zone": "x"}, reserve=Reserve(1.0, 1.0))))
        assert list(fleet.nodes) == ["c", "a"]
        assert fleet.nodes["a"] is one
        assert one.config.labels == {"zone": "x"}
        await in_state(fleet.nodes["c"], NodeState.READY)
        assert one.status.since == since  # not connected anew
        await until(lambda: two.instances is None)
        with pytest.raises(NodeLost):
            await two.refresh_instances()
        fleet.apply((replace(a, state_dir=str(tmp_path / "elsewhere")),))
        changed = fleet.nodes["a"]
        assert changed is not one
        await in_state(changed, NodeState.READY)
        assert changed.facts is not None
        assert (changed.facts.state_dir or "").startswith(str(tmp_path / "elsewhere"))


async def test_jump_and_tunnel_through_a_fleet(tmp_path: Path, server: Sshd) -> None:
    async def hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await writer.drain()
        writer.close()

    bastion = make_sshd(tmp_path / "bastion")
    bastion.in_home()
    listener = await asyncio.start_server(hello, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with running(bastion), listener:
        fleet = fleet_of(
            tmp_path,
            remote("bastion", bastion),
            remote("n1", server, jump="bastion", data_path=DataPath.TUNNEL),
        )
        async with kept(fleet):
            gate, node = fleet.nodes.values()
            await in_state(node, NodeState.REFUSED)
            assert "jump host bastion" in node.status.reason
            assert node.tunnel() is None
            await node.trust()  # the bastion's key, which stands in the way
            await until(lambda: "n1 (" in node.status.reason)
            await node.trust()
            await in_state(node, NodeState.READY)
            await gate.probe()
            await in_state(gate, NodeState.READY)
            endpoint = await node.endpoint(port)
            assert endpoint.uds is not None
            reader, writer = await asyncio.open_unix_connection(endpoint.uds)
            assert await reader.read() == b"hello"
            writer.close()
            tunnel = node.tunnel()
            assert tunnel is not None
            assert tunnel.identity_files == (str(server.client_key),)
            assert tunnel.jump is not None
            assert tunnel.jump.port == bastion.port
            known = asyncssh.read_known_hosts(tunnel.known_hosts)
            for hop in (tunnel, tunnel.jump):
                assert asyncssh.match_known_hosts(known, hop.host_key_alias, "", hop.port)[0]
            assert (await gate.endpoint(port)).uds is None
        assert not Path(endpoint.uds).exists()


async def test_a_server_of_our_own_serves_as_a_second_machine(tmp_path: Path) -> None:
    home = tmp_path / "far"
    home.mkdir()
    async with LocalServer(home).running() as far:
        key = tmp_path / "key"
        far.write_client_key(key)
        fleet = fleet_of(
            tmp_path,
            NodeConfig("far", host="127.0.0.1", port=far.port, identity_file=str(key)),
        )
        async with kept(fleet):
            node = fleet.nodes["far"]
            await in_state(node, NodeState.REFUSED)
            await node.trust()
            await in_state(node, NodeState.READY)
            assert node.facts is not None
            assert node.facts.home == str(home)
