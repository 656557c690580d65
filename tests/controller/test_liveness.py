"""Whether an engine that says that it is well also works."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.controller.lifecycle import advance
from llmgw_core.controller.liveness import (
    IDLE_TRY_S,
    STILL_S,
    Pulse,
    Try,
    Vital,
    new_vital,
    observed,
    tried,
)
from llmgw_core.controller.replica import Phase
from tests.controller.test_lifecycle import LIMITS, health, loading, running, seen


class Engine:
    """An engine over time, looked at every two seconds, and tried as it is wanted."""

    def __init__(self, *, on_cpu: bool = True, proves_life: bool = True) -> None:
        self.now = 1000.0
        self.vital: Vital = new_vital(self.now)
        self.cpu = 0.0
        self.work = 0.0
        self.on_cpu, self.proves_life = on_cpu, proves_life
        self.tries: list[float] = []

    def goes_on(
        self,
        seconds: float,
        *,
        busy: float | None,
        moves: bool = False,
        told: bool = True,
        cpu: float = 0.0,
        answers: bool = False,
    ) -> str:
        """Let it be like this for so long; what is thought of it then."""
        end = self.now + seconds
        while self.now < end and not self.vital.verdict(self.now):
            self.now += 2.0
            self.work += 5.0 if moves else 0.0
            self.cpu += 2.0 * cpu
            pulse = Pulse(self.now, told, busy if told else None, self.work if told else None)
            measured = self.cpu if int(self.now) % 10 == 0 else self.vital.cpu_s
            self.vital = observed(self.vital, pulse, measured, self.now, on_cpu=self.on_cpu)
            if self.vital.wants_try(self.now, proves_life=self.proves_life):
                self.tries.append(self.now)
                error = "" if answers else "no answer within 20 s"
                self.vital = tried(self.vital, Try(self.now + (0 if answers else 20.0), error))
                self.now += 0 if answers else 20.0
        return self.vital.verdict(self.now)


def test_an_engine_that_answers_and_makes_nothing_is_found() -> None:
    engine = Engine()
    assert engine.goes_on(60, busy=2, moves=True) == ""
    start = engine.now
    why = engine.goes_on(600, busy=2)
    assert why.startswith("answers its health check and makes no token: nothing has moved for ")
    assert "3 requests for one token failed (no answer within 20 s)" in why
    assert 60 <= engine.now - start <= 150
    assert len(engine.tries) == 3


def test_one_that_does_not_even_tell_its_numbers_is_found() -> None:
    engine = Engine()
    engine.goes_on(60, busy=0)
    assert "makes no token" in engine.goes_on(600, busy=None, told=False)


def test_who_works_or_has_nothing_to_do_is_left_alone() -> None:
    engine = Engine()
    assert engine.goes_on(4000, busy=1, moves=True) == ""
    assert engine.goes_on(4000, busy=0) == ""
    assert engine.tries == []


def test_one_that_takes_minutes_for_a_prompt_is_excused_by_its_processor() -> None:
    engine = Engine()
    assert engine.goes_on(500, busy=1, told=False, cpu=1.0) == ""
    assert engine.tries == []
    assert "makes no token" in engine.goes_on(600, busy=1, told=False, cpu=1.0)
    on_gpu = Engine(on_cpu=False)
    assert "makes no token" in on_gpu.goes_on(300, busy=1, told=False, cpu=1.0)


def test_a_try_that_is_answered_clears_the_doubt() -> None:
    engine = Engine()
    assert engine.goes_on(3000, busy=1, answers=True) == ""
    gaps = [b - a for a, b in zip(engine.tries, engine.tries[1:], strict=False)]
    assert min(gaps) >= STILL_S


def test_an_idle_engine_whose_numbers_prove_nothing_is_tried_now_and_then() -> None:
    engine = Engine(proves_life=False)
    assert engine.goes_on(IDLE_TRY_S * 5, busy=0, answers=True) == ""
    assert 3 <= len(engine.tries) <= 5
    engine.tries.clear()
    assert engine.goes_on(600, busy=1, moves=True) == ""
    assert engine.tries == []
    assert "makes no token: 3 requests" in engine.goes_on(1000, busy=0)


STEP = st.tuples(
    st.floats(2, 200), st.sampled_from([None, 0.0, 1.0, 3.0]), st.booleans(), st.booleans(),
    st.sampled_from([0.0, 1.0]),
)  # fmt: skip


@given(st.lists(STEP, max_size=12), st.booleans(), st.booleans())
def test_who_answers_every_try_is_never_called_stuck(
    steps: list[tuple[float, float | None, bool, bool, float]], on_cpu: bool, proves: bool
) -> None:
    engine = Engine(on_cpu=on_cpu, proves_life=proves)
    for seconds, busy, moves, told, cpu in steps:
        why = engine.goes_on(seconds, busy=busy, moves=moves, told=told, cpu=cpu, answers=True)
        assert why == ""


def test_a_stuck_engine_is_started_anew_and_a_stopped_one_named() -> None:
    ready = loading(phase=Phase.READY, ready_at=0.0, answered_at=50.0)
    stuck = advance(ready, seen(running(), health(50.0), stuck="makes no token"), LIMITS, 51.0)
    assert (stuck.phase, stuck.reason) == (Phase.FAILED, "makes no token")
    halted = advance(ready, replace(seen(running(halted=True))), LIMITS, 90.0)
    assert halted.phase is Phase.FAILED
    assert halted.reason == "has not answered for 40 s; its process is stopped by a signal"
