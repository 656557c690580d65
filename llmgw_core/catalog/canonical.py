"""A model in its canonical TOML form: only what differs from the defaults, in a fixed order."""

from __future__ import annotations

from llmgw_core.catalog.durations import format_duration
from llmgw_core.catalog.model import (
    DEFAULT_IDLE_TIMEOUT_S,
    DEFAULT_STARTUP_TIMEOUT_S,
    Model,
    Profile,
    RoutingProfile,
    Scaling,
)


def model_toml(model: Model) -> str:
    """A ``[[models]]`` table that can be copied into config.toml and means the same there."""
    table = model_table(model)
    del table["profiles"]
    text = f"[[models]]\n{_lines(table)}"
    for profile in model.profiles:
        text += f"\n[[models.profiles]]\n{_lines(profile_table(profile))}"
    return text


def _lines(table: dict[str, object]) -> str:
    """One key after another, in this order: small tables stay on their key's line."""
    import tomli_w

    text = ""
    for key, value in table.items():
        if isinstance(value, dict):
            inner = (tomli_w.dumps({name: word}).strip("\n") for name, word in value.items())
            text += f"{key} = {{ {', '.join(inner)} }}\n"
        else:
            text += tomli_w.dumps({key: value})
    return text


def model_table(model: Model) -> dict[str, object]:
    """The keys of a model that differ from their defaults."""
    table: dict[str, object] = {"name": model.name}
    _put(table, "aliases", list(model.aliases))
    _put(table, "description", model.description)
    _put(table, "context_length", model.context_length)
    _put(table, "max_output", model.max_output)
    table["source"] = model.source
    _put(table, "scaling", _scaling_table(model.scaling))
    slo = {"ttft_p99": model.slo.ttft_p99_s, "tpot_p99": model.slo.tpot_p99_s}
    _put(table, "slo", {key: format_duration(s) for key, s in slo.items() if s is not None})
    _put(table, "fallbacks", list(model.fallbacks))
    if model.routing_profile is not RoutingProfile.CHAT:
        table["routing_profile"] = str(model.routing_profile)
    if model.model_class != "standard":
        table["class"] = model.model_class
    _put(table, "owner", model.owner)
    table["profiles"] = [profile_table(profile) for profile in model.profiles]
    return table


def _put(table: dict[str, object], key: str, value: object) -> None:
    """Set a key, but for None and what is empty."""
    if value is not None and value not in ([], {}):
        table[key] = value


def _scaling_table(scaling: Scaling) -> dict[str, object]:
    table: dict[str, object] = {}
    if scaling.min:
        table["min"] = scaling.min
    if scaling.max != max(scaling.min, 1):
        table["max"] = scaling.max
    if scaling.idle_timeout_s != DEFAULT_IDLE_TIMEOUT_S:
        table["idle_timeout"] = format_duration(scaling.idle_timeout_s)
    return table


def profile_table(profile: Profile) -> dict[str, object]:
    """The keys of a profile that differ from their defaults."""
    usual = Profile(profile.name)
    table: dict[str, object] = {"name": profile.name}
    for key in ("engine", "gpu_class", "tp", "pp", "nodes"):
        value = getattr(profile, key)
        if value != getattr(usual, key):
            table[key] = value
    degree = profile.tp * profile.pp
    if not profile.on_cpu and profile.gpus_per_node * profile.nodes != degree:
        table["gpus_per_node"] = profile.gpus_per_node
    _put(table, "args", list(profile.args))
    _put(table, "env", dict(profile.env))
    if profile.weight != usual.weight:
        table["weight"] = profile.weight
    if profile.priority != usual.priority:
        table["priority"] = profile.priority
    if profile.startup_timeout_s != DEFAULT_STARTUP_TIMEOUT_S:
        table["startup_timeout"] = format_duration(profile.startup_timeout_s)
    _put(table, "min_memory_gb", profile.min_memory_gb)
    _put(table, "cpu_cores", profile.cpu_cores)
    _put(table, "node_selector", dict(profile.node_selector))
    return table
