"""Rules of the catalog that need more than one table. Pure: values in, findings out.

``Model`` is the i-th of its list; its findings point at ``path_of(i)``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmgw_core.catalog.findings import Finding, Path, Place, closest, listed, quoted
from llmgw_core.catalog.model import CatalogProblem, Model, Profile

if TYPE_CHECKING:
    from llmgw_core.config import Config
    from llmgw_core.engines.base import Engine


def built_in_engines() -> Mapping[str, Engine]:
    """The engines that this llmgw knows, by name."""
    from llmgw_core.engines.registry import ENGINES

    return ENGINES


@dataclass(frozen=True, slots=True)
class Known:
    """The words that a model may use for its class, owner and engines."""

    classes: Collection[str]
    owners: Collection[str]
    engines: Mapping[str, Engine]


def known_words(config: Config, engines: Mapping[str, Engine] | None = None) -> Known:
    """The classes, owners and engines that models may name under this configuration."""
    return Known(
        classes=tuple(c.name for c in config.classes),
        owners=tuple(o.name for o in config.owners),
        engines=built_in_engines() if engines is None else engines,
    )


def model_place(model: Model, path: Path) -> Place:
    """Where a model stands, and how a sentence calls it."""
    return Place(path, f"model {quoted(model.name)}", model=model.name)


def _declared_path(index: int) -> Path:
    return ("models", index)


def check_models(
    models: Sequence[Model], known: Known, path_of: Callable[[int], Path] = _declared_path
) -> list[Finding]:
    """All that is wrong among these models, in their order."""
    findings: list[Finding] = []
    for index, model in enumerate(models):
        findings += check_model(model, known, path_of(index))
    findings += check_names(models, path_of)
    findings += check_fallbacks(models, path_of)
    return findings


def check_model(model: Model, known: Known, path: Path = ("models", 0)) -> Iterator[Finding]:
    """What is wrong with one model by itself, given the words that are known."""
    place = model_place(model, path)
    if model.model_class not in known.classes:
        hint = (
            closest(model.model_class, known.classes)
            or f"; the classes are {listed(known.classes)}"
        )
        yield Finding(
            f"class {quoted(model.model_class)} is unknown{hint}", place.at("class"), "class"
        )
    if model.owner is not None and model.owner not in known.owners:
        hint = closest(model.owner, known.owners) or "; declare it in an [[owners]] table"
        yield Finding(f"owner {quoted(model.owner)} is unknown{hint}", place.at("owner"), "owner")
    seen: set[str] = set()
    for index, profile in enumerate(model.profiles):
        at = _profile_place(place, profile, index)
        if profile.name and profile.name in seen:
            text = "it is declared twice in this model"
            yield Finding(text, at.at("name"), "name")
        seen.add(profile.name)
        yield from check_profile(profile, known.engines, at)


def _profile_place(place: Place, profile: Profile, index: int) -> Place:
    name = quoted(profile.name) if profile.name else f"#{index + 1}"
    label = f"{place.label}, profile {name}"
    return Place(
        (*place.path, "profiles", index), label, model=place.model, profile=profile.name or None
    )


def check_profile(
    profile: Profile, engines: Mapping[str, Engine], place: Place
) -> Iterator[Finding]:
    """What of a profile no engine, or this engine, can do."""
    engine = engines.get(profile.engine)
    if engine is None:
        hint = closest(profile.engine, engines) or f"; the engines are {listed(sorted(engines))}"
        text = f"engine {quoted(profile.engine)} is unknown{hint}"
        yield Finding(text, place.at("engine"), "engine")
    elif profile.on_cpu and not engine.can_serve_on_cpu:
        able = listed(sorted(name for name, other in engines.items() if other.can_serve_on_cpu))
        yield Finding(
            f"gpu_class is missing: {profile.engine} cannot serve without a GPU; name the GPU "
            f"class it needs, or choose an engine that can ({able})",
            place.at("gpu_class"),
            "gpu_class",
        )
        return
    shape = list(_check_shape(profile, place))
    yield from shape
    if engine is not None:
        said = {finding.key for finding in shape}
        for problem in engine.validate(profile):
            if problem.key not in said:
                yield _from_engine(problem, place)


def _from_engine(problem: CatalogProblem, place: Place) -> Finding:
    steps = problem.key.split(".") if problem.key else []
    return Finding(problem.message, place.at(*steps), problem.key)


def _check_shape(profile: Profile, place: Place) -> Iterator[Finding]:
    """Whether nodes, degrees and GPUs agree."""
    if profile.on_cpu:
        for key, value in (("nodes", profile.nodes), ("tp", profile.tp), ("pp", profile.pp)):
            if value > 1:
                text = (
                    f"{key} = {value} needs GPUs: a profile on the CPU runs on one node, with tp "
                    "and pp 1; set gpu_class or leave this out"
                )
                yield Finding(text, place.at(key), key)
        return
    degree = profile.tp * profile.pp
    product = f"tp × pp = {profile.tp} × {profile.pp} = {degree}"
    if profile.gpus_per_node == 0:
        if degree % profile.nodes:
            text = f"{product} cannot be divided over nodes = {profile.nodes}"
            yield Finding(text, place.at("nodes"), "nodes")
    elif profile.nodes * profile.gpus_per_node != degree:
        text = (
            f"nodes × gpus_per_node = {profile.nodes} × {profile.gpus_per_node} = "
            f"{profile.nodes * profile.gpus_per_node} does not equal {product}"
        )
        yield Finding(text, place.at("gpus_per_node"), "gpus_per_node")


def check_names(
    models: Sequence[Model], path_of: Callable[[int], Path] = _declared_path
) -> Iterator[Finding]:
    """Names and aliases are one namespace: each may stand for one model."""
    first: dict[str, int] = {}
    for index, model in enumerate(models):
        if model.name in first:
            text = "it is declared twice"
            yield Finding(text, model_place(model, path_of(index)).at("name"), "name")
        first.setdefault(model.name, index)
    claimed: dict[str, Model] = {}
    for index, model in enumerate(models):
        place = model_place(model, path_of(index)).at("aliases")
        for alias in model.aliases:
            if alias in first:
                whose = "its own name" if alias == model.name else "also a model's name"
                text = f"alias {quoted(alias)} is {whose}"
            elif claimed.get(alias) is model:
                text = f"alias {quoted(alias)} is listed twice"
            elif alias in claimed:
                other = claimed[alias].name
                text = f"alias {quoted(alias)} is claimed by model {quoted(other)} as well"
            else:
                claimed[alias] = model
                continue
            yield Finding(text, place, "aliases")


def check_fallbacks(
    models: Sequence[Model], path_of: Callable[[int], Path] = _declared_path
) -> Iterator[Finding]:
    """Every fallback names another model, by name or alias."""
    names = {model.name for model in models}
    owner_of: dict[str, str] = {}
    for model in models:
        for alias in model.aliases:
            owner_of.setdefault(alias, model.name)
    owner_of |= {name: name for name in names}
    for index, model in enumerate(models):
        place = model_place(model, path_of(index)).at("fallbacks")
        seen: set[str] = set()
        for fallback in model.fallbacks:
            target = owner_of.get(fallback)
            if target is None:
                hint = closest(fallback, owner_of)
                text = f"fallback {quoted(fallback)} is neither a model nor an alias{hint}"
            elif target == model.name:
                text = f"fallback {quoted(fallback)} is the model itself"
            else:
                continue
            if fallback not in seen:
                yield Finding(text, place, "fallbacks")
            seen.add(fallback)
