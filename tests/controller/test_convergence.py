"""Whatever fails, and wherever: once it stops failing, exactly what is wanted runs."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llmgw_core.catalog.model import Mode, Scaling
from llmgw_core.controller.replica import Phase
from tests.controller.simulation import SimNode, Simulation, is_settled
from tests.controller.worlds import model

STEPS = 40


def scaled(sim: Simulation) -> None:
    """Other numbers of replicas, and now and then a model that is no more."""
    counts = {"m": sim.rng.randrange(4), "n": sim.rng.randrange(2)}
    sim.models = tuple(
        model(name, count, Mode.ALWAYS if count else Mode.STOPPED)
        for name, count in counts.items()
        if count or sim.rng.random() < 0.5
    )


async def befall(sim: Simulation) -> None:
    """One thing that happens to a cluster."""
    node = sim.rng.choice(list(sim.nodes.values()))
    match sim.rng.randrange(9):
        case 0:
            node.cut()
        case 1 | 2:
            node.heal()
        case 3:
            node.reboot()
        case 4 if node.running:
            node.die(sim.rng.choice(list(node.running)))
        case 5:
            await sim.crash()
        case 6:
            scaled(sim)
        case 7 if sim.roster:
            sim.executor.stop(sim.rng.choice(list(sim.roster)).id, "somebody asked for it")
        case 8:
            drained = sim.cordons.pop(node.name, None)
            if drained is None and not sim.cordons:
                sim.cordons[node.name] = "draining"


@given(seed=st.integers(0, 2**32), trouble=st.sampled_from([0.0, 0.05, 0.3]))
@settings(max_examples=60, deadline=None)
@example(seed=1, trouble=0.3)
def test_after_any_faults_exactly_what_is_wanted_runs(seed: int, trouble: float) -> None:
    asyncio.run(_after_any_faults(random.Random(seed), trouble))


async def _after_any_faults(rng: random.Random, trouble: float) -> None:
    sim = Simulation("abc", (model("m", 2), model("n", 1)), rng)
    for node in sim.nodes.values():
        node.trouble = trouble
    for _ in range(STEPS):
        if rng.random() < 0.5:
            await befall(sim)
        sim.now += rng.choice((0.1, 2.0, 30.0, 90.0))
        sim.tick()
        for _ in range(rng.randrange(12)):
            await asyncio.sleep(0)
    await sim.settle_operations()
    sim.cordons.clear()
    await sim.calm()
    assert is_settled(sim), sim.story
    assert [n.touched + n.doubled for n in sim.nodes.values()] == [[], [], []]
    await sim.executor.aclose()


async def running(name: str = "a") -> tuple[Simulation, SimNode]:
    """One node with one replica that is ready."""
    sim = Simulation(name, (model("m", 1),), random.Random(1))
    await sim.calm(3)
    assert is_settled(sim), sim.story
    return sim, sim.nodes[name]


@pytest.mark.parametrize("crash", [False, True], ids=["same controller", "another controller"])
async def test_a_stop_that_its_node_did_not_hear_is_carried_out_when_it_is_back(
    crash: bool,
) -> None:
    sim, node = await running()
    node.cut()
    sim.models = ()
    sim.tick()
    await sim.settle_operations()
    assert len(node.running) == 1
    if crash:
        await sim.crash()
        sim.tick()
    node.heal()
    await sim.calm(2)
    assert node.running == {}
    assert len(sim.roster) == 0


async def test_a_stop_that_was_cut_off_is_gone_on_with_and_not_taken_back() -> None:
    sim, node = await running()
    node.trouble = 1.0  # the first step of the stop loses the link
    sim.executor.stop("m.1", "somebody asked for it")
    node.rng = random.Random(5)
    while node.up:
        node.trouble = 1.0
        await sim.settle_operations()
        sim.executor.stop("m.1", "somebody asked for it")
        sim.now += 100
    sim.tick()
    lost = sim.roster.get("m.1")
    assert lost is not None
    assert (lost.phase, lost.phase_before) == (Phase.UNKNOWN, Phase.STOPPING)
    sim.models = (replace(sim.models[0], scaling=Scaling.for_mode(Mode.ALWAYS, 1)),)
    await sim.calm(40)
    assert is_settled(sim), sim.story
    stopped = [e.text for e in sim.events.recent()[-100:] if e.kind == "replica.stopped"]
    assert stopped == ["m.1 on a stopped: somebody asked for it"]


async def test_a_stop_that_fails_is_tried_again_with_its_memory_booked_and_told_once() -> None:
    sim, node = await running()
    sim.models = ()

    async def refuses(name: str, *, grace_s: float) -> None:
        from llmgw_core.errors import RemoteFailed

        raise RemoteFailed("the node's disk is full", exit_status=74)

    good, node.stop_instance = node.stop_instance, refuses  # type: ignore[method-assign,assignment]
    for _ in range(30):
        sim.now += 1.0
        sim.tick()
        await sim.settle_operations()
    stuck = sim.roster.get("m.1")
    assert stuck is not None
    assert stuck.phase is Phase.STOPPING
    assert stuck.memory_gb == 2
    assert "disk is full" in stuck.reason
    assert stuck.stop_failures == 2  # at once, and 10 s later; the next comes after 20 s more
    told = [e for e in sim.events.recent()[-100:] if e.kind == "replica.stop_failed"]
    assert len(told) == 1
    node.stop_instance = good  # type: ignore[method-assign]
    await sim.calm(5)
    assert node.running == {}
    assert len(sim.roster) == 0


async def test_a_replica_on_a_node_that_is_no_longer_configured_is_left_and_found_again() -> None:
    sim, node = await running()
    sim.nodes.pop("a")
    sim.models = ()
    await sim.calm(15)
    assert len(sim.roster) == 0
    assert [e.kind for e in sim.events.recent()[-1:]] == ["replica.left"]
    sim.nodes["a"] = node
    await sim.calm(3)
    assert node.running == {}, "its model is gone, so it was adopted and stopped"
