"""Stand-ins for the engines, so that these tests show what the catalog's own rules do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llmgw_core.catalog.model import CatalogProblem, Profile
from llmgw_core.engines.base import Engine, Launch, LaunchRequest
from llmgw_core.engines.verdict import Question
from llmgw_core.metrics.mapping import VLLM, MetricsMapping
from llmgw_core.nodes.facts import EngineFacts


@dataclass
class StandIn:
    name: str
    can_serve_on_cpu: bool
    stop_grace_s: float = 1.0
    metrics: MetricsMapping = VLLM
    numbers_prove_life: bool = True
    health_path: str = "/health"

    def validate(self, profile: Profile) -> list[CatalogProblem]:
        if not self.can_serve_on_cpu:
            return []
        return [
            CatalogProblem(f"{self.name} cannot have {key} above 1", key=key)
            for key in ("nodes", "tp", "pp")
            if getattr(profile, key) > 1
        ]

    def launch(self, request: LaunchRequest) -> Launch:
        raise NotImplementedError

    def architecture_question(self, found: EngineFacts, architecture: str) -> Question | None:
        return None

    def load_progress(self, log_tail: str) -> float | None:
        return None

    def failure_reason(self, log_tail: str, exit_status: int | None) -> str:
        return ""


ENGINES: Mapping[str, Engine] = {
    "llamacpp": StandIn("llamacpp", can_serve_on_cpu=True),
    "vllm": StandIn("vllm", can_serve_on_cpu=False),
}
