"""From a world to a plan."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.catalog.model import Mode, Scaling
from llmgw_core.controller.failures import FailureBook
from llmgw_core.controller.planner import Demand, Kind, World, plan
from llmgw_core.controller.replica import Phase
from llmgw_core.nodes.facts import NodeState
from llmgw_core.placement.rooms import Weights
from tests.controller.worlds import CPU, apply, model, replica, room, settle


def test_a_wanted_replica_is_started_once_and_on_the_emptiest_node() -> None:
    world = World(0.0, (model(count=2),), (room("a"), room("b")))
    planned = plan(world)
    assert [(a.kind, a.replica, a.nodes) for a in planned.actions] == [
        (Kind.START, "m.1", ("a",)),
        (Kind.START, "m.2", ("b",)),
    ]
    assert plan(apply(world, planned)).actions == ()


def test_what_cannot_be_placed_has_a_reason_for_every_node() -> None:
    world = World(0.0, (model(),), (room("a", memory_gb=1.0), room("b", cores=0.5)))
    planned = plan(world)
    assert planned.actions == ()
    assert planned.pending_reason("m") == (
        "a: needs 2 GiB of memory, 1.0 are free; b: needs 1 cores, 0.5 are free"
    )


def test_scaling_down_gives_up_what_is_least_useful_then_youngest() -> None:
    m = model(count=1)
    replicas = (
        replica(m, 1, "a"),
        replica(m, 2, "a"),
        replica(m, 3, "b", Phase.LOADING),
    )
    planned = plan(World(0.0, (m,), (room("a"), room("b")), replicas))
    assert {a.replica for a in planned.actions} == {"m.2", "m.3"}
    assert all(a.kind is Kind.STOP for a in planned.actions)
    assert {a.replica: a.drain for a in planned.actions} == {"m.2": True, "m.3": False}


def test_replicas_of_a_removed_model_stop() -> None:
    m = model()
    planned = plan(World(0.0, (), (room("a"),), (replica(m, 1, "a"),)))
    assert [(a.kind, a.why) for a in planned.actions] == [
        (Kind.STOP, "its model is no longer in the catalog")
    ]


def test_a_failed_replica_waits_for_its_time_and_is_then_tried_again_in_place() -> None:
    m = model()
    failed = replica(m, 1, "a", Phase.FAILED, retry_at=10.0, failures=1, reason="exited")
    world = World(5.0, (m,), (room("a"), room("b")), (failed,))
    assert plan(world).actions == ()
    (action,) = plan(replace(world, now=10.0)).actions
    assert (action.kind, action.nodes) == (Kind.RETRY, ("a",))
    assert "attempt 2 after: exited" in action.why


def test_an_unreachable_node_is_given_its_grace_and_then_replaced_never_doubled() -> None:
    m = model()
    lost = replica(m, 1, "a", Phase.UNKNOWN, lost_at=0.0)
    rooms = (room("a", state=NodeState.UNREACHABLE), room("b"))
    world = World(30.0, (m,), rooms, (lost,), node_grace_s=60.0)
    assert plan(world).actions == ()
    later = replace(world, now=61.0)
    (action,) = plan(later).actions
    assert (action.kind, action.nodes) == (Kind.START, ("b",))
    replaced = apply(later, plan(later))
    back = replace(
        replaced,
        rooms=(room("a"), room("b")),
        replicas=tuple(replace(r, phase=Phase.READY, lost_at=None) for r in replaced.replicas),
    )
    (stop,) = plan(back).actions
    assert stop.kind is Kind.STOP
    assert len(settle(back).replicas) == 1


def test_what_fails_again_and_again_on_one_node_is_tried_on_another() -> None:
    of = model()
    failing = replica(of, 1, "a", Phase.FAILED, failures=3, retry_at=0.0, reason="no AVX")
    book = FailureBook()
    world = World(now=1.0, models=(of,), rooms=(room("a"), room("b")), replicas=(failing,))
    world = replace(world, avoid=book.read(world.replicas, 1.0))
    (stop,) = plan(world).actions
    assert stop.kind is Kind.STOP
    assert "failed there 3 times: no AVX" in stop.why
    (start,) = plan(replace(world, replicas=())).actions
    assert start.nodes == ("b",)


def test_where_no_other_node_fits_it_is_tried_again_in_place() -> None:
    of = model()
    failing = replica(of, 1, "a", Phase.FAILED, failures=3, retry_at=0.0)
    avoid = FailureBook().read((failing,), 1.0)
    world = World(now=1.0, models=(of,), rooms=(room("a"),), replicas=(failing,), avoid=avoid)
    assert [a.kind for a in plan(world).actions] == [Kind.RETRY]
    assert [a.nodes for a in plan(replace(world, replicas=())).actions] == [("a",)]


def test_failures_are_forgotten_in_time_and_with_a_new_revision() -> None:
    of = model()
    book = FailureBook()
    failing = replica(of, 1, "a", Phase.FAILED, failures=3)
    assert book.read((failing,), 0.0) == {"m": {"a": "failed there 3 times: "}}
    assert book.read((), 599.0)
    assert book.read((replace(failing, revision="other", failures=0),), 599.0) == {}
    assert book.read((failing,), 0.0)
    assert book.read((), 601.0) == {}


def test_nothing_is_replaced_while_this_machine_itself_is_suspected() -> None:
    of = model()
    gone = replica(of, 1, "a", Phase.UNKNOWN, lost_at=0.0)
    rooms = (room("a", state=NodeState.UNREACHABLE), room("b"))
    world = World(now=1000.0, models=(of,), rooms=rooms, replicas=(gone,))
    assert [a.nodes for a in plan(world).actions] == [("b",)]
    assert plan(replace(world, frozen="many nodes went away together")).actions == ()


def test_nothing_starts_while_a_node_that_may_run_it_already_was_not_heard_from() -> None:
    world = World(0.0, (model(),), (room("a"), room("b")), unread=("b",))
    planned = plan(world)
    assert planned.actions == ()
    assert planned.pending_reason("m") == "waits to hear from b, where it may run already"


def test_nothing_starts_while_the_mirror_pulls_its_weights_and_the_reason_says_so() -> None:
    of = model()
    world = World(now=0.0, models=(of,), rooms=(room("a"),), waiting={"m": "the mirror pulls it"})
    planned = plan(world)
    assert planned.actions == ()
    assert planned.pending_reason("m") == "the mirror pulls it"


def test_weights_that_only_nodes_hold_start_there_and_nowhere_else() -> None:
    needs = {"m": Weights("q/v1", missing="the mirror has no q/v1")}
    holder = room("b", weights=frozenset({"q/v1"}))
    nowhere = plan(World(0.0, (model(),), (room("a"),), weights=needs))
    assert nowhere.actions == ()
    assert nowhere.pending_reason("m") == "the mirror has no q/v1"
    two = plan(World(0.0, (model(count=2),), (room("a"), holder), weights=needs))
    assert {a.nodes for a in two.actions} == {("b",)}
    failed = replica(model(), 1, "a", Phase.FAILED, retry_at=0.0)
    assert plan(World(1.0, (model(),), (room("a"),), (failed,), weights=needs)).actions == ()
    there = replica(model(), 1, "b", Phase.FAILED, retry_at=0.0)
    (again,) = plan(World(1.0, (model(),), (holder,), (there,), weights=needs)).actions
    assert again.kind is Kind.RETRY


def test_nobody_is_stopped_for_a_successor_whose_weights_are_not_there_yet() -> None:
    old, now = model(), replace(model(), source="mirror:q/v2/")
    runs = replica(old, 1, "a")
    small = room("a", cores=1.0)
    world = World(0.0, (now,), (small,), (runs,), waiting={"m": "the mirror pulls it"})
    assert plan(world).actions == ()
    lost = replace(world, waiting={}, weights={"m": Weights("q/v2", missing="the mirror lost it")})
    assert plan(lost).actions == ()
    full = replace(
        lost, rooms=(replace(small, disk_free_gb=1.0),), weights={"m": Weights("q/v2", 9)}
    )
    assert plan(full).actions == ()
    assert "disk" in plan(full).pending_reason("m")
    (stop,) = plan(replace(lost, weights={"m": Weights("q/v2", 1)})).actions
    assert stop.kind is Kind.STOP


def test_a_fetch_that_was_cut_off_is_gone_on_with_once_the_node_is_back() -> None:
    cut = replica(model(), 1, "a", Phase.PENDING)
    (again,) = plan(World(0.0, (model(),), (room("a"),), (cut,))).actions
    assert (again.kind, again.why) == (Kind.RETRY, "its node is back")


def test_an_old_fetch_ends_once_its_successor_is_on_its_way() -> None:
    old, now = model(), replace(model(), source="/w/other.gguf")
    fetching = replica(old, 1, "a", Phase.FETCHING)
    alone = World(0.0, (now,), (room("a"),), (fetching,))
    assert [a.kind for a in plan(alone).actions] == [Kind.START]
    two = replace(alone, replicas=(fetching, replica(now, 2, "a", Phase.FETCHING)))
    assert [(a.kind, a.replica) for a in plan(two).actions] == [(Kind.STOP, "m.1")]


def test_a_changed_profile_rolls_new_before_old_where_there_is_room() -> None:
    old = model(count=2)
    new = replace(old, profiles=(replace(CPU, args=("--ctx-size", "8192")),))
    replicas = (replica(old, 1, "a"), replica(old, 2, "b"))
    world = World(0.0, (new,), (room("a"), room("b")), replicas)
    first = plan(world)
    assert [a.kind for a in first.actions] == [Kind.START]
    second = plan(apply(world, first))
    assert Kind.STOP in [a.kind for a in second.actions]
    done = settle(world)
    assert {r.revision for r in done.replicas} == {new.profiles[0].revision(new.source)}
    assert len(done.replicas) == 2


def test_a_changed_profile_rolls_in_place_where_there_is_no_room() -> None:
    old = model()
    new = replace(old, profiles=(replace(CPU, min_memory_gb=7.0),))
    world = World(0.0, (new,), (room("a"),), (replica(old, 1, "a"),))
    (action,) = plan(world).actions
    assert action.kind is Kind.STOP
    assert "has room only in its place" in action.why
    assert [r.memory_gb for r in settle(world).replicas] == [7.0]


def test_a_draining_node_is_emptied_once_its_replicas_are_ready_elsewhere() -> None:
    m = model()
    rooms = (room("a", state=NodeState.DRAINING), room("b"))
    world = World(0.0, (m,), rooms, (replica(m, 1, "a"),))
    assert [a.kind for a in plan(world).actions] == [Kind.START]
    assert [r.node for r in settle(world).replicas] == ["b"]


def test_a_cordoned_node_keeps_what_it_has_and_takes_nothing() -> None:
    m = model(count=2)
    rooms = (room("a", state=NodeState.CORDONED), room("b"))
    done = settle(World(0.0, (m,), rooms, (replica(m, 1, "a"),)))
    assert sorted(r.node for r in done.replicas) == ["a", "b"]


def test_on_demand_runs_while_it_is_used_and_for_its_idle_time() -> None:
    m = model(mode=Mode.ON_DEMAND, scaling=Scaling(0, 2, 60.0))
    world = World(0.0, (m,), (room("a"),))
    assert plan(world).actions == ()
    asked = replace(world, demand={"m": Demand(idle_s=5.0)})
    assert [a.kind for a in plan(asked).actions] == [Kind.START]
    running = replace(asked, replicas=(replica(m, 1, "a"),))
    assert plan(running).actions == ()
    idle = replace(running, demand={"m": Demand(idle_s=61.0)})
    assert [a.kind for a in plan(idle).actions] == [Kind.STOP]


def test_the_higher_class_is_placed_first() -> None:
    low, high = model("low", model_class="best-effort"), model("high", model_class="critical")
    ranks = {"best-effort": 100, "critical": 300}
    world = World(0.0, (low, high), (room("a", memory_gb=2.0),), ranks=ranks)
    planned = plan(world)
    assert [a.model for a in planned.actions] == ["high"]
    assert planned.pending[0].model == "low"


counts = st.integers(0, 4)
modes = st.sampled_from([Mode.ALWAYS, Mode.STOPPED])
states = st.sampled_from([NodeState.READY, NodeState.READY, NodeState.CORDONED, NodeState.DRAINING])
phases = st.sampled_from([Phase.READY, Phase.LOADING, Phase.FAILED])


@st.composite
def worlds(draw: st.DrawFn) -> World:
    models = tuple(
        model(f"m{i}", draw(st.integers(1, 4)), draw(modes)) for i in range(draw(counts))
    )
    rooms = tuple(
        room(f"n{i}", memory_gb=float(draw(st.integers(1, 12))), state=draw(states))
        for i in range(draw(counts))
    )
    replicas = []
    for of in (*models, model("gone")):
        for number in range(1, draw(st.integers(0, 3)) + 1):
            if rooms:
                node = draw(st.sampled_from(rooms)).name
                old = draw(st.booleans())
                made = replica(of, number, node, draw(phases))
                replicas.append(replace(made, revision="old") if old else made)
    return World(1000.0, models, rooms, tuple(replicas))


@given(worlds())
def test_plan_then_apply_always_settles_and_never_exceeds_what_is_wanted(world: World) -> None:
    done = settle(world)
    for of in world.models:
        mine = [r for r in done.replicas if r.model == of.name]
        assert len(mine) <= max(of.scaling.min, 0)
    assert all(r.model != "gone" for r in done.replicas)


@given(worlds())
def test_the_same_world_gives_the_same_plan(world: World) -> None:
    assert plan(world) == plan(world)
