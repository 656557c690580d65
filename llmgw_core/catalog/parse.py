"""A raw ``[[models]]`` table -> Model, with everything that is wrong in it. Pure.

Rules that need more than one table stand in ``rules``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from llmgw_core.catalog.findings import Findings, Path, Place, bare, quoted
from llmgw_core.catalog.model import (
    DEFAULT_IDLE_TIMEOUT_S,
    DEFAULT_STARTUP_TIMEOUT_S,
    Model,
    Profile,
    RoutingProfile,
    Scaling,
    Slo,
)
from llmgw_core.catalog.secrets import masked_source
from llmgw_core.catalog.sources import read_source
from llmgw_core.catalog.tables import Table

MOST_REPLICAS = 10_000
"""Of one model: more is a slip of the hand, and would keep the planner busy."""
LONGEST_NAME = 256

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://.*")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A model as far as it could be read; None where it has no name."""

    model: Model | None
    findings: Findings


def parse_model(
    raw: Mapping[str, object], path: Path = ("models", 0), *, declared: bool = True
) -> Parsed:
    """Read one model table. Never raises: what cannot be used is reported and left at its default.

    Args:
        raw: the table, as TOML gives it.
        path: where it stands in its file.
        declared: whether that file is the configuration (else it was added at run time).
    """
    findings: Findings = []
    written = raw.get("name")
    known = isinstance(written, str) and written.strip() != ""
    label = f"model {quoted(str(written))}" if known else f"model {_ordinal(path)}"
    place = Place(path, label, model=str(written) if known else None)
    table = Table(raw, place, findings)
    name = _name(table)
    source = _source(table)
    model = Model(
        name=name or "",
        aliases=table.texts("aliases"),
        description=table.text("description", lines=True),
        context_length=table.whole("context_length", least=1),
        max_output=table.whole("max_output", least=1),
        source=source,
        scaling=_scaling(table.table("scaling")),
        slo=_slo(table.table("slo")),
        fallbacks=table.texts("fallbacks"),
        routing_profile=table.choice("routing_profile", RoutingProfile.CHAT),
        model_class=table.text("class", "standard"),
        owner=table.text("owner"),
        profiles=_profiles(table),
        declared=declared,
    )
    table.done()
    return Parsed(model if known else None, findings)


def _ordinal(path: Path) -> str:
    last = path[-1] if path else 0
    return f"#{last + 1}" if isinstance(last, int) else ""


def _name(table: Table) -> str | None:
    name = table.text("name")
    if not table.has("name"):
        table.wrong("name", "is missing: clients ask for a model by its name")
    elif name is not None and len(name) > LONGEST_NAME:
        table.wrong("name", f"is longer than {LONGEST_NAME} characters")
    return name


def _source(table: Table) -> str:
    source = table.text("source")
    if not table.has("source"):
        where = "mirror:…, hf:…, a URL, or a path on the node"
        table.wrong("source", f"is missing: say where the weights are ({where})")
    if source is None:
        return ""
    if wrong := _source_problem(source):
        table.wrong("source", f"{quoted(masked_source(source))} {wrong}")
    return source


def _source_problem(source: str) -> str | None:
    """What is wrong with the form of a source, or None."""
    if read_source(source) is None:
        if source.startswith("mirror:"):
            return "must read mirror:MODEL/VERSION or mirror:MODEL/VERSION/FILE"
        if source.startswith("hf:"):
            return "must read hf:ORG/REPO[@REVISION][:FILE]"
        return "has no host name"
    scheme = _SCHEME.fullmatch(source)
    if scheme is None or scheme[1].lower() in ("http", "https"):
        return None
    return "has an unknown scheme; use mirror:, hf:, http://, https:// or a path on the node"


def _scaling(table: Table) -> Scaling:
    least = max(table.whole("min", 0, least=None, most=MOST_REPLICAS), 0)
    most = table.whole("max", max(least, 1), most=MOST_REPLICAS)
    idle_s = table.seconds("idle_timeout", DEFAULT_IDLE_TIMEOUT_S) or DEFAULT_IDLE_TIMEOUT_S
    table.done()
    if most < least:
        table.wrong("max", f"= {most} is below scaling.min = {least}")
        most = least
    return Scaling(least, most, idle_s)


def _slo(table: Table) -> Slo:
    slo = Slo(
        ttft_p99_s=table.seconds("ttft_p99", zero=False),
        tpot_p99_s=table.seconds("tpot_p99", zero=False),
    )
    table.done()
    return slo


def _profiles(table: Table) -> tuple[Profile, ...]:
    entries = table.tables("profiles")
    if not entries and not (table.has("profiles") and table.raw["profiles"]):
        how = "add a [[models.profiles]] table that says how to run it"
        table.report("profiles", f"it has no profile: {how}")
    return tuple(_profile(table, index, raw) for index, raw in entries)


def _profile(parent: Table, index: int, raw: Mapping[str, object]) -> Profile:
    written = raw.get("name")
    known = isinstance(written, str) and written.strip() != ""
    place = Place(
        (*parent.place.path, "profiles", index),
        f"{parent.place.label}, profile {quoted(str(written)) if known else f'#{index + 1}'}",
        model=parent.place.model,
        profile=str(written) if known else None,
    )
    table = Table(raw, place, parent.findings)
    name = table.text("name")
    if not table.has("name"):
        table.report("name", "it has no name")
    engine = table.text("engine", "vllm")
    gpu_class = table.text("gpu_class")
    tp = table.whole("tp", 1) or 1
    pp = table.whole("pp", 1) or 1
    nodes = table.whole("nodes", 1) or 1
    profile = Profile(
        name=name or "",
        engine=engine,
        gpu_class=gpu_class,
        tp=tp,
        pp=pp,
        nodes=nodes,
        gpus_per_node=_gpus_per_node(table, gpu_class, tp * pp, nodes),
        args=table.texts("args", numbers=True),
        env=_env(table),
        weight=table.number("weight", 1.0) or 1.0,
        priority=table.whole("priority", 0),
        startup_timeout_s=table.seconds("startup_timeout", DEFAULT_STARTUP_TIMEOUT_S)
        or DEFAULT_STARTUP_TIMEOUT_S,
        min_memory_gb=table.number("min_memory_gb"),
        cpu_cores=table.number("cpu_cores"),
        node_selector=table.mapping("node_selector"),
    )
    table.done()
    return profile


def _gpus_per_node(table: Table, gpu_class: str | None, degree: int, nodes: int) -> int:
    """GPUs on each node; 0 on the CPU, and where the degrees do not divide (a rule says so)."""
    written = table.whole("gpus_per_node", 0)
    if gpu_class is None:
        return 0
    return written or (degree // nodes if degree % nodes == 0 else 0)


def _env(table: Table) -> dict[str, str]:
    env = table.mapping("env")
    for name in env:
        if not _ENV_NAME.fullmatch(name):
            table.report("env", f"{bare(f'env.{name}')} cannot name a variable")
    return env
