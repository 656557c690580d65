"""llmgw's nodes against real hosts and what befalls them, with the sentences that a person sees."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from llmgw_core.errors import NodeLost, NodeRefused, Refused, RefusedBecause, RemoteFailed
from llmgw_core.nodes.facts import NodeState
from llmgw_core.nodes.instance import InstanceState
from tests.lab import faults, hardware
from tests.lab.fleets import fleet_over, in_state, instance, state_of, until
from tests.lab.hosts import USER, Host

pytestmark = pytest.mark.lab

NOTICED_S = 10.0
"""DESIGN: within so long a cut link is noticed."""


async def test_all_connect_once_their_keys_are_trusted(hosts: list[Host], tmp_path: Path) -> None:
    async with fleet_over(hosts, tmp_path, trusted=False) as nodes:
        for host in hosts:
            node = nodes[host.name]
            await in_state(node, NodeState.REFUSED)
            assert node.status.fingerprint == host.fingerprint
            assert await node.trust(host.fingerprint) == host.fingerprint
        for host in hosts:
            node = nodes[host.name]
            await in_state(node, NodeState.READY)
            assert node.facts is not None
            assert node.facts.hostname == host.name
            assert node.facts.home == f"/home/{USER}"
            assert (await node.endpoint(18000)).host == host.address
        boots = {node.facts.boot_id for node in nodes.values() if node.facts is not None}
        assert len(boots) == len(hosts)
        await asyncio.gather(*(node.start_instance(instance()) for node in nodes.values()))
        for host in hosts:
            assert [p for p in host.processes() if p.words == ("sleep", "600")]


async def test_silence_is_noticed_and_each_comes_back(hosts: list[Host], tmp_path: Path) -> None:
    """One host's cable, one's processes, one's power; the fourth has nothing to do with it."""
    cable, ice, power, well = hosts
    async with fleet_over(hosts, tmp_path) as nodes:
        pids = {}
        for node in nodes.values():
            pids[node.config.name] = (await node.start_instance(instance())).pid
        faults.cut(cable)
        faults.freeze(ice)
        await asyncio.to_thread(faults.lose_power, power)
        silent = [nodes[host.name] for host in (cable, ice, power)]
        took = await asyncio.gather(*(in_state(node, NodeState.UNREACHABLE) for node in silent))
        assert max(took) < NOTICED_S
        for node in silent:
            assert "it no longer answers" in node.status.reason
            assert node.instances is None
            with pytest.raises(NodeLost, match="is not connected: The connection to n"):
                await node.refresh_instances()
        faults.heal(cable)
        faults.thaw(ice)
        await asyncio.to_thread(faults.start, power)
        for host in (cable, ice):
            node = nodes[host.name]
            await in_state(node, NodeState.READY)
            assert node.instances is not None
            assert (state_of(node), node.instances["i"].pid) == (
                InstanceState.RUNNING,
                pids[host.name],
            )
        await in_state(nodes[power.name], NodeState.READY)
        assert state_of(nodes[power.name]) is InstanceState.REBOOTED
        assert nodes[well.name].status.state is NodeState.READY


async def test_a_slow_link_is_no_lost_one(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    faults.slow(host, 150, loss=0.02)
    async with fleet_over([host], tmp_path) as nodes:
        node = nodes[host.name]
        await until(lambda: node.status.rtt_s is not None, "a round trip is measured")
        assert (node.status.rtt_s or 0.0) >= 0.3
        started = await node.start_instance(instance())
        assert started.state is InstanceState.RUNNING
        assert node.status.state is NodeState.READY


async def test_a_reboot_is_told_from_a_cut(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    async with fleet_over([host], tmp_path) as nodes:
        node = nodes[host.name]
        assert node.facts is not None
        boot = node.facts.boot_id
        await node.start_instance(instance())
        await asyncio.to_thread(faults.reboot, host)
        await until(
            lambda: node.facts is not None and node.facts.boot_id != boot, "a new boot is seen"
        )
        await in_state(node, NodeState.READY)
        assert state_of(node) is InstanceState.REBOOTED
        again = await node.start_instance(instance(token="t2"))
        assert again.state is InstanceState.RUNNING
        result = await node.stop_instance("i", grace_s=5)
        assert result.left == ()


async def test_a_host_without_its_ssh_server(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    async with fleet_over([host], tmp_path) as nodes:
        node = nodes[host.name]
        started = await node.start_instance(instance())
        faults.stop_sshd(host)
        assert (await node.refresh_instances())["i"].pid == started.pid  # the link stands
        faults.stop_sshd(host, sessions=True)
        await until(lambda: "refuses connections" in node.status.reason, "it refuses")
        assert node.status.reason == (
            f"{host.name} ({host.address} port 22) refuses connections; "
            "is an SSH server running there?"
        )
        faults.start_sshd(host)
        await in_state(node, NodeState.READY)
        assert (await node.refresh_instances())["i"].pid == started.pid


async def test_another_host_key_is_refused_until_a_person_decides(
    hosts: list[Host], tmp_path: Path
) -> None:
    host = hosts[0]
    async with fleet_over([host], tmp_path) as nodes:
        node, old = nodes[host.name], host.fingerprint
        faults.rekey(host)
        await in_state(node, NodeState.REFUSED)
        assert node.status.reason == (
            f"{host.name} ({host.address} port 22) shows the host key {host.fingerprint}, "
            f"and not {old}; somebody may be in between; if the host was set up anew, "
            "trust this fingerprint by name"
        )
        with pytest.raises(Refused, match="another key"):
            await node.trust()
        await node.trust(host.fingerprint)
        await in_state(node, NodeState.READY)


async def test_a_key_that_no_longer_lets_us_in(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    faults.ban(host)
    async with fleet_over([host], tmp_path, trusted=False) as nodes:
        node = nodes[host.name]
        await in_state(node, NodeState.REFUSED)
        await node.trust(host.fingerprint)
        await until(lambda: "does not let" in node.status.reason, "it is said who is not let in")
        assert f"{host.name} ({host.address} port 22) does not let '{USER}' in" in (
            node.status.reason
        )
        assert "authorized_keys" in node.status.reason
        with pytest.raises(NodeRefused) as refused:
            await node.refresh_instances()
        assert refused.value.because is RefusedBecause.AUTH
        faults.unban(host)
        await node.probe()
        assert node.status.state is NodeState.READY


async def test_a_full_disk_is_said_and_harms_nothing(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    async with fleet_over([host], tmp_path) as nodes:
        node = nodes[host.name]
        first = await node.start_instance(instance("first"))
        faults.fill(host)
        with pytest.raises(RemoteFailed) as failed:
            await node.start_instance(instance("second"))
        assert "cannot start second: the node's disk is full" in str(failed.value)
        assert "free some space there" in str(failed.value)
        found = await node.refresh_instances()
        assert found["first"].pid == first.pid
        assert state_of(node, "second") is None
        result = await node.stop_instance("first", grace_s=5)
        assert not result.status.state.alive
        faults.unfill(host)
        assert (await node.start_instance(instance("second"))).state is InstanceState.RUNNING


async def test_a_start_needs_no_program_in_home_or_tmp(hosts: list[Host], tmp_path: Path) -> None:
    host = hosts[0]
    faults.noexec(host)
    async with fleet_over([host], tmp_path) as nodes:
        node = nodes[host.name]
        assert node.facts is not None
        assert node.facts.state_executable is False
        started = await node.start_instance(instance())
        assert started.state is InstanceState.RUNNING
        assert (await node.read_log("i")).data == b"hello\n"


async def test_hardware_is_what_the_host_says(hosts: list[Host], tmp_path: Path) -> None:
    host, broken = hosts[:2]
    hardware.gpu(host, "2xh100")
    hardware.gpu(broken, "broken")
    async with fleet_over([host, broken], tmp_path) as nodes:
        facts = nodes[host.name].facts
        assert facts is not None
        assert facts.gpus is not None
        assert [gpu.name for gpu in facts.gpus] == ["NVIDIA H100 80GB HBM3"] * 2
        assert all(gpu.healthy for gpu in facts.gpus)
        assert nodes[broken.name].status.state is NodeState.READY
