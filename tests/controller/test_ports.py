"""Ports rest after use, and are given again rather than none."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from llmgw_core.config import NodeConfig
from llmgw_core.controller.ports import PORT_REST_S, RestingPorts, overlap
from llmgw_core.controller.replica import Phase
from llmgw_core.errors import RemoteFailed
from tests.controller.simulation import SimNode, Simulation, is_settled
from tests.controller.worlds import model


def test_a_port_rests_for_a_while_on_its_node() -> None:
    ports = RestingPorts()
    ports.let_go("a", 18000, 100.0)
    assert ports.at("a", 100.0 + PORT_REST_S - 1) == {18000}
    assert ports.at("b", 100.0) == frozenset()
    assert ports.at("a", 100.0 + PORT_REST_S) == frozenset()


@pytest.mark.parametrize(
    ("chosen", "wrong"),
    [((18000, 18999), False), ((32000, 32767), False), ((32000, 32768), True),
     ((40000, 41000), True), ((20000, 65000), True), ((61000, 62000), False)],
)  # fmt: skip
def test_a_range_among_the_kernels_ports_is_told(chosen: tuple[int, int], wrong: bool) -> None:
    assert bool(overlap("a", chosen, (32768, 60999))) is wrong
    assert overlap("a", chosen, None) == ""


async def one_replica() -> tuple[Simulation, SimNode]:
    sim = Simulation("a", (model("m", 1),), random.Random(1))
    await sim.calm(3)
    assert is_settled(sim), sim.story
    return sim, sim.nodes["a"]


async def test_neither_another_replica_nor_its_next_run_gets_the_port() -> None:
    sim, node = await one_replica()
    seen = [sim.roster.get("m.1")]
    node.die("m.1")
    await sim.calm(5)
    seen.append(sim.roster.get("m.1"))
    sim.models = (model("n", 1),)
    await sim.calm(5)
    seen.append(sim.roster.get("n.1"))
    assert [r.port if r else None for r in seen] == [18000, 18001, 18002]


async def test_where_the_range_has_one_port_a_run_takes_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sim, node = await one_replica()

    async def only_one(taken: frozenset[int]) -> int:
        if 18000 in taken:
            raise RemoteFailed("no port from 18000 to 18000 is free on the node", exit_status=1)
        return 18000

    monkeypatch.setattr(node, "free_port", only_one)
    node.die("m.1")
    await sim.calm(5)
    again = sim.roster.get("m.1")
    assert again is not None
    assert (again.phase, again.port) == (Phase.READY, 18000)


async def test_a_range_that_collides_is_told_once() -> None:
    sim, node = await one_replica()
    node.config = NodeConfig("a", port_range=(40000, 40999))
    node.facts = replace(node.facts, ephemeral_ports=(32768, 60999))
    await sim.calm(3)
    told = [e.text for e in sim.events.recent() if e.kind == "node.ports"]
    assert len(told) == 1
    assert told[0].startswith("port_range 40000-40999 of a lies in the range")
