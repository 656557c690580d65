"""A few random faults, as ``scripts/chaos`` does many."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.cluster import model_file
from tests.lab.chaos import run
from tests.lab.chaos_plan import VERBS, rounds
from tests.lab.hosts import Host

pytestmark = [pytest.mark.lab, pytest.mark.engine]

FAULTS = int(os.environ.get("LLMGW_CHAOS_FAULTS", "8"))
SEED = int(os.environ.get("LLMGW_CHAOS_SEED", "1"))
BUDGET_S = 60.0


async def test_nothing_is_lost_and_nothing_doubled(hosts: list[Host], tmp_path: Path) -> None:
    found = await run(
        tmp_path, hosts, model_file(), faults=FAULTS, seed=SEED, budget_s=BUDGET_S
    )  # fmt: skip
    assert found == []


def test_a_seed_always_gives_the_same_faults() -> None:
    hosts = ["n1", "n2", "n3", "n4"]
    drawn = [fault for some in rounds(7, 300, hosts) for fault in some]
    again = [fault for some in rounds(7, 300, hosts) for fault in some]
    assert drawn == again
    assert sorted(fault.number for fault in drawn) == list(range(1, 301))
    assert {fault.verb for fault in drawn} == set(VERBS)
    assert {fault.host for fault in drawn} == set(hosts)
