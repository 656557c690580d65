"""The form that a serve plan fills, and the catalog entry that it becomes. Pure.

Every field is text, as a person types it or a script gives it; an empty optional field is unset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from llmgw_core.catalog.durations import parse_duration
from llmgw_core.catalog.model import Mode, Scaling
from llmgw_core.errors import InvalidInput
from llmgw_core.serve.plan import GPU_ENGINES, ServePlan

PRIORITY = 100
"""Of a new profile; weight is left at 1."""


@dataclass(frozen=True, slots=True)
class ServeForm:
    """What stands in the dialog's fields."""

    name: str = ""
    description: str = ""
    aliases: str = ""
    """Separated by commas."""
    source: str = ""
    context_length: str = ""
    max_output: str = ""
    mode: str = Mode.ALWAYS.value
    replicas: str = "1"
    idle: str = ""
    engine: str = ""
    profile: str = ""
    gpu_class: str = ""
    ctx_pool: str = ""
    parallel: str = ""
    kv_type: str = "f16"
    cache_ram: str = ""
    memory: str = ""
    cores: str = ""
    selector_key: str = ""
    selector_value: str = ""
    model_class: str = "standard"
    owner: str = ""

    def with_fields(self, given: Mapping[str, str | None]) -> ServeForm:
        """The form with these fields replaced; None leaves a field as it is.

        Raises:
            InvalidInput: there is no such field.
        """
        known = {field.name for field in fields(self)}
        for name in given:
            if name not in known:
                raise InvalidInput(f"the form has no field {name!r}")
        return replace(self, **{name: text for name, text in given.items() if text is not None})


LABELS = {
    "name": "Name", "description": "Description", "aliases": "Aliases", "source": "Source",
    "context_length": "Context length", "max_output": "Max output", "mode": "Run",
    "replicas": "Replicas", "idle": "Idle", "engine": "Engine", "profile": "Profile",
    "gpu_class": "GPU class", "ctx_pool": "Context pool", "parallel": "Slots",
    "kv_type": "KV type", "cache_ram": "Prompt cache", "memory": "Memory", "cores": "Cores",
    "selector_key": "Selector key", "selector_value": "Selector value",
    "model_class": "Class", "owner": "Owner",
}  # fmt: skip
"""How each field is called, on screen and in messages."""

_WHOLE = ("context_length", "max_output", "replicas", "ctx_pool", "parallel", "cache_ram")
_REQUIRED = ("name", "source", "engine")


def filled(plan: ServePlan, *, gpu_class: str = "") -> ServeForm:
    """The form as the plan fills it; ``gpu_class`` is the fleet's, where it has just one."""
    llamacpp = plan.engine == "llamacpp"
    return ServeForm(
        name=plan.model,
        source=plan.source,
        engine=plan.engine,
        profile=plan.profile,
        gpu_class=gpu_class if plan.engine in GPU_ENGINES else "",
        ctx_pool=str(plan.ctx_pool) if llamacpp else "",
        parallel=str(plan.parallel) if llamacpp else "",
        kv_type=plan.kv_type if llamacpp else "",
        cache_ram=str(plan.cache_ram_mib or "") if llamacpp else "",
        memory=str(plan.min_memory_gb or ""),
        cores=str(plan.cpu_cores or ""),
    )


def problems(form: ServeForm) -> dict[str, str]:
    """What is wrong, by field; each a sentence that names the field."""
    found: dict[str, str] = {}
    for name in _REQUIRED:
        if not getattr(form, name).strip():
            found[name] = f"{LABELS[name]} is missing"
    for name in _WHOLE:
        text = getattr(form, name).strip()
        least = 0 if name == "cache_ram" else 1
        if text and (not text.isdecimal() or int(text) < least):
            found[name] = f"{LABELS[name]} must be a whole number, {least} or more, not {text!r}"
    for name in ("memory", "cores"):
        text = getattr(form, name).strip()
        if text and _number(text) is None:
            found[name] = f"{LABELS[name]} must be a number, 0 or more, not {text!r}"
    if form.mode not in list(Mode):
        found["mode"] = f"{LABELS['mode']} must be always, ondemand or stopped, not {form.mode!r}"
    try:
        _idle(form)
    except ValueError as error:
        found["idle"] = f"{LABELS['idle']}: {error}"
    if bool(form.selector_key.strip()) != bool(form.selector_value.strip()):
        missing = "selector_value" if form.selector_key.strip() else "selector_key"
        found[missing] = f"{LABELS[missing]} is missing: key and value select nodes together"
    return found


def table(form: ServeForm) -> dict[str, object]:
    """The ``[[models]]`` table, as config.toml would hold it.

    Raises:
        InvalidInput: with all that is wrong in the form.
    """
    wrong = problems(form)
    if wrong:
        raise InvalidInput("; ".join(wrong.values()))
    aliases = [alias.strip() for alias in form.aliases.split(",") if alias.strip()]
    whole: dict[str, object] = {
        "name": form.name.strip(),
        "aliases": aliases,
        "description": form.description.strip(),
        "source": form.source.strip(),
        "context_length": _whole(form.context_length),
        "max_output": _whole(form.max_output),
        "class": form.model_class.strip(),
        "owner": form.owner.strip(),
        "scaling": _scaling(form),
        "profiles": [_profile(form)],
    }
    return {key: value for key, value in whole.items() if value not in (None, "", [])}


def toml(form: ServeForm) -> str:
    """The same as a text that can stand in config.toml.

    Raises:
        InvalidInput: with all that is wrong in the form.
    """
    import tomli_w

    return tomli_w.dumps({"models": [table(form)]})


def _profile(form: ServeForm) -> dict[str, object]:
    engine = form.engine.strip()
    whole: dict[str, object] = {
        "name": form.profile.strip() or engine,
        "engine": engine,
        "gpu_class": form.gpu_class.strip(),
        "args": _args(form),
        "priority": PRIORITY,
        "min_memory_gb": _number(form.memory.strip()) or None,
        "cpu_cores": _number(form.cores.strip()) or None,
    }
    if form.selector_key.strip():
        whole["node_selector"] = {form.selector_key.strip(): form.selector_value.strip()}
    return {key: value for key, value in whole.items() if value not in (None, "", [])}


def _args(form: ServeForm) -> list[str]:
    """What the estimate assumed, as llama.cpp's options; the context pool alone for others."""
    args: list[str] = []
    for option, text in (
        ("--ctx-size", form.ctx_pool),
        ("--parallel", form.parallel),
        ("--cache-ram", form.cache_ram),
    ):
        if text.strip():
            args += [option, text.strip()]
    if form.kv_type.strip() not in ("", "f16"):
        args += ["--cache-type-k", form.kv_type.strip(), "--cache-type-v", form.kv_type.strip()]
    return args


def _scaling(form: ServeForm) -> dict[str, object]:
    mode = Mode(form.mode)
    scaling = Scaling.for_mode(mode, _whole(form.replicas) or 1, _idle(form))
    wanted: dict[str, object] = {"min": scaling.min, "max": scaling.max}
    if mode is Mode.ON_DEMAND:
        wanted["idle_timeout"] = scaling.idle_timeout_s
    return wanted


def _idle(form: ServeForm) -> float | None:
    return parse_duration(form.idle.strip()) if form.idle.strip() else None


def _whole(text: str) -> int | None:
    return int(text) if text.strip() else None


def _number(text: str) -> float | None:
    """A number of 0 or more, whole where it is; None for anything else."""
    try:
        number = float(text)
    except ValueError:
        return None
    if not 0 <= number < float("inf"):
        return None
    return int(number) if number.is_integer() else number
