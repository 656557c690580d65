"""Models as people and scripts see them, and ``catalog check``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from llmgw_core.api.views import (
    Headroom,
    ModelView,
    ProfileView,
    ReplicaCount,
    ScalingView,
    SloView,
)
from llmgw_core.catalog.model import CatalogProblem, Model, Profile
from llmgw_core.catalog.overlay import Overlay, load_catalog
from llmgw_core.catalog.secrets import masked_args, masked_env, masked_source
from llmgw_core.config import Config
from llmgw_core.config_file import LoadedConfig, read_config

if TYPE_CHECKING:
    from llmgw_core.engines.base import Engine

_LIVE = ("replicas", "headroom", "state", "reason", "running", "waiting", "tokens_per_s",
         "requests_total", "tokens_history", "running_history", "waiting_history")  # fmt: skip


def profile_view(profile: Profile) -> ProfileView:
    """A profile with every default filled in and secrets hidden."""
    return ProfileView(
        name=profile.name,
        engine=profile.engine,
        gpu_class=profile.gpu_class,
        tp=profile.tp,
        pp=profile.pp,
        nodes=profile.nodes,
        gpus_per_node=profile.gpus_per_node,
        args=masked_args(profile.args),
        env=masked_env(profile.env),
        weight=profile.weight,
        priority=profile.priority,
        startup_timeout_s=profile.startup_timeout_s,
        min_memory_gb=profile.min_memory_gb,
        cpu_cores=profile.cpu_cores,
        node_selector=dict(profile.node_selector),
    )


def view(
    model: Model,
    *,
    replicas: ReplicaCount,
    headroom: Headroom | None = None,
    state: str = "",
    reason: str = "",
    running: int | None = None,
    waiting: int | None = None,
    tokens_per_s: float | None = None,
    requests_total: int | None = None,
    tokens_history: tuple[float | None, ...] = (),
    running_history: tuple[float | None, ...] = (),
    waiting_history: tuple[float | None, ...] = (),
) -> ModelView:
    """A model's row: what the catalog says, and what is measured."""
    return ModelView(
        name=model.name,
        aliases=model.aliases,
        mode=str(model.scaling.mode),
        scaling=ScalingView(model.scaling.min, model.scaling.max, model.scaling.idle_timeout_s),
        model_class=model.model_class,
        owner=model.owner,
        replicas=replicas,
        headroom=headroom or Headroom(),
        profiles=tuple(profile_view(profile) for profile in model.profiles),
        declared=model.declared,
        source=masked_source(model.source),
        description=model.description,
        context_length=model.context_length,
        max_output=model.max_output,
        slo=SloView(model.slo.ttft_p99_s, model.slo.tpot_p99_s),
        fallbacks=model.fallbacks,
        routing_profile=str(model.routing_profile),
        state=state,
        reason=reason,
        running=running,
        waiting=waiting,
        tokens_per_s=tokens_per_s,
        requests_total=requests_total,
        tokens_history=tokens_history,
        running_history=running_history,
        waiting_history=waiting_history,
        changed_by=model.changed_by,
        changed_at=model.changed_at,
    )


def normalised(model: Model) -> dict[str, object]:
    """A model with every default filled in, as ``catalog check --json`` prints it."""
    row: dict[str, object] = msgspec.to_builtins(view(model, replicas=ReplicaCount(0, 0)))
    return {key: value for key, value in row.items() if key not in _LIVE}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What ``catalog check`` found: all errors, and the models in which there is none."""

    ok: bool
    errors: tuple[CatalogProblem, ...]
    models: tuple[Model, ...]

    def to_json(self) -> dict[str, object]:
        """``{ok, errors: [{file, model, profile, key, message}], models: […]}``."""
        return {
            "ok": self.ok,
            "errors": [
                {
                    "file": error.file,
                    "model": error.model,
                    "profile": error.profile,
                    "key": error.key,
                    "message": error.message,
                }
                for error in self.errors
            ],
            "models": [normalised(model) for model in self.models],
        }


def check(
    path: Path | None,
    overlay_dir: Path | None = None,
    engines: Mapping[str, Engine] | None = None,
) -> CheckResult:
    """Validate a configuration and the models added at run time, without a node.

    The configuration must hold by itself: a declared model cannot rely on an added one. Where it
    does not, the added models are read all the same, and judged once it does.
    """
    loaded = LoadedConfig(Config()) if path is None else read_config(path, engines)
    errors, models = loaded.problems, loaded.sound_models
    if overlay_dir is not None:
        overlay = Overlay(overlay_dir)
        if loaded.config is None:
            added, problems = overlay.load()
            models += added
        else:
            catalog = load_catalog(loaded.config, overlay, engines)
            models, problems = catalog.catalog.models, catalog.problems
        errors += problems
    return CheckResult(not errors, errors, models)
