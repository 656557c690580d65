"""Changes to added models, as pure functions: catalog and change in, the new model out.

Each returns the very model it found where nothing would change. Else the result carries who
changed it (``actor``) and when (``now``, Unix seconds), and the caller stores it.

All raise NotFound where no model has that name or alias, Refused where it is declared in the
configuration, and InvalidInput for values that cannot be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from llmgw_core.catalog.documents import parse_document
from llmgw_core.catalog.findings import (
    ConfigProblems,
    Finding,
    Findings,
    Place,
    closest,
    listed,
    quoted,
)
from llmgw_core.catalog.model import DEFAULT_IDLE_TIMEOUT_S, Catalog, Mode, Model, Profile, Scaling
from llmgw_core.catalog.parse import MOST_REPLICAS, parse_model
from llmgw_core.catalog.rules import check_models, known_words
from llmgw_core.catalog.tables import Table
from llmgw_core.errors import InvalidInput, NotFound, Refused

if TYPE_CHECKING:
    from llmgw_core.config import Config
    from llmgw_core.engines.base import Engine


class Unset(Enum):
    """A value that was not given, where None means that it is to be cleared."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


def find(catalog: Catalog, name: str) -> Model:
    """The model of a name or alias.

    Raises:
        NotFound: there is none; the nearest name is suggested.
    """
    model = catalog.find(name)
    if model is None:
        raise NotFound(f"there is no model {quoted(name)}{closest(name, catalog.names())}")
    return model


def find_added(catalog: Catalog, name: str, file: str | None = None) -> Model:
    """As ``find``, for a model that may be changed here; ``file`` names the configuration.

    Raises:
        Refused: it is declared.
    """
    model = find(catalog, name)
    if model.declared:
        where = file or "config.toml"
        raise Refused(f"model {quoted(model.name)} is declared in {where}; change it there")
    return model


def stamped(old: Model, new: Model, actor: str, now: float) -> Model:
    """The new model with who made it and when; the old one itself where nothing differs."""
    return old if new == old else replace(new, changed_by=actor, changed_at=now)


def scale(
    catalog: Catalog,
    name: str,
    *,
    mode: str | None = None,
    replicas: int | None = None,
    delta: int | None = None,
    idle_s: float | None = None,
    actor: str,
    now: float,
    file: str | None = None,
) -> Model:
    """Change a model's run mode, its count, or both; what is not given stays as it is.

    Args:
        mode: ``always``, ``ondemand`` or ``stopped``; a count below 1 then counts as 1.
        replicas: without a mode, 0 stops the model, and more of a stopped one are always there.
        delta: one more or one less, in place of mode and replicas. An always model that comes to
            0 is stopped, a stopped one that gets some has them always, and an on-demand model
            keeps at least 1.
        idle_s: how long an on-demand model may idle; 0 means the default.
    """
    model = find_added(catalog, name, file)
    given = (mode, replicas, delta, idle_s)
    if all(value is None for value in given):
        raise InvalidInput("nothing to change: give a mode, a number of replicas, or an idle time")
    if delta is not None and (mode is not None or replicas is not None):
        raise InvalidInput("give either a difference, or a mode and a number of replicas")
    if idle_s is not None and (idle_s < 0 or not math.isfinite(idle_s)):
        raise InvalidInput("the idle time must not be negative")
    idle = model.scaling.idle_timeout_s if idle_s is None else idle_s
    if delta is not None:
        scaling = _shifted(model.scaling, delta, idle)
    elif mode is not None:
        count = _count(model.scaling) if replicas is None else replicas
        scaling = Scaling.for_mode(_mode(mode), count, idle)
    elif replicas is not None:
        scaling = _counted(model.scaling, replicas, idle)
    else:
        scaling = replace(model.scaling, idle_timeout_s=idle or DEFAULT_IDLE_TIMEOUT_S)
    if scaling.max > MOST_REPLICAS:
        raise InvalidInput(f"a model can have {MOST_REPLICAS} replicas at most")
    return stamped(model, replace(model, scaling=scaling), actor, now)


def _mode(word: str) -> Mode:
    try:
        return Mode(word.strip().lower().replace("-", "").replace(" ", ""))
    except ValueError:
        modes = [str(mode) for mode in Mode]
        raise InvalidInput(
            f"{quoted(word)} is not a run mode: use one of {listed(modes)}"
        ) from None


def _count(scaling: Scaling) -> int:
    """How many replicas people would say the model has."""
    return scaling.min if scaling.mode is Mode.ALWAYS else scaling.max


def _shifted(scaling: Scaling, delta: int, idle_s: float) -> Scaling:
    count = _count(scaling) + delta
    if scaling.mode is Mode.ON_DEMAND:
        return Scaling.for_mode(Mode.ON_DEMAND, count, idle_s)
    return Scaling.for_mode(Mode.ALWAYS if count > 0 else Mode.STOPPED, count, idle_s)


def _counted(scaling: Scaling, replicas: int, idle_s: float) -> Scaling:
    if replicas < 0:
        raise InvalidInput("the number of replicas must not be negative")
    if replicas == 0:
        return Scaling.for_mode(Mode.STOPPED, 0, idle_s)
    mode = Mode.ALWAYS if scaling.mode is Mode.STOPPED else scaling.mode
    return Scaling.for_mode(mode, replicas, idle_s)


def set_class(
    catalog: Catalog, name: str, model_class: str, config: Config, *, actor: str, now: float
) -> Model:
    """Give a model another class, one of the configuration's."""
    model = find_added(catalog, name, _file(config))
    classes = [c.name for c in config.classes]
    if model_class not in classes:
        hint = closest(model_class, classes) or f"; the classes are {listed(classes)}"
        raise InvalidInput(f"class {quoted(model_class)} is unknown{hint}")
    return stamped(model, replace(model, model_class=model_class), actor, now)


def set_owner(
    catalog: Catalog, name: str, owner: str | None, config: Config, *, actor: str, now: float
) -> Model:
    """Give a model to an owner of the configuration, or to nobody (None or empty)."""
    model = find_added(catalog, name, _file(config))
    owners = [o.name for o in config.owners]
    if owner and owner not in owners:
        hint = closest(owner, owners) or "; declare it in an [[owners]] table first"
        raise InvalidInput(f"owner {quoted(owner)} is unknown{hint}")
    return stamped(model, replace(model, owner=owner or None), actor, now)


def set_resources(
    catalog: Catalog,
    name: str,
    profile: str | None = None,
    *,
    min_memory_gb: float | Unset | None = UNSET,
    cpu_cores: float | Unset | None = UNSET,
    actor: str,
    now: float,
    file: str | None = None,
) -> Model:
    """Change what a replica reserves on its node: GiB of memory, cores. None clears a value.

    ``profile`` may be left out where the model has a single one.
    """
    model = find_added(catalog, name, file)
    if isinstance(min_memory_gb, Unset) and isinstance(cpu_cores, Unset):
        raise InvalidInput("nothing to change: give min_memory_gb, cpu_cores, or both")
    target = _profile(model, profile)
    resized = target
    if not isinstance(min_memory_gb, Unset):
        resized = replace(resized, min_memory_gb=_amount("min_memory_gb", min_memory_gb))
    if not isinstance(cpu_cores, Unset):
        resized = replace(resized, cpu_cores=_amount("cpu_cores", cpu_cores))
    profiles = tuple(resized if p is target else p for p in model.profiles)
    return stamped(model, replace(model, profiles=profiles), actor, now)


def _profile(model: Model, name: str | None) -> Profile:
    names = [p.name for p in model.profiles]
    if name is None:
        if len(model.profiles) != 1:
            raise InvalidInput(
                f"model {quoted(model.name)} has several profiles; name one of {listed(names)}"
            )
        return model.profiles[0]
    profile = model.profile(name)
    if profile is None:
        hint = closest(name, names) or f"; it has {listed(names)}"
        raise NotFound(f"model {quoted(model.name)} has no profile {quoted(name)}{hint}")
    return profile


def _amount(key: str, value: float | None) -> float | None:
    if value is not None and not 0 <= value < math.inf:
        raise InvalidInput(f"{key} must be a number that is not negative")
    return None if value is None else float(value)


def add(
    catalog: Catalog,
    toml_text: str,
    config: Config,
    *,
    actor: str,
    now: float,
    engines: Mapping[str, Engine] | None = None,
) -> Model:
    """A new model from one ``[[models]]`` table.

    Raises:
        ConfigProblems: with everything that is wrong in the text.
        Refused: a model of that name is declared, or was added before.
    """
    model = parse_one(toml_text)
    other = next((m for m in catalog if m.name == model.name), None)
    if other is not None and other.declared:
        raise Refused(
            f"model {quoted(model.name)} is declared in {_file(config)}; "
            "change it there, or choose another name"
        )
    if other is not None:
        raise Refused(f"model {quoted(model.name)} was added already; edit it instead")
    _check_among(catalog, catalog.models, model, config, engines)
    return replace(model, changed_by=actor, changed_at=now)


def edit(
    catalog: Catalog,
    name: str,
    toml_text: str,
    config: Config,
    *,
    actor: str,
    now: float,
    engines: Mapping[str, Engine] | None = None,
) -> Model:
    """An added model as a new ``[[models]]`` table says. The name stays.

    Raises:
        ConfigProblems: with everything that is wrong in the text.
    """
    old = find_added(catalog, name, _file(config))
    model = parse_one(toml_text)
    if model.name != old.name:
        raise InvalidInput(
            f"an edit cannot rename {quoted(old.name)} to {quoted(model.name)}; "
            "add the new one and remove the old one"
        )
    others = tuple(m for m in catalog if m is not old)
    _check_among(catalog, others, model, config, engines)
    new = replace(model, changed_by=old.changed_by, changed_at=old.changed_at)
    return stamped(old, new, actor, now)


def remove(catalog: Catalog, name: str, file: str | None = None) -> Model:
    """The model that may be removed.

    Raises:
        Refused: another added model falls back on it.
    """
    model = find_added(catalog, name, file)
    users = [
        other.name
        for other in catalog
        if other is not model and any(catalog.find(f) is model for f in other.fallbacks)
    ]
    if users:
        raise Refused(
            f"model {quoted(model.name)} is a fallback of {listed(users)}; change that first"
        )
    return model


def parse_one(toml_text: str) -> Model:
    """The model of a text that holds one ``[[models]]`` table; rules are not checked yet.

    Raises:
        ConfigProblems: with everything that is wrong in the text.
    """
    document = parse_document(toml_text)
    if document.problem is not None or document.table is None:
        raise ConfigProblems([document.problem] if document.problem else [])
    findings: Findings = []
    top = Table(document.table, Place(), findings)
    tables = top.tables("models")
    top.done()
    if len(tables) != 1 and not findings:
        text = f"give one model, headed [[models]]; this text holds {len(tables)}"
        findings.append(Finding(text, Place(("models",)), "models"))
    parsed = [parse_model(raw, ("models", i), declared=False) for i, raw in tables]
    findings += [finding for one in parsed for finding in one.findings]
    if findings or parsed[0].model is None:
        raise ConfigProblems(document.problems(findings))
    return parsed[0].model


def _check_among(
    catalog: Catalog,
    others: tuple[Model, ...],
    model: Model,
    config: Config,
    engines: Mapping[str, Engine] | None,
) -> None:
    """Refuse what this model would make wrong, in itself or in another."""
    known = known_words(config, engines)
    before = {_essence(finding) for finding in check_models(catalog.models, known)}
    after = check_models((*others, model), known)
    news = [f for f in after if f.place.model == model.name or _essence(f) not in before]
    if news:
        raise ConfigProblems([finding.problem(None, None) for finding in news])


def _essence(finding: Finding) -> tuple[str, str]:
    return finding.place.label, finding.text


def _file(config: Config) -> str:
    return str(config.path) if config.path else "config.toml"
