"""The revision fence: what is old, how fast it gives way, and that nobody is left unserved."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw_core.catalog.model import Mode, Model, Scaling
from llmgw_core.controller.planner import plan
from llmgw_core.controller.replica import Phase, Replica, adopted, record_of
from llmgw_core.controller.world import Asked, Demand, Kind, Mark, World
from llmgw_core.nodes.facts import NodeState
from llmgw_core.nodes.instance import InstanceState, InstanceStatus
from llmgw_core.placement.rooms import Room
from tests.controller.worlds import CPU, model, replica, room

ARGS = replace(CPU, args=("--ctx-size", "8192"))


def changed(of: Model) -> Model:
    return replace(of, profiles=(ARGS,))


def step(world: World) -> World:
    """One tick and what comes of it: what loads is ready, what stops is gone a tick later."""
    planned = plan(world)
    touched = [action.replica for action in planned.actions]
    assert len(touched) == len(set(touched)), planned.actions
    stops = {a.replica for a in planned.actions if a.kind is Kind.STOP}
    retried = {a.replica for a in planned.actions if a.kind is Kind.RETRY}
    after = []
    for r in world.replicas:
        if r.phase is Phase.STOPPING:
            continue
        if r.id in stops:
            after.append(replace(r, phase=Phase.STOPPING))
        elif r.phase is Phase.LOADING:
            after.append(replace(r, phase=Phase.READY))
        else:
            after.append(replace(r, phase=Phase.LOADING) if r.id in retried else r)
    models = {m.name: m for m in world.models}
    for action in planned.actions:
        if action.kind is Kind.START:
            number = int(action.replica.rpartition(".")[2])
            after.append(begun(world, models[action.model], number, action.nodes[0],
                               action.profile, action.replaces))  # fmt: skip
    return replace(world, replicas=tuple(after), now=world.now + 1)


def begun(world: World, of: Model, number: int, node: str, profile: str, replaces: str) -> Replica:
    found = of.profile(profile)
    assert found is not None
    there = next(r for r in world.rooms if r.name == node)
    return replica(
        of, number, node, Phase.LOADING, token=f"run {number} at {world.now}", engine="llamacpp",
        content=world.contents.get(of.name, ""), build=there.builds.get("llamacpp", ""),
        created=world.now, replaces=replaces, memory_gb=found.min_memory_gb,
    )  # fmt: skip


def rolled(world: World, rounds: int = 80) -> list[World]:
    """Every world on the way until nothing is left to do; fails where that never comes."""
    worlds = [world]
    for _ in range(rounds):
        moving = any(
            r.phase in (Phase.LOADING, Phase.STOPPING) for r in worlds[-1].replicas
        )  # fmt: skip
        if not moving and not plan(worlds[-1]).actions:
            return worlds
        worlds.append(step(worlds[-1]))
    raise AssertionError(f"never settles: {plan(worlds[-1]).actions}")


def asked(world: World, name: str = "m") -> int:
    """Replicas that requests go to."""
    fenced = plan(world).fenced
    return sum(
        r.model == name and r.phase is Phase.READY and r.id not in fenced for r in world.replicas
    )


def old_asked(world: World, of: Model) -> int:
    fenced = plan(world).fenced
    new = of.profiles[0].revision(of.source)
    return sum(
        r.phase is Phase.READY and r.id not in fenced and r.revision != new
        for r in world.replicas
    )  # fmt: skip


def started(worlds: list[World]) -> list[str]:
    return [a.replica for w in worlds for a in plan(w).actions if a.kind is Kind.START]


def rolling_world(count: int, *rooms: Room) -> tuple[World, Model]:
    old = model(count=count)
    replicas = tuple(
        replica(old, n + 1, rooms[n % len(rooms)].name, token=f"run {n}") for n in range(count)
    )
    new = changed(old)
    return World(0.0, (new,), rooms, replicas), new


def test_the_first_successor_has_to_prove_itself_before_the_rest_follow() -> None:
    world, new = rolling_world(3, room("a"), room("b"), room("c"))
    first = plan(world)
    assert [(a.kind, a.replaces) for a in first.actions] == [(Kind.START, "m.3")]
    loading = step(world)
    assert plan(loading).actions == ()
    assert old_asked(loading, new) == 3
    ready = step(loading)
    kinds = [a.kind for a in plan(ready).actions]
    assert kinds == [Kind.START, Kind.START, Kind.STOP]
    assert old_asked(ready, new) == 2
    assert [asked(w) for w in rolled(world)] == [3] * len(rolled(world))


def test_a_revision_that_does_not_start_costs_one_replica_at_most() -> None:
    roomy, _ = rolling_world(3, room("a"), room("b"), room("c"))
    tight, _ = rolling_world(3, *(room(n, memory_gb=2.0) for n in "abc"))
    for world, left in ((roomy, 3), (tight, 2)):
        while not any(r.phase is Phase.LOADING for r in world.replicas):
            world = step(world)
        broken = tuple(
            replace(r, phase=Phase.FAILED, retry_at=99.0, failures=1)
            if r.revision != world.replicas[0].revision else r
            for r in world.replicas
        )  # fmt: skip
        stuck = replace(world, replicas=broken)
        assert any(r.phase is Phase.FAILED for r in broken)
        assert plan(stuck).actions == ()
        assert asked(stuck) == left
        assert "those before it stay until it is ready" in plan(stuck).pending_reason("m")


def test_without_room_no_second_one_ends_while_the_first_still_does() -> None:
    world, _ = rolling_world(3, *(room(n, memory_gb=2.0) for n in "abc"))
    (first,) = plan(world).actions
    ending = replace(
        world,
        replicas=tuple(
            replace(r, phase=Phase.DRAINING) if r.id == first.replica else r for r in world.replicas
        ),
    )
    assert first.kind is Kind.STOP
    assert plan(ending).actions == ()


def test_nobody_is_stopped_for_a_successor_that_would_not_fit_in_its_place() -> None:
    old = model()
    new = replace(old, profiles=(replace(CPU, min_memory_gb=9.0),))
    world = World(0.0, (new,), (room("a"),), (replica(old, 1, "a"),))
    assert plan(world).actions == ()
    assert "needs 9 GiB" in plan(world).pending_reason("m")
    measured = room("a", memory_gb=8.0, available_gb=1.0)
    fits = replace(old, profiles=(replace(CPU, min_memory_gb=3.0),))
    runs = replica(old, 1, "a", resident_gb=2.0)
    (stop,) = plan(World(0.0, (fits,), (measured,), (runs,))).actions
    assert stop.kind is Kind.STOP


def test_where_one_of_several_places_fits_that_one_is_taken() -> None:
    old = model(count=2)
    new = replace(old, profiles=(replace(CPU, min_memory_gb=3.0),))
    rooms = (room("big", memory_gb=4.0), room("small", memory_gb=2.0))
    world = World(0.0, (new,), rooms, (replica(old, 1, "big"), replica(old, 2, "small")))
    (stop,) = plan(world).actions
    assert stop.replica == "m.1"


def test_weights_and_engine_count_only_where_both_sides_are_known() -> None:
    of = model()
    plain = replica(of, 1, "a", engine="llamacpp")
    known = replace(plain, content="aa", build="llama-server 1")
    here = room("a", builds={"llamacpp": "llama-server 2"})
    world = World(0.0, (of,), (room("a"),), (plain,))
    assert plan(replace(world, contents={"m": "bb"}, rooms=(here,))).actions == ()
    assert plan(replace(world, replicas=(known,))).actions == ()
    weights = replace(world, replicas=(known,), contents={"m": "bb"})
    engine = replace(world, replicas=(known,), rooms=(here,))
    for different in (weights, engine):
        assert [a.kind for a in plan(different).actions] == [Kind.START]
        (left,) = rolled(different)[-1].replicas
        assert left.id == "m.2"
    whys = [
        a.why for w in (weights, engine) for v in rolled(w) for a in plan(v).actions
        if a.kind is Kind.STOP
    ]  # fmt: skip
    assert whys == [
        "its weights have changed in the mirror",
        "the engine on a is llama-server 2 now, and it runs llama-server 1",
    ]


def test_nodes_with_different_engines_do_not_roll_for_ever() -> None:
    of = model(count=2)
    rooms = (
        room("a", builds={"llamacpp": "llama-server 2"}),
        room("b", builds={"llamacpp": "llama-server 1"}),
    )
    runs = tuple(replica(of, n, "ab"[n - 1], engine="llamacpp", build="llama-server 1")
                 for n in (1, 2))  # fmt: skip
    done = rolled(World(0.0, (of,), rooms, runs))[-1]
    assert len(done.replicas) == 2
    assert all(
        r.build == next(x for x in rooms if x.name == r.node).builds["llamacpp"]
        for r in done.replicas
    )


def test_what_the_fence_compares_survives_on_the_node_and_an_older_record_lacks_it() -> None:
    of = replica(model(), 1, "a", content="aa", build="llama-server 1", replaces="m.9", token="t")
    record = dict(record_of(of, cluster="c", started=0.0))
    status = InstanceStatus("m.1", InstanceState.RUNNING, token="t", record=record)
    found = adopted("a", status, now=0.0)
    assert found is not None
    assert (found.content, found.build, found.replaces) == ("aa", "llama-server 1", "m.9")
    assert found.run == of.run
    for key in ("content", "build", "replaces"):
        del record[key]
    before = adopted("a", replace(status, record=record), now=0.0)
    assert before is not None
    assert (before.content, before.build, before.replaces) == ("", "", "")


def test_two_quick_edits_run_the_model_once_more_and_not_twice() -> None:
    world, _ = rolling_world(2, room("a"), room("b"))
    world = step(world)  # a successor of the first edit loads
    second = replace(world.models[0], profiles=(replace(CPU, args=("--ctx-size", "4096")),))
    worlds = rolled(replace(world, models=(second,)))
    assert [asked(w) for w in worlds] == [2] * len(worlds)
    assert {r.revision for r in worlds[-1].replicas} == {second.profiles[0].revision(second.source)}
    revisions = [{r.revision for r in w.replicas if r.phase is Phase.READY} for w in worlds]
    assert all(len(seen) <= 2 for seen in revisions)
    assert len(started(worlds)) == 2


def test_an_edit_that_is_taken_back_ends_the_successor_and_touches_nobody_else() -> None:
    world, _ = rolling_world(2, room("a"), room("b"))
    loading = step(world)
    back = replace(loading, models=(model(count=2),))
    (action,) = plan(back).actions
    assert (action.kind, action.replica) == (Kind.STOP, "m.3")
    assert {r.id for r in rolled(back)[-1].replicas} == {"m.1", "m.2"}


def test_an_old_one_that_returns_with_its_node_is_not_asked_any_more() -> None:
    world, new = rolling_world(1, room("a"))
    runs = replica(new, 2, "a")
    back = replace(world, replicas=(*world.replicas, runs))
    assert plan(back).fenced == {"m.1"}


def mark(of: Replica, what: Asked = Asked.RESTART) -> dict[str, Mark]:
    return {of.run: Mark(of.id, what, f"anna asked for a {what}")}


def test_a_restart_has_its_successor_first_and_is_over_with_that_run() -> None:
    of = model()
    runs = replica(of, 1, "a", token="one")
    world = World(0.0, (of,), (room("a"),), (runs,), marks=mark(runs))
    worlds = rolled(world)
    assert [asked(w) for w in worlds] == [1] * len(worlds)
    assert [r.id for r in worlds[-1].replicas] == ["m.2"]
    tight = rolled(replace(world, rooms=(room("a", memory_gb=2.0),)))
    assert len(tight[-1].replicas) == 1
    assert tight[-1].replicas[0].run != runs.run


def test_restarts_of_a_whole_model_go_one_by_one_even_where_there_is_room() -> None:
    of = model(count=3)
    runs = tuple(replica(of, n, "abc"[n - 1], token=f"run {n}") for n in (1, 2, 3))
    marks = {k: v for r in runs for k, v in mark(r).items()}
    worlds = rolled(World(0.0, (of,), tuple(map(room, "abc")), runs, marks=marks))
    assert [asked(w) for w in worlds] == [3] * len(worlds)
    assert max(sum(r.phase is Phase.LOADING for r in w.replicas) for w in worlds) == 1
    assert len(started(worlds)) == 3


def test_a_restart_is_due_to_what_has_failed_at_once() -> None:
    of = model()
    failed = replica(of, 1, "a", Phase.FAILED, token="x", retry_at=900.0, failures=5)
    world = World(0.0, (of,), (room("a"),), (failed,), marks=mark(failed))
    assert {a.kind for a in plan(world).actions} == {Kind.START, Kind.STOP}


def test_a_stop_that_was_asked_while_the_node_was_away_comes_about_when_it_is_back() -> None:
    of = model()
    away = replica(of, 1, "a", Phase.UNKNOWN, token="x", lost_at=0.0)
    rooms = (room("a", state=NodeState.UNREACHABLE), room("b"))
    world = World(0.0, (of,), rooms, (away,), marks=mark(away, Asked.STOP))
    (start,) = plan(world).actions
    assert (start.kind, start.nodes) == (Kind.START, ("b",))
    back = replace(world, rooms=(room("a"), room("b")),
                   replicas=(replace(away, phase=Phase.READY, lost_at=None),))  # fmt: skip
    assert plan(back).fenced == {"m.1"}


def test_a_drain_that_is_taken_back_ends_what_was_started_for_it() -> None:
    of = model(count=2)
    runs = (replica(of, 1, "a"), replica(of, 2, "a"))
    rooms = (room("a", state=NodeState.DRAINING), room("b"))
    world = World(0.0, (of,), rooms, runs)
    assert [a.replaces for a in plan(world).actions] == ["m.2", "m.1"]
    moving = replace(step(world), rooms=(room("a"), room("b")))
    assert {r.id for r in rolled(moving)[-1].replicas} == {"m.1", "m.2"}


def test_a_roll_on_demand_neither_grows_nor_shrinks_it() -> None:
    of = model(mode=Mode.ON_DEMAND, scaling=Scaling(0, 4, 60.0))
    runs = tuple(replica(of, n, "ab"[n % 2]) for n in (1, 2, 3))
    world = World(0.0, (changed(of),), (room("a"), room("b")), runs, {"m": Demand(idle_s=1.0)})
    worlds = rolled(world)
    assert [asked(w) for w in worlds] == [3] * len(worlds)
    assert len(worlds[-1].replicas) == 3


KINDS = ("args", "weights", "engine", "restart", "none")


@st.composite
def rolls(draw: st.DrawFn, *, roomy: bool) -> World:
    """A model that is to roll, in part or as a whole, for one reason or for several."""
    count = draw(st.integers(1, 5))
    names = [f"n{i}" for i in range(draw(st.integers(1, 4)))]
    now = model(count=draw(st.integers(1, 5)))
    before = replace(now, profiles=(ARGS,))
    replicas: list[Replica] = []
    marks: dict[str, Mark] = {}
    held = dict.fromkeys(names, 0)
    for number in range(1, count + 1):
        node, kind = draw(st.sampled_from(names)), draw(st.sampled_from(KINDS))
        phase = Phase.READY if roomy else draw(
            st.sampled_from([Phase.READY, Phase.READY, Phase.READY, Phase.LOADING]))  # fmt: skip
        made = replica(
            before if kind == "args" else now, number, node, phase,
            engine="llamacpp", token=f"run {number}", content="old" if kind == "weights" else "new",
            build="llama-server 1" if kind == "engine" else "llama-server 2",
        )  # fmt: skip
        if kind == "restart":
            marks |= mark(made)
        replicas.append(made)
        held[node] += 1
    spare = 100.0 if roomy else draw(st.sampled_from([0.0, 0.0, 2.0]))
    rooms = tuple(
        room(name, memory_gb=2.0 * held[name] + spare, cores=64.0,
             builds={"llamacpp": "llama-server 2"})
        for name in names
    )  # fmt: skip
    return World(0.0, (now,), rooms, tuple(replicas), contents={"m": "new"}, marks=marks)


def settled(worlds: list[World]) -> None:
    done = worlds[-1]
    (of,) = done.models
    assert all(r.phase is Phase.READY and plan(done).fenced == frozenset() for r in done.replicas)
    assert {r.revision for r in done.replicas} <= {of.profiles[0].revision(of.source)}
    assert {(r.content, r.build) for r in done.replicas} <= {("new", "llama-server 2")}
    assert not any(r.run in done.marks for r in done.replicas)


@settings(deadline=None, max_examples=40)
@given(rolls(roomy=True))
def test_with_room_nobody_goes_before_a_successor_is_ready(world: World) -> None:
    worlds = rolled(world)
    least = min(world.models[0].scaling.min, len(world.replicas))
    assert all(asked(w) >= least for w in worlds), [asked(w) for w in worlds]
    settled(worlds)
    assert len(worlds[-1].replicas) == world.models[0].scaling.min


@settings(deadline=None, max_examples=40)
@given(rolls(roomy=False))
def test_without_room_at_most_one_is_lacking_at_any_time(world: World) -> None:
    worlds = rolled(world)
    ready = sum(r.phase is Phase.READY for r in world.replicas)
    least = min(world.models[0].scaling.min, ready) - 1
    assert all(asked(w) >= least for w in worlds), [asked(w) for w in worlds]
    settled(worlds)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_old_and_new_never_serve_more_than_is_wanted_and_the_old_get_fewer(count: int) -> None:
    world, new = rolling_world(count, *(room(f"n{i}") for i in range(count)))
    worlds = rolled(world)
    olds = [old_asked(w, new) for w in worlds]
    assert olds == sorted(olds, reverse=True)
    assert olds[-1] == 0
    assert all(asked(w) == count for w in worlds)
