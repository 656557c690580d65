"""The configuration file: where it is, and TOML -> one validated ``Config``.

All that is wrong is found in one reading and reported together.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from llmgw_core.catalog.documents import Document, parse_document, read_document
from llmgw_core.catalog.findings import ConfigProblems, Finding, Findings, Place, quoted
from llmgw_core.catalog.model import CatalogProblem, Model
from llmgw_core.catalog.parse import parse_model
from llmgw_core.catalog.rules import Known, built_in_engines, check_models, known_words
from llmgw_core.catalog.tables import Table
from llmgw_core.config import (
    DEFAULT_CLASSES,
    ClassConfig,
    Config,
    ConsoleConfig,
    ControllerConfig,
    GatewayConfig,
    MirrorConfig,
    OwnerConfig,
)
from llmgw_core.config_nodes import parse_nodes
from llmgw_core.errors import InvalidInput

if TYPE_CHECKING:
    from llmgw_core.engines.base import Engine

__all__ = [
    "ConfigProblems",
    "LoadedConfig",
    "find_config",
    "known_words",
    "load_config",
    "parse_config",
    "read_config",
]

DEFAULT_CLUSTER = Config().cluster


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """What a file says: the configuration, or everything that is wrong with it."""

    config: Config | None
    problems: tuple[CatalogProblem, ...] = ()
    sound_models: tuple[Model, ...] = ()
    """The models in which nothing is wrong, whatever else is."""


def find_config(explicit: Path | None = None) -> Path | None:
    """The configuration file: as given, else $LLMGW_CONFIG, else the user's own, if it exists.

    Raises:
        InvalidInput: a file was named, and it is not there.
    """
    if explicit is not None:
        return _existing(explicit, "")
    from_env = os.environ.get("LLMGW_CONFIG")
    if from_env:
        return _existing(Path(from_env), " (named by LLMGW_CONFIG)")
    import platformdirs

    usual = Path(platformdirs.user_config_dir("llmgw")) / "config.toml"
    return usual if usual.is_file() else None


def _existing(path: Path, how: str) -> Path:
    path = path.expanduser()
    if not path.exists():
        raise InvalidInput(
            f"there is no configuration file {path}{how}",
            hint="check the name, or copy config.example.toml there",
        )
    return path


def load_config(path: Path | None, engines: Mapping[str, Engine] | None = None) -> Config:
    """The configuration in a file; the defaults where there is none.

    Raises:
        ConfigProblems: with everything that is wrong in the file.
    """
    if path is None:
        return Config()
    loaded = read_config(path, engines)
    if loaded.config is None:
        raise ConfigProblems(loaded.problems)
    return loaded.config


def read_config(path: Path, engines: Mapping[str, Engine] | None = None) -> LoadedConfig:
    """Read and validate a file. Never raises for what the file holds: see ``problems``."""
    return _load(read_document(path), path, engines)


def parse_config(
    text: str, path: Path | None = None, engines: Mapping[str, Engine] | None = None
) -> LoadedConfig:
    """As ``read_config``, from a text; ``path`` is the name that problems carry."""
    return _load(parse_document(text, str(path) if path else None), path, engines)


def _load(
    document: Document, path: Path | None, engines: Mapping[str, Engine] | None
) -> LoadedConfig:
    if document.table is None:
        return LoadedConfig(None, (document.problem,) if document.problem else ())
    engines = built_in_engines() if engines is None else engines
    findings: Findings = []
    top = Table(document.table, Place(), findings)
    config = Config(
        path=path,
        cluster=_cluster(top),
        gateway=_gateway(top.table("gateway")),
        mirror=_mirror(top.table("mirror")),
        controller=_controller(top.table("controller")),
        console=_console(top.table("console")),
        nodes=parse_nodes(top, engines),
        classes=_classes(top),
        owners=_owners(top),
    )
    models, sound = _models(top, known_words(config, engines))
    top.done()
    if findings:
        return LoadedConfig(None, tuple(document.problems(findings)), sound)
    return LoadedConfig(replace(config, models=models), (), models)


def _models(top: Table, known: Known) -> tuple[tuple[Model, ...], tuple[Model, ...]]:
    """All models of the file, and those in which nothing is wrong."""
    models: list[Model] = []
    indices: list[int] = []
    found: Findings = []
    for index, raw in top.tables("models"):
        parsed = parse_model(raw, ("models", index))
        found += parsed.findings
        if parsed.model is not None:
            models.append(parsed.model)
            indices.append(index)
    said = {finding.place.path for finding in found}
    ruled = check_models(models, known, lambda i: ("models", indices[i]))
    # a key that could not be read was left at its default: what rules say of that is no news
    found += [finding for finding in ruled if finding.place.path not in said]
    top.findings.extend(found)
    wrong = _indices(found)
    sound = [model for model, index in zip(models, indices, strict=True) if index not in wrong]
    return tuple(models), tuple(sound)


def _indices(findings: Iterable[Finding]) -> set[object]:
    return {finding.place.path[1] for finding in findings if len(finding.place.path) > 1}


def _cluster(top: Table) -> str:
    """``cluster = "name"``, or ``name`` in a ``[cluster]`` table."""
    if not isinstance(top.raw.get("cluster"), dict):
        return top.text("cluster", DEFAULT_CLUSTER)
    inner = top.table("cluster")
    name = inner.text("name", DEFAULT_CLUSTER)
    inner.done()
    return name


def _gateway(table: Table) -> GatewayConfig:
    usual = GatewayConfig()
    config = GatewayConfig(
        host=table.text("host", usual.host),
        port=table.whole("port", usual.port, most=65535),
        drain_timeout_s=table.seconds("drain_timeout", usual.drain_timeout_s),
        connect_timeout_s=table.seconds("connect_timeout", usual.connect_timeout_s, zero=False),
        first_byte_timeout_s=table.seconds(
            "first_byte_timeout", usual.first_byte_timeout_s, zero=False
        ),
        idle_timeout_s=table.seconds("idle_timeout", usual.idle_timeout_s, zero=False),
        max_body_mb=table.number("max_body_mb", usual.max_body_mb),
    )
    if config.max_body_mb == 0:
        table.wrong("max_body_mb", "must be more than 0")
    table.done()
    return config


def _mirror(table: Table) -> MirrorConfig:
    usual = MirrorConfig()
    config = MirrorConfig(
        path=table.text("path"),
        host=table.text("host", usual.host),
        port=table.whole("port", usual.port, most=65535),
        url=table.text("url"),
        rate_limit_mb_s=table.number("rate_limit_mb_s") or None,
        hub_endpoint=table.text("hub_endpoint"),
    )
    for key in ("url", "hub_endpoint"):
        said = getattr(config, key)
        if said and not said.lower().startswith(("http://", "https://")):
            table.wrong(key, "must begin with http:// or https://")
    table.done()
    return config


def _controller(table: Table) -> ControllerConfig:
    usual = ControllerConfig()
    config = ControllerConfig(
        tick_s=table.seconds("tick", usual.tick_s, zero=False),
        node_grace_s=table.seconds("node_grace", usual.node_grace_s),
        health_interval_s=table.seconds("health_interval", usual.health_interval_s, zero=False),
        health_timeout_s=table.seconds("health_timeout", usual.health_timeout_s, zero=False),
        unresponsive_s=table.seconds("unresponsive", usual.unresponsive_s, zero=False),
    )
    table.done()
    return config


def _console(table: Table) -> ConsoleConfig:
    config = ConsoleConfig(theme=table.text("theme"), keys=table.mapping("keys"))
    table.done()
    return config


def _named(top: Table, key: str, one: str) -> list[tuple[str, Table]]:
    """The tables of a list whose entries have unique names."""
    found: list[tuple[str, Table]] = []
    names: set[str] = set()
    for index, raw in top.tables(key):
        written = raw.get("name")
        shown = quoted(written) if isinstance(written, str) and written else f"#{index + 1}"
        table = Table(raw, Place((key, index), f"{one} {shown}"), top.findings)
        name = table.text("name", "")
        if not table.has("name"):
            table.wrong("name", "is missing")
        elif name and name in names:
            table.report("name", "it is declared twice")
        names.add(name)
        found.append((name, table))
    return found


def _classes(top: Table) -> tuple[ClassConfig, ...]:
    """The classes written out, or the usual three where none is."""
    classes: list[ClassConfig] = []
    for name, table in _named(top, "classes", "class"):
        rank = table.whole("rank", 0)
        if not table.has("rank"):
            table.wrong("rank", "is missing: a higher rank may preempt a lower one")
        table.done()
        classes.append(ClassConfig(name, rank))
    return tuple(classes) if top.raw.get("classes") else DEFAULT_CLASSES


def _owners(top: Table) -> tuple[OwnerConfig, ...]:
    owners: list[OwnerConfig] = []
    for name, table in _named(top, "owners", "owner"):
        owners.append(
            OwnerConfig(
                name=name,
                replicas=table.whole("replicas"),
                gpus=table.whole("gpus"),
                memory_gb=table.number("memory_gb"),
                cores=table.number("cores"),
                requests_per_minute=table.whole("requests_per_minute"),
                requests_per_day=table.whole("requests_per_day"),
                tokens_per_minute=table.whole("tokens_per_minute"),
                tokens_per_day=table.whole("tokens_per_day"),
            )
        )
        table.done()
    return tuple(owners)
