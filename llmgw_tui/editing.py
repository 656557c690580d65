"""An added model as the serve form, and back, keeping what the form does not have. Pure."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, replace
from itertools import zip_longest

from llmgw_core.api.views import ModelView, ProfileView
from llmgw_core.catalog.canonical import model_toml
from llmgw_core.catalog.durations import format_duration
from llmgw_core.catalog.model import Model, Profile, RoutingProfile, Scaling, Slo
from llmgw_core.catalog.parse import parse_model
from llmgw_core.catalog.secrets import HIDDEN
from llmgw_core.serve.form import ServeForm, toml

_OPTIONS = {
    "ctx_pool": ("--ctx-size", "-c"),
    "parallel": ("--parallel", "-np"),
    "cache_ram": ("--cache-ram", "-cram"),
    "kv_type": ("--cache-type-k", "-ctk"),
}
"""The engine's options that are fields of the form, each with its short spelling."""
_VALUE_TYPE = ("--cache-type-v", "-ctv")


def hidden_in(view: ModelView) -> list[str]:
    """What the console is not shown of a model, and so could not write back."""
    found = []
    for profile in view.profiles:
        found += [name for name, value in profile.env.items() if HIDDEN in value]
        found += [f"an argument of {profile.name}" for arg in profile.args if HIDDEN in arg]
    if HIDDEN in view.source:
        found.append("its source")
    return found


def model_of(view: ModelView) -> Model:
    """The catalog entry that a view shows."""
    return Model(
        name=view.name, source=view.source, aliases=view.aliases, description=view.description,
        context_length=view.context_length, max_output=view.max_output,
        scaling=Scaling(view.scaling.min, view.scaling.max, view.scaling.idle_timeout_s),
        slo=Slo(view.slo.ttft_p99_s, view.slo.tpot_p99_s), fallbacks=view.fallbacks,
        routing_profile=RoutingProfile(view.routing_profile), model_class=view.model_class,
        owner=view.owner, profiles=tuple(map(_profile_of, view.profiles)), declared=False,
    )  # fmt: skip


def _profile_of(view: ProfileView) -> Profile:
    return Profile(
        name=view.name, engine=view.engine, gpu_class=view.gpu_class, tp=view.tp, pp=view.pp,
        nodes=view.nodes, gpus_per_node=view.gpus_per_node, args=view.args, env=dict(view.env),
        weight=view.weight, priority=view.priority, startup_timeout_s=view.startup_timeout_s,
        min_memory_gb=view.min_memory_gb, cpu_cores=view.cpu_cores,
        node_selector=dict(view.node_selector),
    )  # fmt: skip


def form_of(model: Model) -> ServeForm:
    """The form that shows a model and its first profile."""
    scaling, profile = model.scaling, model.profiles[0] if model.profiles else Profile("")
    key, value = next(iter(profile.node_selector.items()), ("", ""))
    return ServeForm(
        name=model.name, description=model.description or "", aliases=", ".join(model.aliases),
        source=model.source, context_length=_text(model.context_length),
        max_output=_text(model.max_output), mode=scaling.mode.value,
        replicas=str(max(1, scaling.min or scaling.max)),
        idle=format_duration(scaling.idle_timeout_s), engine=profile.engine, profile=profile.name,
        gpu_class=profile.gpu_class or "", ctx_pool=_option(profile.args, "ctx_pool"),
        parallel=_option(profile.args, "parallel"), kv_type=_option(profile.args, "kv_type")
        or ("f16" if profile.engine == "llamacpp" else ""),
        cache_ram=_option(profile.args, "cache_ram"), memory=_text(profile.min_memory_gb),
        cores=_text(profile.cpu_cores), selector_key=key, selector_value=value,
        model_class=model.model_class, owner=model.owner or "",
    )  # fmt: skip


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _option(args: tuple[str, ...], name: str) -> str:
    found = ""
    for arg, after in zip_longest(args, args[1:], fillvalue=""):
        option, equals, value = arg.partition("=")
        if option in _OPTIONS[name]:
            found = value if equals else after
    return found


def edited_toml(model: Model, before: ServeForm, after: ServeForm) -> str:
    """The entry with what differs between the two forms changed, and all else as it was.

    Raises:
        InvalidInput: with all that is wrong in the form.
    """
    return model_toml(edited(model, before, after))


def edited(model: Model, before: ServeForm, after: ServeForm) -> Model:
    """The model with what differs between the two forms changed, and all else as it was.

    Raises:
        InvalidInput: with all that is wrong in the form.
    """
    (raw,) = tomllib.loads(toml(after))["models"]
    wanted = parse_model(raw, declared=False).model
    assert wanted is not None  # noqa: S101 - a form without a name has no text
    old, new = asdict(before), asdict(after)
    changed = {name for name in old if old[name] != new[name]}
    names = {"description": "description", "aliases": "aliases", "source": "source",
             "context_length": "context_length", "max_output": "max_output",
             "model_class": "model_class", "owner": "owner"}  # fmt: skip
    whole = {attr: getattr(wanted, attr) for name, attr in names.items() if name in changed}
    if changed & {"mode", "replicas", "idle"}:
        whole["scaling"] = wanted.scaling
    first = _profile(model.profiles[0], wanted.profiles[0], changed, before)
    return replace(model, **whole, profiles=(first, *model.profiles[1:]))


def _profile(old: Profile, wanted: Profile, changed: set[str], before: ServeForm) -> Profile:
    names = {"profile": "name", "engine": "engine", "gpu_class": "gpu_class",
             "memory": "min_memory_gb", "cores": "cpu_cores"}  # fmt: skip
    whole = {attr: getattr(wanted, attr) for name, attr in names.items() if name in changed}
    if "gpu_class" in changed:
        whole["gpus_per_node"] = wanted.gpus_per_node
    if changed & {"selector_key", "selector_value"}:
        rest = {k: v for k, v in old.node_selector.items() if k != before.selector_key}
        whole["node_selector"] = {**wanted.node_selector, **rest}
    args = old.args
    for name in [name for name in _OPTIONS if name in changed]:
        args = _with_option(args, name, _option(wanted.args, name))
    return replace(old, **whole, args=args)


def _with_option(args: tuple[str, ...], name: str, value: str) -> tuple[str, ...]:
    """The arguments with one option set where it stood, or at the end; empty takes it away."""
    spellings = _OPTIONS[name] + (_VALUE_TYPE if name == "kv_type" else ())
    kept: list[str] = []
    at: int | None = None
    skip = False
    for arg in args:
        option, equals, _ = arg.partition("=")
        if skip:
            skip = False
        elif option in spellings:
            at = len(kept) if at is None else at
            skip = not equals
        else:
            kept.append(arg)
    if not value:
        return tuple(kept)
    new = [_OPTIONS[name][0], value]
    if name == "kv_type":
        new += [_VALUE_TYPE[0], value]
    at = len(kept) if at is None else at
    return (*kept[:at], *new, *kept[at:])
