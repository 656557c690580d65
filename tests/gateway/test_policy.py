from __future__ import annotations

import pytest

from llmgw_core.gateway.body import Ask, read
from llmgw_core.gateway.errors import ApiError, not_ready
from llmgw_core.gateway.metrics import Metrics
from llmgw_core.gateway.policy import Directory, LeastOutstanding, Load, candidates
from llmgw_core.gateway.state import GatewayState, Listening
from llmgw_core.gateway.table import RouteModel, Table, Target, Tunnel


def target(name: str, weight: float = 1.0) -> Target:
    return Target(id=name, host="h", port=1, weight=weight)


def ask() -> Ask:
    return read(b'{"model":"m"}')


def pick(targets: list[Target], loads: dict[str, Load]) -> str:
    return LeastOutstanding().pick(ask(), targets, loads).id


def test_the_least_loaded_for_its_weight_is_picked() -> None:
    targets = [target("a", 1.0), target("b", 2.0)]
    assert pick(targets, {"a": Load(outstanding=1), "b": Load(outstanding=2)}) == "b"
    assert pick(targets, {"a": Load(outstanding=1), "b": Load(outstanding=4)}) == "a"


def test_equals_take_turns() -> None:
    targets = [target(name) for name in "abc"]
    state = GatewayState(Metrics())
    order: list[str] = []
    for _ in range(6):
        chosen = pick(targets, state.loads)
        state.begin(chosen)
        state.end(chosen)
        state.loads.setdefault(chosen, Load(picked=len(order) + 1))
        order.append(chosen)
    assert order == list("abcabc")


def test_weights_share_a_crowd() -> None:
    targets = [target("a", 3.0), target("b", 1.0)]
    loads = {"a": Load(), "b": Load()}
    for _ in range(40):
        loads[pick(targets, loads)].outstanding += 1
    assert loads["a"].outstanding == 30


def test_a_weight_of_zero_is_a_last_resort() -> None:
    targets = [target("a", 0.0), target("b", 1.0)]
    assert pick(targets, {"a": Load(), "b": Load(outstanding=100)}) == "b"


def test_tried_and_avoided_targets_are_left_out_as_far_as_others_are_left() -> None:
    targets = [target("a"), target("b"), target("c")]
    loads = {"b": Load(avoid_until=10.0)}
    names = [t.id for t in candidates(targets, loads, 5.0, {"a"})]
    assert names == ["c"]
    assert [t.id for t in candidates(targets, loads, 5.0, {"a", "c"})] == ["b"]
    assert [t.id for t in candidates(targets, loads, 10.0, {"a"})] == ["b", "c"]
    assert candidates(targets, loads, 5.0, {"a", "b", "c"}) == []


def test_a_name_wins_over_an_alias() -> None:
    one = RouteModel(name="one", aliases=("two", "fast"))
    two = RouteModel(name="two")
    directory = Directory(Table(version=1, models=(one, two)))
    assert directory.resolve("two") is two
    assert directory.resolve("fast") is one


def test_an_unknown_model_is_answered_with_those_that_exist() -> None:
    models = tuple(RouteModel(name=f"m{i}") for i in range(25))
    with pytest.raises(ApiError) as caught:
        Directory(Table(version=1, models=models)).resolve("gpt-5")
    error = caught.value
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert "'gpt-5' does not exist" in error.message
    assert "m0, m1" in error.message
    assert "and 5 more" in error.message


def test_a_model_without_replicas_says_why_and_when_to_come_back() -> None:
    failed = not_ready(RouteModel(name="m", state="failed", reason="out of memory"))
    assert failed.message == "The model 'm' has no ready replica: it is failed (out of memory)."
    assert failed.retry_after_s == 30
    assert not_ready(RouteModel(name="m", state="loading")).retry_after_s == 5


def report_of(state: GatewayState) -> dict[str, int]:
    report = state.report(Listening(1, "a:1", 0, False))
    return {load.id: load.outstanding for load in report.targets}


def test_a_removed_target_is_reported_until_its_last_request_is_over() -> None:
    state = GatewayState(Metrics())
    freed: list[bool] = []
    state.on_freed = lambda: freed.append(True)
    one = RouteModel(name="m", targets=(target("a"), target("b")))
    state.set_table(Table(version=1, models=(one,)))
    state.begin("a")
    state.begin("a")
    state.set_table(Table(version=2, models=(RouteModel(name="m", targets=(target("b"),)),)))
    assert report_of(state) == {"a": 2, "b": 0}
    state.end("a")
    assert (report_of(state), freed) == ({"a": 1, "b": 0}, [])
    state.end("a")
    assert freed == [True]
    assert report_of(state) == {"a": 0, "b": 0}
    assert report_of(state) == {"b": 0}


def test_a_target_that_comes_back_keeps_its_count() -> None:
    state = GatewayState(Metrics())
    both = Table(version=1, models=(RouteModel(name="m", targets=(target("a"),)),))
    state.set_table(both)
    state.begin("a")
    state.set_table(Table(version=2))
    state.set_table(both)
    state.end("a")
    assert report_of(state) == {"a": 0}


def test_what_nobody_knows_yet_stays_as_it_was() -> None:
    state = GatewayState(Metrics())
    tunnel = Tunnel("h", 22, None, (), "known", "n1")
    served = RouteModel(name="m", targets=(target("a"),), state="ready")
    state.set_table(Table(version=1, models=(served,), tunnels={"n1": tunnel}))
    held = RouteModel(name="m", aliases=("n",), state="pending", reason="waits", held=True)
    new = RouteModel(name="x", state="pending", held=True)
    for version in (2, 3):
        state.set_table(Table(version=version, models=(held, new)))
        found = state.directory.resolve("n")
        assert (found.targets, found.state, found.reason) == (served.targets, "ready", "")
        assert state.directory.resolve("x").state == "pending"
        assert state.directory.table.tunnels == {"n1": tunnel}
        assert state.directory.table.version == version
    state.set_table(Table(version=4, models=(RouteModel(name="m", state="failed"),)))
    assert state.directory.resolve("m").targets == ()


def test_rates_come_from_what_was_seen_not_from_nothing() -> None:
    metrics = Metrics()
    state = GatewayState(metrics)
    listening = Listening(1, "a:1", 0, False)
    state.sample(100.0)
    assert state.report(listening).requests_per_s == 0.0
    metrics.requests, metrics.chunks = 20, 400
    state.sample(102.0)
    report = state.report(listening)
    assert (report.requests_per_s, report.output_chunks_per_s) == (10.0, 200.0)
    for second in range(103, 120):
        state.sample(float(second))
    assert state.report(listening).requests_per_s == 0.0
