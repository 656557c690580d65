"""Two controllers and one node behind a real SSH server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llmgw_core.errors import NodeRefused, RefusedBecause
from llmgw_core.nodes.facts import NodeState
from llmgw_core.nodes.fleet import KNOWN_HOSTS, Fleet
from llmgw_core.nodes.instance import InstanceSpec, InstanceState
from llmgw_core.nodes.node import Node
from tests.nodes.sshd import Sshd, make_sshd, running
from tests.nodes.test_fleet import in_state, kept, remote, until


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Sshd]:
    found = make_sshd(tmp_path / "server")
    found.in_home()
    async with running(found):
        yield found


def fleet_at(state: Path, server: Sshd, cluster: str) -> Fleet:
    """A controller with this state directory, which trusts the node."""
    state.mkdir(exist_ok=True)
    (state / KNOWN_HOSTS).write_text(server.host_key_line("n1"))
    return Fleet(
        (remote("n1", server),),
        state_dir=state,
        cluster=cluster,
        rng=lambda: 0.0,
        ssh_config=state / "none" / "config",
        agent_path=None,
        lease_retry_s=0.2,
    )


def of(fleet: Fleet) -> Node:
    return fleet.nodes["n1"]


def lease_of(server: Sshd) -> Path:
    return server.home / ".local" / "state" / "llmgw" / "lease"


def make_old(server: Sshd) -> None:
    """As if the lease was not renewed since just after the node's start."""
    for stamp in lease_of(server).parent.glob("lease.at.*"):
        boot = stamp.read_text().split()[0]
        stamp.write_text(f"{boot} 1\n")


async def test_a_second_controller_is_refused_and_led_in_when_the_first_ends(
    tmp_path: Path, server: Sshd
) -> None:
    first, second = (fleet_at(tmp_path / name, server, name) for name in ("east", "west"))
    async with kept(second):
        async with kept(first):
            await until(lambda: of(first).status.state is not NodeState.CONNECTING)
        # whoever came first above: the first has given it back, where it had it
        await in_state(of(second), NodeState.READY)
        async with kept(first):
            await in_state(of(first), NodeState.REFUSED)
            status = of(first).status
            assert status.holder is not None
            assert "(cluster west, pid " in status.holder
            assert status.holder in status.reason
            assert "llmgw run node takeover n1" in status.reason
            assert of(first).instances is None
            assert of(first).facts is not None
            for act in (
                of(first).start_instance(InstanceSpec("a", "t", ("sleep", "600"))),
                of(first).stop_instance("a", grace_s=1.0),
                of(first).remove_weights("m/v"),
                of(first).refresh_instances(),
                of(first).provision("llamacpp", progress=lambda _: None),
                of(first).probe(),
            ):
                with pytest.raises(NodeRefused, match="cluster west") as refused:
                    await act
                assert refused.value.because is RefusedBecause.LEASE
            assert of(second).status.state is NodeState.READY
            await until(lambda: "renewed its lease" in of(first).status.reason)
    assert not lease_of(server).exists()


async def test_a_lease_that_grew_old_lets_the_second_in_and_the_instances_live(
    tmp_path: Path, server: Sshd
) -> None:
    first, second = (fleet_at(tmp_path / name, server, name) for name in ("east", "west"))
    async with kept(first):
        await in_state(of(first), NodeState.READY)
        await of(first).start_instance(InstanceSpec("a", "t", ("sleep", "600")))
        left = {path: path.read_bytes() for path in lease_of(server).parent.glob("lease*")}
    for path, data in left.items():  # a crash gives nothing back
        path.write_bytes(data)
    async with kept(second):
        await in_state(of(second), NodeState.REFUSED)
        make_old(server)
        await in_state(of(second), NodeState.READY)
        assert of(second).status.holder is None
        instances = of(second).instances
        assert instances is not None
        assert instances["a"].state is InstanceState.RUNNING
        await of(second).stop_instance("a", grace_s=5.0)


async def test_a_takeover_stops_the_first_and_can_be_taken_back(
    tmp_path: Path, server: Sshd
) -> None:
    first, second = (fleet_at(tmp_path / name, server, name) for name in ("east", "west"))
    async with kept(first):
        await in_state(of(first), NodeState.READY)
        assert await of(first).takeover() is None
        await of(first).start_instance(InstanceSpec("a", "t", ("sleep", "600")))
        async with kept(second):
            await in_state(of(second), NodeState.REFUSED)
            was = await of(second).takeover()
            assert was is not None
            assert was.cluster == "east"
            assert of(second).status.state is NodeState.READY
            assert set(of(second).instances or ()) == {"a"}
            await in_state(of(first), NodeState.REFUSED)
            assert "was taken over by another controller" in of(first).status.reason
            assert of(first).instances is None
            with pytest.raises(NodeRefused, match="cluster west"):
                await of(first).stop_instance("a", grace_s=1.0)
            was = await of(first).takeover()
            assert was is not None
            assert was.cluster == "west"
            assert of(first).status.state is NodeState.READY
            await in_state(of(second), NodeState.REFUSED)
            await of(first).stop_instance("a", grace_s=5.0)


async def test_a_controller_that_was_cut_off_finds_the_node_led_by_another(
    tmp_path: Path, server: Sshd
) -> None:
    first = fleet_at(tmp_path / "east", server, "east")
    async with kept(first):
        await in_state(of(first), NodeState.READY)
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        lease_of(server).with_name("lease.at.other").write_text(f"{boot} {uptime * 100:.0f}\n")
        server.kill_sessions()
        lease_of(server).write_text("other token west laptop bob 22 0\n")
        await in_state(of(first), NodeState.REFUSED)
        assert of(first).status.holder == "bob on laptop (cluster west, pid 22)"
        make_old(server)
        await in_state(of(first), NodeState.READY)


@pytest.mark.parametrize("later", range(4))
async def test_a_fleet_that_is_ended_while_its_links_break_ends(
    tmp_path: Path, server: Sshd, later: int
) -> None:
    first = fleet_at(tmp_path / "east", server, "east")
    async with asyncio.timeout(30), kept(first):
        await in_state(of(first), NodeState.READY)
        server.kill_sessions()
        for _ in range(later):
            await asyncio.sleep(0)


async def test_the_same_state_directory_is_the_same_controller(
    tmp_path: Path, server: Sshd
) -> None:
    console, daemon = (fleet_at(tmp_path / "one", server, "one") for _ in range(2))
    async with kept(daemon):
        async with kept(console):
            await in_state(of(console), NodeState.READY)
            await in_state(of(daemon), NodeState.READY)
        # what the console gave back was not the daemon's
        await of(daemon).start_instance(InstanceSpec("a", "t", ("sleep", "600")))
        await of(daemon).stop_instance("a", grace_s=5.0)
