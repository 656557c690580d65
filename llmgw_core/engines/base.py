"""The protocol that every engine module satisfies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from llmgw_core.catalog.model import CatalogProblem, Profile
from llmgw_core.engines.verdict import Question
from llmgw_core.metrics.mapping import MetricsMapping
from llmgw_core.nodes.facts import EngineFacts


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What the controller decided about one replica."""

    model: str
    """The name the engine must serve under."""
    source: str
    """Absolute path of the weights on the node (a file, or a folder ending in ``/``)."""
    profile: Profile
    found: EngineFacts
    """The engine on the node that is to run."""
    host: str
    """Address to listen on."""
    port: int
    api_key: str
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start it: ``{dir}`` stands for the instance's directory on the node.

    Secrets stand in ``files`` or ``env``, never in ``argv``.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


class Engine(Protocol):
    """One program that serves one model over the OpenAI API."""

    name: str
    can_serve_on_cpu: bool
    stop_grace_s: float
    """Time between SIGTERM and SIGKILL."""
    metrics: MetricsMapping
    numbers_prove_life: bool
    """Whether its metrics come from the loop that makes tokens, so that an idle engine that tells
    them lives."""
    health_path: str
    """Answers 200 without a key once the model is loaded."""

    def validate(self, profile: Profile) -> list[CatalogProblem]:
        """What of this profile the engine cannot do; ``key`` names the profile's key."""
        ...

    def launch(self, request: LaunchRequest) -> Launch:
        """The command for a replica.

        Raises:
            InvalidInput: an argument that this engine, as found on the node, does not know.
        """
        ...

    def architecture_question(self, found: EngineFacts, architecture: str) -> Question | None:
        """How to ask this engine on its node whether it can load an architecture.

        None where it cannot be asked, or no architecture can have that name.
        """
        ...

    def load_progress(self, log_tail: str) -> float | None:
        """How far loading is, 0 to 1, as the log shows it; None where it does not."""
        ...

    def failure_reason(self, log_tail: str, exit_status: int | None) -> str:
        """One sentence on why it ended, for a person: a taken port, a missing or broken file…"""
        ...
