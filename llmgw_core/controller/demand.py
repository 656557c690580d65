"""How much each model is asked for, from the gateway's reports."""

from __future__ import annotations

from llmgw_core.controller.planner import Demand
from llmgw_core.gateway.table import Report


class DemandMeter:
    """Keeps when each model was asked last, which a single report does not tell."""

    def __init__(self) -> None:
        self._asked_at: dict[str, tuple[int, float]] = {}

    def read(self, report: Report | None, now: float) -> dict[str, Demand]:
        """Each model's demand, at ``now`` in Unix seconds; empty while the gateway is not heard."""
        result = {}
        for model in report.models if report else ():
            count = model.requests_total + model.unserved_total
            before = self._asked_at.get(model.model)
            if before is None or before[0] != count or model.running or model.waiting:
                first = before is None and not (model.running or model.waiting)
                asked = model.last_end or 0.0 if first else now
                self._asked_at[model.model] = (count, asked)
            asked_at = self._asked_at[model.model][1]
            ever = count or model.running or model.waiting
            idle = now - asked_at if ever and asked_at else None
            result[model.model] = Demand(model.running, model.waiting, idle)
        return result
