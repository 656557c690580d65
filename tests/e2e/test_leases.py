"""Two daemons and one node: one leads it, the other is told who, and may take over."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llmgw_core.errors import NotFound
from tests.e2e.cluster import Cluster, model_file, stream_chat
from tests.e2e.test_life import model_toml

pytestmark = pytest.mark.engine


@pytest.fixture
async def clusters(tmp_path: Path) -> AsyncIterator[tuple[Cluster, Cluster]]:
    model_file()
    node = (
        f'[[nodes]]\nname = "n1"\nlocal = true\nstate_dir = "{tmp_path}/node"\n'
        f'[nodes.engines]\nllamacpp = "{sys.executable}"\n'
    )
    made = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made.append(Cluster(tmp_path / name, node))
    try:
        yield made[0], made[1]
    finally:
        for cluster in reversed(made):
            if cluster.daemon is not None:
                await cluster.end()


def make_old(folder: Path) -> None:
    """As if nobody had renewed the lease since just after the node's start."""
    for stamp in (folder / "node").glob("lease.at.*"):
        stamp.write_text(f"{stamp.read_text().split()[0]} 1\n")


async def events(cluster: Cluster, kind: str) -> list[str]:
    return [e.text async for e in cluster.client.events(follow=False) if e.kind == kind]


async def test_a_node_is_led_by_one_daemon_and_passes_to_another(
    tmp_path: Path, clusters: tuple[Cluster, Cluster]
) -> None:
    one, two = clusters
    await one.start()
    await one.do("add", toml=model_toml(model_file()))
    (first,) = await one.ready(1)
    # a second one, which has the same model and would like to start it
    await two.start()
    await two.do("add", toml=model_toml(model_file()))
    snapshot = await two.until(lambda s: s.nodes[0].state == "refused", "the second is refused")
    (node,) = snapshot.nodes
    assert one.daemon is not None
    assert node.holder is not None
    assert f"cluster e2e, pid {one.daemon.pid}" in node.holder
    assert node.holder in node.reason
    assert "llmgw run node takeover n1" in node.reason
    assert snapshot.replicas == ()
    assert len(await events(two, "node.refused")) == 1
    # the first dies, and its lease grows old
    await one.kill()
    make_old(tmp_path)
    (adopted,) = await two.ready(1)
    assert adopted.id == first.id
    assert len(await events(two, "replica.adopted")) == 1
    assert await stream_chat(await two.url(), "smol")
    # it comes back, is told who leads the node now, and takes it back
    await one.start()
    assert two.daemon is not None
    back = f"pid {two.daemon.pid}"
    await one.until(lambda s: back in (s.nodes[0].holder or ""), "the first is refused")
    with pytest.raises(NotFound):
        await one.do("node.takeover", name="n2")
    result = await one.do("node.takeover", name="n1")
    assert back in result.text
    assert back in result.data["from"]
    assert "already" in (await one.do("node.takeover", name="n1")).text
    (again,) = await one.ready(1)
    assert again.id == first.id
    assert len([text for text in await events(one, "node.takeover") if back in text]) == 1
    lost = await two.until(
        lambda s: s.nodes[0].state == "refused" and s.replicas[0].state == "unknown",
        "the second lets go",
    )
    assert "was taken over by another controller" in lost.nodes[0].reason
    assert any("was taken over" in text for text in await events(two, "node.refused"))
    assert await stream_chat(await one.url(), "smol")
    # what ends in order leaves nothing to wait for
    await one.do("shutdown", stop_replicas=False, stop_gateway=True)
    (kept,) = await two.ready(1)
    assert kept.id == first.id
