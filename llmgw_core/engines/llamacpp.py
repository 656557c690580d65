"""llama.cpp's server: ``llama-server`` where a node has it, else our launcher over xllamacpp."""

from __future__ import annotations

from dataclasses import dataclass

from llmgw_core.catalog.model import CatalogProblem, Profile
from llmgw_core.engines.base import Launch, LaunchRequest
from llmgw_core.engines.words import ended
from llmgw_core.metrics.mapping import LLAMACPP, MetricsMapping


@dataclass(slots=True)
class LlamaCpp:
    """llama.cpp's server on one node; it runs on the processor alone, or with GPUs."""

    name: str = "llamacpp"
    can_serve_on_cpu: bool = True
    stop_grace_s: float = 10.0
    metrics: MetricsMapping = LLAMACPP
    health_path: str = "/health"

    def validate(self, profile: Profile) -> list[CatalogProblem]:
        """Degrees and nodes above 1, which llama.cpp would accept and not do."""
        return [
            CatalogProblem(
                f"llamacpp cannot have {key} = {value}: it serves from one machine and splits over "
                f"that machine's GPUs by itself; leave {key} out",
                key=key,
            )
            for key, value in (("nodes", profile.nodes), ("tp", profile.tp), ("pp", profile.pp))
            if value > 1
        ]

    def launch(self, request: LaunchRequest) -> Launch:
        """The command for a replica."""
        raise NotImplementedError

    def load_progress(self, log_tail: str) -> float | None:
        """llama.cpp's log does not say how far it is."""
        return None

    def failure_reason(self, log_tail: str, exit_status: int | None) -> str:
        """One sentence on why it ended."""
        return ended("llama.cpp's server", exit_status, log_tail)
