"""``llmgw run``: the commands that change something."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from llmgw_core.cli.output import emit_json, emit_line, narrate
from llmgw_core.cli.place import Place, actor
from llmgw_core.cli.previews import preview_lines
from llmgw_core.cli.reads import Json, Name, node_card
from llmgw_core.errors import InvalidInput, NoController

Profile = Annotated[str | None, typer.Option(help="Which profile, where there are several.")]

Plan = Annotated[bool, typer.Option("--plan", help="Only say what it would start and stop.")]

OFFLINE = frozenset({"scale", "class", "owner", "resources", "add", "edit", "remove"})
"""Changes to the catalog: written also while no controller runs."""


def register(run: typer.Typer) -> None:
    """Add the commands to ``llmgw run``."""
    for command in (scale, owner, resources, add, edit, remove, restart, stop, reload, shutdown):
        run.command()(command)
    run.command("class")(model_class)
    run.command(
        "node", context_settings={"allow_interspersed_args": True},
        help="One node's card (node NAME), or trust|cordon|uncordon|drain|takeover|provision|probe "
        "NAME.",
    )(node)  # fmt: skip


def carry_out(
    context: typer.Context, name: str, args: dict[str, Any], as_json: bool, plan: bool = False
) -> None:
    """Ask the controller, or, for the catalog while none runs, write the change ourselves; with
    ``plan`` only say what it would do.
    """
    place: Place = context.obj
    if plan:
        commands = [{"name": name, "args": args}]
        foreseen = place.client().command("preview", {"commands": commands}, actor())
        if as_json:
            emit_json(foreseen.data)
        else:
            for line in preview_lines(foreseen.text, foreseen.data["plan"]):
                emit_line(line)
        return
    note = ""
    try:
        result = place.client().command(name, args, actor())
        text, data = result.text, result.data
    except NoController:
        if name not in OFFLINE:
            raise
        text, data = _offline(place, name, args)
        note = "no controller runs: the change takes effect when one starts"
    if as_json:
        emit_json(data)
    else:
        emit_line(text)
    if note:
        narrate(note)


def _offline(place: Place, name: str, args: dict[str, Any]) -> tuple[str, Any]:
    import asyncio
    import time

    from llmgw_core.api.views import ReplicaCount
    from llmgw_core.catalog.normalise import view
    from llmgw_core.cli.views import to_json
    from llmgw_core.controller.keeper import Keeper

    async def change() -> Any:
        keeper = Keeper(place.state, place.config_file, time.time)
        await keeper.load()
        return await keeper.change(name, args, actor())

    model = asyncio.run(change())
    return f"{name} of {model.name} is written", to_json(view(model, replicas=ReplicaCount(0, 0)))


def scale(
    context: typer.Context,
    name: Name,
    mode: Annotated[str | None, typer.Option(help="always, ondemand or stopped.")] = None,
    replicas: Annotated[int | None, typer.Option(help="How many.")] = None,
    idle: Annotated[str | None, typer.Option(help="Idle time of on demand, like 15m.")] = None,
    plan: Plan = False,
    as_json: Json = False,
) -> None:
    """Set a model's run mode and count."""
    from llmgw_core.catalog.durations import parse_duration

    if mode is None and replicas is None and idle is None:
        raise InvalidInput("say what to change: --mode, --replicas or --idle")
    args: dict[str, Any] = {"name": name, "mode": mode, "replicas": replicas}
    if idle is not None:
        try:
            args["idle_s"] = parse_duration(idle)
        except ValueError as error:
            raise InvalidInput(f"--idle: {error}") from error
    carry_out(context, "scale", args, as_json, plan)


def model_class(
    context: typer.Context,
    name: Name,
    to: Annotated[str, typer.Argument(metavar="CLASS")],
    as_json: Json = False,
) -> None:
    """Put a model into another class."""
    carry_out(context, "class", {"name": name, "class": to}, as_json)


def owner(
    context: typer.Context,
    name: Name,
    to: Annotated[str | None, typer.Argument(metavar="[OWNER]")] = None,
    as_json: Json = False,
) -> None:
    """Give a model to an owner, or to nobody."""
    carry_out(context, "owner", {"name": name, "owner": to}, as_json)


def resources(
    context: typer.Context,
    name: Name,
    profile: Profile = None,
    memory: Annotated[float | None, typer.Option(help="GiB that a replica reserves.")] = None,
    cores: Annotated[float | None, typer.Option(help="Cores that a replica computes on.")] = None,
    plan: Plan = False,
    as_json: Json = False,
) -> None:
    """Change what a model's replicas reserve; 0 clears a value."""
    args: dict[str, Any] = {"name": name, "profile": profile}
    if memory is not None:
        args["min_memory_gb"] = memory or None
    if cores is not None:
        args["cpu_cores"] = cores or None
    if len(args) == 2:
        raise InvalidInput("say what to change: --memory or --cores")
    carry_out(context, "resources", args, as_json, plan)


def add(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="TOML with one [[models]]; or -.")],
    as_json: Json = False,
) -> None:
    """Add a model from a TOML file that holds one [[models]] table."""
    carry_out(context, "add", {"toml": _read(file)}, as_json)


def edit(
    context: typer.Context,
    name: Name,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The new TOML; or -.")],
    plan: Plan = False,
    as_json: Json = False,
) -> None:
    """Replace an added model's definition."""
    carry_out(context, "edit", {"name": name, "toml": _read(file)}, as_json, plan)


def remove(context: typer.Context, name: Name, plan: Plan = False, as_json: Json = False) -> None:
    """Remove an added model; its replicas stop."""
    carry_out(context, "remove", {"name": name}, as_json, plan)


def restart(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="REPLICA|MODEL")],
    plan: Plan = False,
    as_json: Json = False,
) -> None:
    """Replace a replica, or all of a model's one by one; successors come first if there is room."""
    carry_out(context, "restart", {"replica": name}, as_json, plan)


def stop(
    context: typer.Context,
    replica: Annotated[str, typer.Argument(metavar="REPLICA")],
    plan: Plan = False,
    as_json: Json = False,
) -> None:
    """Stop a replica; an always-on model gets another in its place."""
    carry_out(context, "stop", {"replica": replica}, as_json, plan)


def reload(context: typer.Context, as_json: Json = False) -> None:
    """Read the configuration again; a bad one leaves the old one in force."""
    carry_out(context, "reload", {}, as_json)


def shutdown(
    context: typer.Context,
    replicas: Annotated[bool, typer.Option("--replicas", help="Stop the replicas too.")] = False,
    gateway: Annotated[bool, typer.Option("--gateway", help="Stop the gateway too.")] = False,
    as_json: Json = False,
) -> None:
    """End the controller; serving goes on unless told otherwise."""
    args = {"stop_replicas": replicas, "stop_gateway": gateway}
    carry_out(context, "shutdown", args, as_json)


_NODE_VERBS = ("trust", "cordon", "uncordon", "drain", "takeover", "provision", "probe")


def node(
    context: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="[VERB] NAME")],
    fingerprint: Annotated[str | None, typer.Option(help="Of trust: the key expected.")] = None,
    engine: Annotated[str | None, typer.Option(help="Of provision: the engine.")] = None,
    plan: Plan = False,
    as_json: Json = False,
) -> None:
    """One node's card, or a verb on it."""
    if len(words) == 1:
        node_card(context, words[0], as_json)
        return
    verb, *names = words
    if verb not in _NODE_VERBS or len(names) != 1:
        raise InvalidInput(f"use: llmgw run node [{'|'.join(_NODE_VERBS)}] NAME")
    args: dict[str, Any] = {"name": names[0]}
    if fingerprint:
        args["fingerprint"] = fingerprint
    if engine:
        args["engine"] = engine
    carry_out(context, f"node.{verb}", args, as_json, plan)


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read: {error}") from error
