"""How a phase follows from what is observed."""

from dataclasses import replace

import pytest

from llmgw_core.controller.lifecycle import Limits, Observation, advance, failed
from llmgw_core.controller.replica import Health, Phase, Replica, backoff_s, instance_name
from llmgw_core.nodes.instance import InstanceState, InstanceStatus

LIMITS = Limits(startup_s=100.0, unresponsive_s=30.0)


def loading(**values: object) -> Replica:
    base = Replica("m.1", "m", "cpu", "a", "rev", Phase.LOADING, 0.0, "m.1", token="t",
                   started=0.0, progress_at=0.0)  # fmt: skip
    return replace(base, **values)  # type: ignore[arg-type]


def running(**values: object) -> InstanceStatus:
    base = InstanceStatus("m.1", InstanceState.RUNNING, pid=7, token="t")
    return replace(base, **values)  # type: ignore[arg-type]


def seen(
    status: InstanceStatus | None, health: Health | None = None, **values: object
) -> Observation:
    return replace(Observation(True, "", status, True, health), **values)  # type: ignore[arg-type]


def health(
    at: float, *, healthy: bool = True, answered: bool = True, serves: bool = True
) -> Health:
    return Health(at, healthy, answered, serves, "" if answered else "connection refused")


def test_ready_takes_a_healthy_answer_and_the_right_name() -> None:
    start = loading()
    assert advance(start, seen(running()), LIMITS, 1.0).phase is Phase.LOADING
    wrong = advance(start, seen(running(), health(2.0, serves=False)), LIMITS, 2.0)
    assert wrong.phase is Phase.LOADING
    assert "does not serve m" in wrong.reason
    ready = advance(start, seen(running(), health(3.0)), LIMITS, 3.0)
    assert ready.phase is Phase.READY
    assert ready.load_time_s == 3.0
    assert ready.pid == 7


def test_an_answer_of_the_run_before_does_not_make_it_ready() -> None:
    start = loading(started=10.0)
    assert advance(start, seen(running(), health(9.0)), LIMITS, 11.0).phase is Phase.LOADING


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (running(state=InstanceState.EXITED, exit_status=3), "exited with status 3"),
        (running(state=InstanceState.REBOOTED), "rebooted"),
        (running(state=InstanceState.LOST), "nobody saw it end"),
        (running(token="other"), "record is gone"),
        (None, "record is gone"),
    ],
)
def test_an_end_is_a_failure_with_its_cause(status: InstanceStatus | None, words: str) -> None:
    after = advance(loading(), seen(status), LIMITS, 5.0)
    assert after.phase is Phase.FAILED
    assert words in after.reason
    assert after.retry_at == 15.0


def test_a_reading_from_before_the_last_act_is_ignored() -> None:
    start = loading()
    assert advance(start, seen(None, fresh=False), LIMITS, 5.0) is start


def test_an_ending_process_is_asked_again() -> None:
    assert advance(loading(), seen(running(state=InstanceState.ENDING)), LIMITS, 5.0).phase is (
        Phase.LOADING
    )


def test_loading_has_no_deadline_while_it_moves() -> None:
    replica = loading()
    for second in range(0, 1000, 50):
        replica = advance(replica, seen(running(log_bytes=second)), LIMITS, float(second))
    assert replica.phase is Phase.LOADING
    stuck = advance(replica, seen(running(log_bytes=950)), LIMITS, 1051.0)
    assert stuck.phase is Phase.FAILED
    assert "no progress for 101 s" in stuck.reason


def test_a_silent_engine_is_given_up_after_its_time_and_not_before() -> None:
    ready = advance(loading(), seen(running(), health(1.0)), LIMITS, 1.0)
    silent = health(20.0, healthy=False, answered=False, serves=False)
    still = advance(ready, seen(running(), silent), LIMITS, 20.0)
    assert still.phase is Phase.READY
    assert "does not answer" in still.reason
    gone = advance(still, seen(running(), replace(silent, at=32.0)), LIMITS, 32.0)
    assert gone.phase is Phase.FAILED


def test_a_lost_node_makes_it_unknown_and_its_return_brings_it_back() -> None:
    ready = advance(loading(), seen(running(), health(1.0)), LIMITS, 1.0)
    away = Observation(False, "is unreachable: no answer", None, False, None)
    unknown = advance(ready, away, LIMITS, 5.0)
    assert (unknown.phase, unknown.lost_at) == (Phase.UNKNOWN, 5.0)
    assert advance(unknown, away, LIMITS, 6.0) is unknown
    back = advance(unknown, seen(running()), LIMITS, 9.0)
    assert (back.phase, back.lost_at) == (Phase.READY, None)
    dead = advance(unknown, seen(running(state=InstanceState.REBOOTED)), LIMITS, 9.0)
    assert dead.phase is Phase.FAILED


def test_a_node_that_returns_after_a_cut_fetch_has_it_gone_on_with_and_no_failure_is_counted() -> (
    None
):
    away = Observation(False, "is unreachable: no answer", None, False, None)
    lost = loading(phase=Phase.UNKNOWN, phase_before=Phase.FETCHING, lost_at=2.0)
    assert advance(lost, away, LIMITS, 3.0) is lost
    back = advance(lost, seen(None), LIMITS, 4.0)
    assert (back.phase, back.failures, back.lost_at) == (Phase.PENDING, 0, None)
    again = advance(back, away, LIMITS, 5.0)
    assert (again.phase, again.lost_at) == (Phase.UNKNOWN, 5.0)
    assert advance(again, seen(None), LIMITS, 6.0).phase is Phase.PENDING


def test_backoff_doubles_to_ten_minutes_and_is_forgotten_after_ten_good_ones() -> None:
    assert [backoff_s(n) for n in (1, 2, 3, 4, 7, 50)] == [10, 20, 40, 80, 600, 600]
    again = failed(loading(failures=5, ready_at=0.0, phase=Phase.READY), "x", now=700.0)
    assert again.failures == 1
    assert failed(loading(failures=5), "x", now=700.0).failures == 6


def test_instance_names_are_one_to_one_and_safe() -> None:
    names = [instance_name(text) for text in ("a/b.1", "a:b.1", "a b.1", "ä.1", "a%2f%b.1")]
    assert len(set(names)) == len(names)
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789%._-") for name in names)
