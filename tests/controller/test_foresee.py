"""What a change would do: the planner itself, run forward."""

from dataclasses import replace

from hypothesis import given, settings

from llmgw_core.controller.foresee import asked_of, foresee, headroom, of_change, with_node
from llmgw_core.controller.replica import Phase
from llmgw_core.controller.world import Asked, Kind, World
from llmgw_core.nodes.facts import NodeState
from tests.controller.test_planner import worlds
from tests.controller.worlds import model, replica, room


def test_a_drain_moves_what_fits_and_says_why_the_rest_does_not() -> None:
    of = model(count=2)
    runs = (replica(of, 1, "a", token="1"), replica(of, 2, "a", token="2"))
    world = World(0.0, (of,), (room("a"), room("b", memory_gb=3.0)), runs)
    found = foresee(with_node(world, "a", NodeState.DRAINING))
    told = [[(a.kind, a.replica, a.nodes) for a in step] for step in found.steps]
    assert told == [
        [(Kind.START, "m.3", ("b",))],
        [(Kind.STOP, "m.2", ("a",))],
        [(Kind.STOP, "m.1", ("a",))],
    ]
    assert "no other node can take it" in found.steps[2][0].why
    assert [(p.node, p.reason) for p in found.pending] == [
        ("a", "node is draining"), ("b", "needs 2 GiB of memory, 1.0 are free"),
    ]  # fmt: skip
    assert [r.id for r in found.end.replicas] == ["m.3"]
    assert found.settled


def test_a_cordon_moves_nothing_and_takes_room() -> None:
    of = model()
    world = World(0.0, (of,), (room("a"), room("b")), (replica(of, 1, "a"),))
    cordoned = with_node(world, "b", NodeState.CORDONED)
    assert foresee(cordoned).steps == ()
    assert headroom(world, "m", limit=20) == 7
    assert headroom(cordoned, "m", limit=20) == 3


def test_a_restart_names_the_successor_and_what_it_takes_the_place_of() -> None:
    of = model()
    runs = replica(of, 1, "a", token="1")
    world = World(0.0, (of,), (room("a"),), (runs,))
    found = foresee(asked_of(world, [runs], Asked.RESTART, "anna asked for a restart"))
    assert [(a.kind, a.replica, a.replaces) for step in found.steps for a in step] == [
        (Kind.START, "m.2", "m.1"), (Kind.STOP, "m.1", ""),
    ]  # fmt: skip


def test_what_happens_anyway_is_not_blamed_on_the_change() -> None:
    of, other = model(), model("other")
    runs = replica(of, 1, "a", token="1")
    world = World(0.0, (of, other), (room("a"),), (runs,))
    change = of_change(
        foresee(world), foresee(asked_of(world, [runs], Asked.STOP, "anna asked for a stop"))
    )
    assert {a.model for step in change.steps for a in step} == {"m"}


def test_measured_memory_is_counted_once() -> None:
    of = model(count=3)
    found = foresee(World(0.0, (of,), (room("a", memory_gb=8.0, available_gb=5.0),)))
    assert [len(step) for step in found.steps] == [2]
    assert len(found.end.replicas) == 2
    assert found.end.rooms[0].available_gb == 1.0


def test_a_node_that_is_away_is_not_brought_back_by_a_preview() -> None:
    away = World(0.0, (), (room("a", state=NodeState.UNREACHABLE),))
    assert with_node(away, "a", NodeState.READY) == away


@settings(deadline=None, max_examples=40)
@given(worlds())
def test_it_always_comes_to_rest_and_nothing_is_left_to_do(world: World) -> None:
    found = foresee(world)
    assert found.settled
    assert foresee(found.end).steps == ()
    assert all(r.phase in (Phase.READY, Phase.FAILED) for r in found.end.replicas)
    assert of_change(found, found).steps == ()
    assert replace(found.end, replicas=(), rooms=()) == replace(world, replicas=(), rooms=())
