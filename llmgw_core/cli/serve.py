"""``llmgw run serve``: from weights to a catalog entry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmgw_core.cli.output import emit_json, emit_line, narrate
from llmgw_core.cli.place import Place, actor
from llmgw_core.cli.reads import Json
from llmgw_core.errors import InvalidInput, NoController, Refused

if TYPE_CHECKING:
    from llmgw_core.api.serve_views import ServePlanView

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="MODEL[/VERSION] of the mirror, mirror:…, hf:ORG/REPO[@REV][:FILE], a URL, or a path.",
    ),
]
Field = Annotated[str | None, typer.Option()]


def register(run: typer.Typer) -> None:
    """Add the command to ``llmgw run``."""
    run.command()(serve)


def serve(
    context: typer.Context,
    source: Source,
    plan: Annotated[bool, typer.Option("--plan", help="Only show what would be added.")] = False,
    fleet: Annotated[
        Path | None, typer.Option(help="Plan for the nodes in this JSON file instead.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="What clients ask for.")] = None,
    description: Annotated[str | None, typer.Option(help="Shown by /v1/models.")] = None,
    aliases: Annotated[str | None, typer.Option(help="Other names, with commas.")] = None,
    context_length: Annotated[str | None, typer.Option(help="Shown to clients.")] = None,
    max_output: Annotated[str | None, typer.Option(help="Most tokens of an answer.")] = None,
    mode: Annotated[str | None, typer.Option(help="always, ondemand or stopped.")] = None,
    replicas: Annotated[str | None, typer.Option(help="How many.")] = None,
    idle: Annotated[str | None, typer.Option(help="Idle time of on demand, like 15m.")] = None,
    engine: Annotated[str | None, typer.Option(help="llamacpp or vllm.")] = None,
    profile: Annotated[str | None, typer.Option(help="Name of its profile.")] = None,
    gpu_class: Annotated[str | None, typer.Option(help="GPU class that it needs.")] = None,
    ctx: Annotated[str | None, typer.Option(help="Context pool in tokens.")] = None,
    parallel: Annotated[str | None, typer.Option(help="Slots that share the pool.")] = None,
    kv_type: Annotated[str | None, typer.Option(help="Type of the KV cache, like q8_0.")] = None,
    memory: Annotated[str | None, typer.Option(help="GiB that a replica reserves.")] = None,
    cores: Annotated[str | None, typer.Option(help="Cores that a replica computes on.")] = None,
    selector: Annotated[str | None, typer.Option(help="KEY=VALUE that nodes must carry.")] = None,
    model_class: Annotated[str | None, typer.Option("--class", help="Its class.")] = None,
    owner: Annotated[str | None, typer.Option(help="Whom it belongs to.")] = None,
    as_json: Json = False,
) -> None:
    """Add a model for weights, with all that can be known filled in."""
    key, equals, value = (selector or "").partition("=")
    if selector and not equals:
        raise InvalidInput("--selector reads KEY=VALUE")
    given = {
        "name": name, "description": description, "aliases": aliases,
        "context_length": context_length, "max_output": max_output, "mode": mode,
        "replicas": replicas, "idle": idle, "engine": engine, "profile": profile,
        "gpu_class": gpu_class, "ctx_pool": ctx, "parallel": parallel, "kv_type": kv_type,
        "memory": memory, "cores": cores, "selector_key": key or None,
        "selector_value": value or None, "model_class": model_class, "owner": owner,
    }  # fmt: skip
    fields = {field: text for field, text in given.items() if text is not None}
    place: Place = context.obj
    view = _planned(place, source, fields, fleet)
    if plan:
        _show(view, as_json)
        return
    _add(context, view, as_json)


def _planned(
    place: Place, source: str, fields: dict[str, str], fleet: Path | None
) -> ServePlanView:
    """The plan, by the controller, or without one (and for imagined fleets) here."""
    import msgspec

    from llmgw_core.api.serve_views import ServePlanView

    if fleet is None:
        try:
            args = {"source": source, "fields": fields}
            data = place.client().command("serve.plan", args, actor()).data
            return msgspec.convert(data, ServePlanView)
        except NoController:
            pass
    return _plan_here(place, source, fields, fleet)


def _plan_here(
    place: Place, source: str, fields: dict[str, str], fleet: Path | None
) -> ServePlanView:
    import asyncio
    import os

    from llmgw_core.catalog.overlay import DIRECTORY, Overlay, load_catalog
    from llmgw_core.cli.mirror import store_of
    from llmgw_core.config_file import load_config
    from llmgw_core.mirror.inspect import Places, look
    from llmgw_core.serve.fleet_file import read_fleet
    from llmgw_core.serve.view import Around, view_of

    config = load_config(place.config_file)
    loaded = load_catalog(config, Overlay(place.state / DIRECTORY))
    endpoint = config.mirror.hub_endpoint or os.environ.get("HF_ENDPOINT")
    looked = asyncio.run(look(source, Places(store_of(place), endpoint)))
    around = Around(
        fleet=read_fleet(_read(fleet)) if fleet is not None else (),
        declared={n for m in config.models for n in (m.name, *m.aliases)},
        added={m.name for m in loaded.catalog if not m.declared},
        classes=tuple(c.name for c in config.classes),
        owners=tuple(o.name for o in config.owners),
    )
    return view_of(looked, fields, around)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}") from error


def _add(context: typer.Context, view: ServePlanView, as_json: bool) -> None:
    from llmgw_core.cli.changes import carry_out

    if view.refusal:
        raise Refused(view.refusal)
    if view.problems:
        raise InvalidInput("; ".join(view.problems.values()))
    if view.warning:
        narrate(f"note: {view.warning}")
    carry_out(context, "add", {"toml": view.toml}, as_json)


def _show(view: ServePlanView, as_json: bool) -> None:
    import msgspec

    if as_json:
        emit_json(msgspec.to_builtins(view))
        return
    rows: list[tuple[str, Any]] = [
        ("model", f"{view.model} {view.version}".strip()),
        ("source", view.source),
        ("header", " · ".join(filter(None, (view.architecture, view.file_type)))),
        ("engine", f"{view.engine}, on {', '.join(view.engine_nodes) or 'no node that says so'}"),
        ("profile", view.profile),
        ("context", _context(view)),
        ("memory", f"{view.min_memory_gb} GiB = {view.memory_basis}"),
        ("measured", _measured(view)),
        ("cores", f"{view.cpu_cores} ({view.cores_basis})" if view.cpu_cores else "–"),
        ("where", _where(view)),
        ("refused", view.refusal),
        ("note", view.warning),
        ("wrong", "; ".join(view.problems.values())),
    ]
    for label, text in rows:
        if text:
            emit_line(f"{label:<9} {text}")
    if view.toml:
        emit_line("")
        for line in view.toml.splitlines():
            emit_line(line)


def _context(view: ServePlanView) -> str:
    if view.slot_context is None:
        return ""
    text = f"{view.ctx_pool} tokens for {view.parallel} slots, one client may use "
    text += str(view.slot_context)
    return text + (
        f"; the model's own limit is {view.context_length}" if view.context_length else ""
    )


def _measured(view: ServePlanView) -> str:
    seen = view.measured
    if seen is None:
        return ""
    like = "" if seen.exact else ", with another build or other devices"
    return f"a replica used {seen.peak_gb:.2f} GiB on {seen.node}{like}"


def _where(view: ServePlanView) -> str:
    where = view.where
    if where is None:
        return ""
    if where.node is None:
        return "nowhere: " + "; ".join(f"{node}: {why}" for node, why in where.obstacles[:4])
    held = f"; the weights are on {', '.join(where.held_by)}" if where.held_by else ""
    return f"{where.node} ({where.why}){held}"
