"""Replicas of a real model over several hosts: nothing is lost and nothing is doubled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llmgw_core.api.views import ReplicaView
from tests.e2e.cluster import model_file
from tests.lab import faults
from tests.lab.clusters import LabCluster, Witness, cluster_over, engines_on, model_toml
from tests.lab.hosts import Host

pytestmark = [pytest.mark.lab, pytest.mark.engine]


@pytest.fixture
async def cluster(hosts: list[Host], tmp_path: Path) -> AsyncIterator[LabCluster]:
    """Three hosts, and two replicas that are ready."""
    source = model_file()
    async with cluster_over(tmp_path, hosts[:3]) as made:
        await made.do("add", toml=model_toml(source, 2))
        await made.ready(2)
        yield made


async def two(cluster: LabCluster) -> tuple[ReplicaView, ReplicaView]:
    """Both replicas, on hosts of their own, each with the one engine that its host has."""
    one, other = await cluster.ready(2)
    assert one.nodes != other.nodes
    assert cluster.engines() == sorted((r.nodes[0], r.pid) for r in (one, other))
    return one, other


async def in_state(cluster: LabCluster, replica: ReplicaView, state: str) -> ReplicaView:
    """Wait until a replica is in this state."""
    snapshot = await cluster.until(
        lambda s: any(r.id == replica.id and r.state == state for r in s.replicas),
        f"{replica.id} is {state}",
    )
    return next(r for r in snapshot.replicas if r.id == replica.id)


def real(*replicas: ReplicaView) -> set[tuple[str, str, int | None]]:
    """Which processes these are: pids alone may be the same on two hosts."""
    return {(r.id, r.nodes[0], r.pid) for r in replicas}


async def test_a_host_that_is_cut_off(cluster: LabCluster) -> None:
    gone, stays = await two(cluster)
    host = cluster.hosts[gone.nodes[0]]
    async with Witness(cluster, await cluster.url()) as seen:
        faults.cut(host)
        unknown = await in_state(cluster, gone, "unknown")
        assert unknown.reason.startswith(f"node {host.name} is unreachable: ")
        assert "no longer answers" in unknown.reason
        assert len(engines_on(host)) == 1  # it serves nobody, and runs
        snapshot = await cluster.until(
            lambda s: sum(r.state == "ready" for r in s.replicas) == 2, "it is replaced"
        )
        (new,) = [r for r in snapshot.replicas if r.id not in (gone.id, stays.id)]
        assert new.nodes[0] not in (gone.nodes[0], stays.nodes[0])
        faults.heal(host)
        left = await two(cluster)
    assert real(*left) < real(gone, stays, new)
    assert seen.failures == []
    assert (seen.most, seen.most_on_one) == (3, 1)


async def test_a_short_cut_changes_nothing(cluster: LabCluster) -> None:
    gone, stays = await two(cluster)
    host = cluster.hosts[gone.nodes[0]]
    async with Witness(cluster, await cluster.url()) as seen:
        faults.cut(host)
        await in_state(cluster, gone, "unknown")
        faults.heal(host)
        again = await two(cluster)
    assert real(*again) == real(gone, stays)
    assert len(await cluster.told("replica.starting")) == 2
    assert seen.failures == []
    assert seen.most == 2


async def test_the_daemon_dies_while_a_host_is_cut_off(cluster: LabCluster) -> None:
    gone, stays = await two(cluster)
    host = cluster.hosts[gone.nodes[0]]
    async with Witness(cluster, await cluster.url()) as seen:
        faults.cut(host)
        await cluster.kill()
        await cluster.start()
        snapshot = await cluster.until(
            lambda s: sum(r.state == "ready" for r in s.replicas) == 2, "it is replaced"
        )
        assert real(stays) < real(*snapshot.replicas)
        faults.heal(host)
        await cluster.until(
            lambda s: any(n.name == host.name and n.state == "ready" for n in s.nodes), "it is back"
        )
        await cluster.until(lambda _: len(cluster.engines()) == 2, "two are left")
        await two(cluster)
    assert seen.failures == []
    assert (seen.most, seen.most_on_one) == (3, 1)


async def test_a_host_freezes(cluster: LabCluster) -> None:
    """Its kernel goes on taking connections and bytes that nobody reads."""
    gone, stays = await two(cluster)
    host = cluster.hosts[gone.nodes[0]]
    async with Witness(cluster, await cluster.url()) as seen:
        faults.freeze(host)
        await in_state(cluster, gone, "unknown")
        await cluster.until(
            lambda s: sum(r.state == "ready" for r in s.replicas) == 2, "it is replaced"
        )
        faults.thaw(host)
        left = await two(cluster)
    assert real(stays) & real(*left)
    assert seen.failures == []
    assert (seen.most, seen.most_on_one) == (3, 1)


async def test_an_engine_is_killed(cluster: LabCluster) -> None:
    dies, stays = await two(cluster)
    async with Witness(cluster, await cluster.url()) as seen:
        (engine,) = engines_on(cluster.hosts[dies.nodes[0]])
        engine.kill()
        failed = await in_state(cluster, dies, "failed")
        assert failed.exit_status == 137
        assert failed.retry_at is not None
        again = await two(cluster)
    assert real(*again) & real(dies, stays) == real(stays)
    assert seen.failures == []
    assert seen.most == 2


async def test_a_host_is_rebooted(cluster: LabCluster) -> None:
    dies, stays = await two(cluster)
    async with Witness(cluster, await cluster.url()) as seen:
        await asyncio.to_thread(faults.reboot, cluster.hosts[dies.nodes[0]])
        failed = await in_state(cluster, dies, "failed")
        assert failed.reason == "node was rebooted"
        again = await two(cluster)
    assert real(stays) < real(*again)
    assert seen.failures == []
    assert seen.most == 2
