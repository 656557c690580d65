"""After a stop the next start waits until the driver has given the GPU memory back."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from llmgw_core.catalog.model import Profile
from llmgw_core.controller.memory_back import (
    MEMORY_BACK_S,
    MemoryBack,
    Used,
    is_back,
    is_steady,
)
from llmgw_core.nodes.facts import GpuFacts, HostSample
from tests.controller.simulation import SimNode, Simulation
from tests.controller.worlds import model


@pytest.mark.parametrize(
    ("before", "now", "back"),
    [
        ({"g": 40.0}, {"g": 40.0}, False),
        ({"g": 40.0}, {"g": 20.0}, True),
        ({"g": 40.0}, {"g": 0.4}, True),
        ({"g": 0.5}, {"g": 0.5}, True),
        ({"g": 40.0, "h": 9.0}, {"g": 39.9, "h": 9.0}, False),
        ({"g": 40.0}, None, False),
        (None, {"g": 40.0}, True),
    ],
)
def test_memory_is_back_when_it_was_seen_to_fall(
    before: Used | None, now: Used | None, back: bool
) -> None:
    assert is_back(before, now) is back


def test_what_still_falls_is_not_back_yet() -> None:
    assert not is_steady({"g": 40.0}, {"g": 20.0})
    assert not is_steady(None, {"g": 20.0})
    assert is_steady({"g": 20.0}, {"g": 20.1})


class Card:
    """A simulated node with one GPU, whose driver gives memory back after some looks."""

    def __init__(self, node: SimNode, looks: list[float]) -> None:
        self.node = node
        self.looks = looks
        self.now = 0.0
        self.use(40.0)

    def use(self, gib: float) -> None:
        gpu = GpuFacts("g", 0, "nvidia", "h100", 80.0, gib)
        self.node.facts = replace(self.node.facts, gpus=(gpu,))
        self.node.sample = HostSample(None, None, None, gpus=(gpu,))

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.looks:
            self.use(self.looks.pop(0))


async def restarted(looks: list[float]) -> tuple[Card, Simulation]:
    """A replica with a GPU is ended by hand, and started again."""
    gpu = Profile("gpu", engine="llamacpp", gpu_class="h100", gpus_per_node=1)
    of = replace(model("m", 1), profiles=(gpu,))
    sim = Simulation("a", (of,), random.Random(1))
    card = Card(sim.nodes["a"], looks)
    sim.executor._memory = MemoryBack(clock=lambda: card.now, sleep=card.sleep)
    card.use(0.4)
    await sim.calm(3)
    assert sim.nodes["a"].running.keys() == {"m.1"}, sim.story
    assert card.now == 0.0, "nothing was stopped, so nothing is waited for"
    card.use(40.0)
    sim.executor.stop("m.1", "somebody asked for it")
    await sim.settle_operations()
    await sim.calm(3)
    assert sim.nodes["a"].running.keys() == {"m.1"}, sim.story
    return card, sim


async def test_a_start_waits_until_the_memory_has_stopped_falling() -> None:
    card, sim = await restarted([40.0, 40.0, 22.0, 0.5])
    assert card.now == 10.0
    assert not [e for e in sim.events.recent() if e.kind == "node.memory_held"]


async def test_a_start_goes_on_after_a_while_and_says_so() -> None:
    card, sim = await restarted([])
    assert card.now == MEMORY_BACK_S
    (told,) = [e.text for e in sim.events.recent() if e.kind == "node.memory_held"]
    assert "although the GPU memory of m.1" in told
