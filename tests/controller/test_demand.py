"""What is asked of models, over several reports of the gateway."""

from __future__ import annotations

from llmgw_core.controller.demand import DemandMeter
from llmgw_core.controller.planner import Demand
from llmgw_core.gateway.table import ModelDemand, Report


def report(*models: ModelDemand) -> Report:
    return Report(1, "127.0.0.1:1", 1, 0, 0, 0.0, 0.0, models)


def asked(
    total: int = 0, *, running: int = 0, unserved: int = 0, last_end: float | None = None
) -> ModelDemand:
    return ModelDemand("m", running, 0, total, 0, last_end, unserved)


def test_nothing_is_asked_while_the_gateway_is_not_heard() -> None:
    assert DemandMeter().read(None, 10.0) == {}


def test_a_model_that_nobody_asked_for_has_no_idle_time() -> None:
    assert DemandMeter().read(report(asked()), 10.0) == {"m": Demand(0, 0, None)}


def test_idle_time_begins_at_the_last_end_that_the_first_report_tells() -> None:
    meter = DemandMeter()
    told = report(asked(3, last_end=100.0))
    assert meter.read(told, 130.0)["m"].idle_s == 30.0
    assert meter.read(told, 140.0)["m"].idle_s == 40.0


def test_asking_again_ends_idle_time_served_or_not() -> None:
    meter = DemandMeter()
    meter.read(report(asked(3, last_end=100.0)), 130.0)
    unserved = report(asked(3, unserved=1, last_end=100.0))
    assert meter.read(unserved, 150.0)["m"].idle_s == 0.0
    assert meter.read(unserved, 155.0)["m"].idle_s == 5.0


def test_a_request_under_way_is_no_idle_time_however_long() -> None:
    meter = DemandMeter()
    running = report(asked(1, running=1))
    for now in (10.0, 500.0):
        assert meter.read(running, now)["m"] == Demand(1, 0, 0.0)
    ended = report(asked(1, last_end=501.0))
    assert meter.read(ended, 505.0)["m"].idle_s == 5.0


def test_who_waits_asks_although_nothing_was_ever_answered() -> None:
    meter = DemandMeter()
    waiting = ModelDemand("m", 0, 1, 0, 0, None)
    assert meter.read(report(waiting), 50.0)["m"] == Demand(0, 1, 0.0)
    served = ModelDemand("m", 0, 0, 1, 0, 52.0)
    assert meter.read(report(served), 60.0)["m"].idle_s == 0.0
