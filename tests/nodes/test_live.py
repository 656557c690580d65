"""Facts, metrics and instances from two sources, kept apart by their age."""

from __future__ import annotations

from llmgw_core.nodes.facts import HostSample
from llmgw_core.nodes.instance import InstanceState, InstanceStatus
from llmgw_core.nodes.live import HISTORY, Live


def status(
    name: str = "a",
    state: InstanceState = InstanceState.RUNNING,
    token: str = "t",
    **record: str,
) -> InstanceStatus:
    return InstanceStatus(name, state, pid=1, token=token, record=record)


def test_a_reading_then_the_stream() -> None:
    live = Live()
    assert not live.same_instances({})
    assert live.read({"a": status(model="m")}, 1.0)
    assert not live.read({"a": status(model="m")}, 2.0)
    seen = {"a": status(state=InstanceState.EXITED)}
    assert live.same_instances(seen)
    assert live.streamed(seen, 3.0)
    assert live.instances is not None
    assert live.instances["a"].state is InstanceState.EXITED
    assert live.instances["a"].record == {"model": "m"}
    assert live.instances_at == 3.0


def test_a_new_name_or_start_asks_for_a_reading() -> None:
    live = Live()
    live.read({"a": status()}, 1.0)
    assert not live.same_instances({"a": status(), "b": status("b")})
    assert not live.same_instances({"a": status(token="u")})
    assert not live.same_instances({})


def test_what_was_read_before_an_act_does_not_undo_it() -> None:
    live = Live()
    live.read({"a": status()}, 1.0)
    live.acted(status(state=InstanceState.EXITED), 5.0)
    assert live.instances_at == 1.0  # the reading itself is no younger for it
    assert not live.streamed({"a": status()}, 4.0)
    assert live.instances is not None
    assert live.instances["a"].state is InstanceState.EXITED
    assert live.streamed({"a": status()}, 6.0)
    assert not live.read({}, 5.5)
    live.forgot("a", 7.0)
    assert live.instances == {}


def test_a_lost_link_keeps_facts_and_shows_one_gap() -> None:
    live = Live()
    live.sampled(HostSample(0.5, 1.0, 2.0))
    live.read({}, 1.0)
    live.away()
    live.away()
    assert (live.sample, live.instances, live.instances_at) == (None, None, None)
    live.sampled(HostSample(None, 1.0, 2.0))
    live.sampled(HostSample(0.25, 1.0, 2.0))
    assert live.cpu_history == (0.5, None, None, 0.25)
    for _ in range(500):
        live.sampled(HostSample(0.1, 1.0, 2.0))
    assert len(live.cpu_history) == HISTORY
