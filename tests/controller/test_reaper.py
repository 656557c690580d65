"""What belongs to nobody is ended and told; all else is left alone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from llmgw_core.controller.reaper import AGAIN_S, SCAN_S, SETTLE_S, Reaper, unclaimed
from llmgw_core.controller.replica import Phase, record_of
from llmgw_core.controller.roster import Roster
from llmgw_core.errors import NodeLost
from llmgw_core.ledger.events import EventLog
from llmgw_core.nodes.api import FleetHandle
from llmgw_core.nodes.facts import NodeState, NodeStatus
from llmgw_core.nodes.instance import InstanceState, InstanceStatus, Reaped, StopResult
from tests.controller.worlds import model, replica

M1 = replica(model("m"), 1, "a")
WHOLE = record_of(M1, cluster="c", started=1.0)


def status(name: str, **values: object) -> InstanceStatus:
    given = {"state": InstanceState.RUNNING, "token": "t", **values}
    return InstanceStatus(name, **given)  # type: ignore[arg-type]


def found(one: InstanceStatus, *known: str) -> str:
    claimed = unclaimed({one.name: one}, known=set(known), cluster="c", needed={"q/v1"})
    return claimed.get(one.name, "")


def fetch(weights: str, cluster: str = "c") -> InstanceStatus:
    name = f"fetch-{weights.replace('/', '@')}"
    return status(name, record={"cluster": cluster, "weights": weights})


@pytest.mark.parametrize(
    "left_alone",
    [
        status("m.1", record=WHOLE),
        status("m.1", record={**WHOLE, "cluster": "another", "replica": ""}),
        status("empty", token=None, state=InstanceState.NONE),
        fetch("q/v1"),
        fetch("old/v1", "another"),
    ],
    ids=lambda s: s.name,
)
def test_what_has_an_owner_is_left_alone(left_alone: InstanceStatus) -> None:
    assert found(left_alone) == ""


def test_a_record_that_names_no_replica_is_ended() -> None:
    assert found(status("m.1", record={**WHOLE, "replica": ""})) == "its record names no replica"
    assert found(status("m.1")) == "its record cannot be read"
    assert found(status("m.1"), "m.1") == "", "a replica that the roster knows"


def test_a_fetch_that_nobody_needs_is_ended() -> None:
    assert found(fetch("old/v1")) == "nobody needs old/v1 here any more"


class Node:
    """A node that ends what it is asked to end."""

    def __init__(self, *instances: InstanceStatus) -> None:
        self.config = SimpleNamespace(name="a")
        self.status = NodeStatus(NodeState.READY, 1.0)
        self.instances = {one.name: one for one in instances}
        self.stray: dict[str, tuple[int, ...]] = {}
        self.left: tuple[int, ...] = ()
        self.away = False
        self.scans = 0

    async def stop_instance(self, name: str, *, grace_s: float) -> StopResult:
        if self.away:
            raise NodeLost("the link is gone")
        return StopResult(self.instances[name], killed=False, left=self.left)

    async def forget_instance(self, name: str) -> None:
        del self.instances[name]

    async def strays(self) -> dict[str, tuple[int, ...]]:
        self.scans += 1
        return self.stray

    async def reap(self, name: str, *, grace_s: float) -> Reaped:
        return Reaped(self.stray.pop(name), killed=False, left=self.left)


class Sweeps:
    """A reaper over one node, with a clock of its own."""

    def __init__(self, node: Node) -> None:
        self.now = 1000.0
        self.events = EventLog(None, lambda: 0.0)
        self.roster = Roster(self.events)
        fleet = cast(FleetHandle, SimpleNamespace(nodes={"a": node}))
        self.reaper = Reaper(
            fleet=fleet, roster=self.roster, events=self.events, cluster="c",
            needed=lambda: frozenset(), clock=lambda: self.now,
        )  # fmt: skip

    async def after(self, seconds: float) -> list[str]:
        """What was told by a sweep that long after the one before."""
        self.now += seconds
        before = len(self.events.recent())
        self.reaper.sweep()
        while not self.reaper.idle:
            await asyncio.sleep(0)
        return [event.text for event in self.events.recent()[before:]]


async def test_it_is_ended_once_it_was_nobodys_for_a_while() -> None:
    node = Node(status("m.1"), status("n.1", record={**WHOLE, "cluster": "another"}))
    sweeps = Sweeps(node)
    assert await sweeps.after(0) == []
    assert await sweeps.after(SETTLE_S - 1) == []
    said = "m.1 on a was stopped and removed: its record cannot be read"
    assert await sweeps.after(1) == [said]
    assert list(node.instances) == ["n.1"]


async def test_what_a_start_wrote_meanwhile_is_not_ended() -> None:
    node = Node(status("m.1", token="old"))
    sweeps = Sweeps(node)
    await sweeps.after(0)
    node.instances["m.1"] = status("m.1", token="new", record=WHOLE)
    assert await sweeps.after(SETTLE_S) == []
    assert list(node.instances) == ["m.1"]


async def test_what_could_not_be_ended_is_tried_again_and_told() -> None:
    node = Node(status("m.1"))
    sweeps = Sweeps(node)
    node.away = True
    await sweeps.after(0)
    assert await sweeps.after(SETTLE_S) == []
    node.away, node.left = False, (7,)
    assert await sweeps.after(1) == []
    (said,) = await sweeps.after(AGAIN_S)
    assert said.startswith("processes 7 of m.1 on a belong to nobody and do not end")
    assert list(node.instances) == ["m.1"]


async def test_strays_are_looked_for_with_each_connection_and_now_and_then() -> None:
    node = Node()
    sweeps = Sweeps(node)
    node.stray["gone.1"] = (41, 42)
    (said,) = await sweeps.after(0)
    assert said == (
        "processes 41, 42 on a were ended: they outlived gone.1, whose engine or record is gone"
    )
    await sweeps.after(1)
    assert node.scans == 1
    node.status = NodeStatus(NodeState.READY, 2.0)
    await sweeps.after(1)
    assert node.scans == 2
    node.instances["m.1"] = status("m.1", record=WHOLE, state=InstanceState.LOST)
    await sweeps.after(1)
    await sweeps.after(1)
    assert node.scans == 3, "an engine ended with nobody there to end its children"
    await sweeps.after(SCAN_S)
    assert node.scans == 4


async def test_strays_of_a_replica_that_is_being_acted_on_are_left_to_that() -> None:
    node = Node()
    sweeps = Sweeps(node)
    node.stray[M1.instance] = (41,)
    sweeps.roster.put(replica(model("m"), 1, "a", Phase.STARTING))
    sweeps.roster.busy.add("m.1")
    assert "processes" not in " ".join(await sweeps.after(0))
    assert node.stray == {"m.1": (41,)}
