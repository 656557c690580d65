"""``llmgw run``: the commands that only look."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmgw_core.cli.output import dash, emit_json, emit_line, emit_table, narrate
from llmgw_core.cli.place import Place
from llmgw_core.errors import NoController, NotFound

if TYPE_CHECKING:
    from llmgw_core.api.views import EventView, ModelView, ReplicaView

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
Name = Annotated[str, typer.Argument(metavar="NAME")]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="Go on with what comes.")]


def register(run: typer.Typer) -> None:
    """Add the commands to ``llmgw run``."""
    catalog = typer.Typer(help="The catalog.", no_args_is_help=True, rich_markup_mode=None)
    catalog.command("check")(catalog_check)
    run.add_typer(catalog, name="catalog")
    for command in (models, model, nodes, replicas, logs, events, plan, explain, info):
        run.command()(command)


def catalog_check(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="Configuration to check.")] = None,
    as_json: Json = False,
) -> None:
    """Validate a configuration and what was added, without a node."""
    from llmgw_core.catalog.normalise import check
    from llmgw_core.catalog.overlay import DIRECTORY

    place: Place = context.obj
    given = file or place.config_file
    overlay = None if file else place.state / DIRECTORY
    result = check(given, overlay)
    if as_json:
        emit_json(result.to_json())
    else:
        for error in result.errors:
            where = f"{error.file}: " if error.file else ""
            narrate(f"{where}{error.message}")
        if result.ok:
            emit_line(f"{given or 'no configuration file'}: {len(result.models)} models, all well")
    raise typer.Exit(0 if result.ok else 2)


def catalog_views(place: Place) -> tuple[ModelView, ...]:
    """The catalog as the controller sees it, or, without one, as it is written."""
    try:
        return place.client().snapshot().models
    except NoController:
        pass
    from llmgw_core.api.views import ReplicaCount
    from llmgw_core.catalog.normalise import view
    from llmgw_core.catalog.overlay import DIRECTORY, Overlay, load_catalog
    from llmgw_core.config_file import load_config

    config = load_config(place.config_file)
    loaded = load_catalog(config, Overlay(place.state / DIRECTORY))
    return tuple(view(model, replicas=ReplicaCount(0, 0)) for model in loaded.catalog)


def models(context: typer.Context, as_json: Json = False) -> None:
    """The catalog: every model with its run mode and replicas."""
    from llmgw_core.cli.views import to_json

    found = catalog_views(context.obj)
    if as_json:
        emit_json({"models": [to_json(model) for model in found]})
        return
    rows = [
        [m.name, m.mode, f"{m.replicas.ready}/{m.replicas.total}", m.state or "–", m.model_class,
         m.owner or "–", dash(m.tokens_per_s, "{:.1f}"), ", ".join(m.aliases), m.reason]
        for m in found
    ]  # fmt: skip
    heads = ["NAME", "MODE", "READY", "STATE", "CLASS", "OWNER", "TOK/S", "ALIASES", "WHY"]
    emit_table(heads, rows, "no models; declare one in the configuration, or `llmgw run add FILE`")


def model(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """One model's card."""
    from llmgw_core.cli.views import to_json

    found = next((m for m in catalog_views(context.obj) if name in (m.name, *m.aliases)), None)
    if found is None:
        raise NotFound(f"there is no model {name!r}", hint="`llmgw run models` lists them")
    _card(to_json(found), as_json)


def nodes(context: typer.Context, as_json: Json = False) -> None:
    """The fleet: every node with its state, load and replicas."""
    from llmgw_core.cli.views import to_json

    found = context.obj.client().snapshot().nodes
    if as_json:
        emit_json({"nodes": [to_json(node) for node in found]})
        return
    rows = [
        [n.name, n.host, n.state, dash(n.cpu and n.cpu * 100, "{:.0f} %"),
         f"{dash(n.memory_free_gb, '{:.1f}')}/{dash(n.memory_gb, '{:.1f}')}", dash(n.cores, "{:g}"),
         "–" if n.engines is None else ", ".join(e.name for e in n.engines) or "none",
         str(n.replicas), dash(n.rtt_s and n.rtt_s * 1000, "{:.0f} ms"), n.reason]
        for n in found
    ]  # fmt: skip
    heads = ["NAME", "HOST", "STATE", "CPU", "FREE/GIB", "CORES", "ENGINES", "REPL", "RTT", "WHY"]
    emit_table(heads, rows, "no nodes; add [[nodes]] to the configuration")


def node_card(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """One node's card."""
    from llmgw_core.cli.views import to_json

    found = next((n for n in context.obj.client().snapshot().nodes if n.name == name), None)
    if found is None:
        raise NotFound(f"there is no node {name!r}", hint="`llmgw run nodes` lists them")
    _card(to_json(found), as_json)


def replicas(context: typer.Context, as_json: Json = False) -> None:
    """The running copies: state, node, port, load."""
    from llmgw_core.cli.views import to_json

    found = context.obj.client().snapshot().replicas
    if as_json:
        emit_json({"replicas": [to_json(replica) for replica in found]})
        return
    rows = [
        [r.id, r.profile, ", ".join(r.nodes), _state(r), dash(r.port), dash(r.pid), dash(r.running),
         dash(r.waiting), dash(r.kv_usage and r.kv_usage * 100, "{:.0f} %"),
         dash(r.tokens_per_s, "{:.1f}"), dash(r.memory_gb, "{:.2f}"), r.reason]
        for r in found
    ]  # fmt: skip
    heads = ["REPLICA", "PROFILE", "NODE", "STATE", "PORT", "PID", "RUN", "WAIT", "KV", "TOK/S",
             "GIB", "WHY"]  # fmt: skip
    emit_table(heads, rows, "no replicas")


def _state(replica: ReplicaView) -> str:
    """Its state, with how far it is where that is known."""
    if replica.progress is None or replica.state not in ("fetching", "loading"):
        return replica.state
    return f"{replica.state} {100 * replica.progress:.0f} %"


def logs(
    context: typer.Context,
    replica: Annotated[str, typer.Argument(metavar="REPLICA")],
    follow: Follow = False,
    lines: Annotated[int, typer.Option("-n", "--lines", help="Last lines to show.")] = 200,
    previous: Annotated[bool, typer.Option("-p", "--previous", help="Of the run before.")] = False,
    as_json: Json = False,
) -> None:
    """A replica's log."""
    client = context.obj.client()
    for batch in client.logs(replica, lines=lines, follow=follow, previous=previous):
        for line in batch.lines:
            if as_json:
                emit_json({"line": line})
            else:
                emit_line(line)
        sys.stdout.flush()


def events(context: typer.Context, follow: Follow = False, as_json: Json = False) -> None:
    """What happened, and who did it; one JSON document a line with --json."""
    from llmgw_core.cli.views import to_line

    for event in _events(context.obj, follow=follow):
        if as_json:
            sys.stdout.write(to_line(event) + "\n")
        else:
            clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.time))
            emit_line(f"{clock}  {event.kind:20}  {event.text}")
        sys.stdout.flush()


def _events(place: Place, *, follow: bool) -> Any:
    try:
        yield from place.client().events(after=0, follow=follow)
    except NoController:
        if follow:
            raise
        yield from _stored_events(place)


def _stored_events(place: Place) -> list[EventView]:
    from llmgw_core.ledger.events import KEPT_IN_MEMORY, SqliteEventStore

    return SqliteEventStore(place.state / "events.db").last(KEPT_IN_MEMORY)


def plan(context: typer.Context, as_json: Json = False) -> None:
    """What the controller would do now, and what it cannot place."""
    _plan(context.obj.client().command("plan", {}, "").data, as_json)


def explain(context: typer.Context, name: Name, as_json: Json = False) -> None:
    """Why a model's replicas are where they are, or are not."""
    _plan(context.obj.client().command("explain", {"name": name}, "").data, as_json)


def _plan(data: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit_json(data)
        return
    for replica in data["replicas"]:
        reason = f": {replica['reason']}" if replica["reason"] else ""
        place = ", ".join(replica["nodes"])
        emit_line(f"{replica['replica']} on {place} is {replica['state']}{reason}")
    for action in data["actions"]:
        place = ", ".join(action["nodes"])
        emit_line(f"{action['kind']} {action['replica']} on {place}: {action['why']}")
    for item in data["pending"]:
        place = f" on {item['node']}" if item["node"] else ""
        emit_line(f"{item['model']}/{item['profile']} not{place or ' placed'}: {item['reason']}")
    for name, room in data["headroom"].items():
        emit_line(f"{name}: {dash(room['free'])} more would fit now")


def info(context: typer.Context, as_json: Json = False) -> None:
    """Where everything lies, and who runs the controller."""
    from llmgw_core.cli.views import to_json

    place: Place = context.obj
    try:
        controller = to_json(place.client().snapshot().controller)
    except NoController:
        controller = None
    data = {
        "config_file": str(place.config_file) if place.config_file else None,
        "state_dir": str(place.state),
        "socket": str(place.socket),
        "controller": controller,
    }
    _card(data, as_json)


def _card(data: dict[str, Any], as_json: bool) -> None:
    if as_json:
        emit_json(data)
        return
    _fields(data, 0)


def _fields(data: dict[str, Any], depth: int) -> None:
    """Keys and values, one a line, what is nested further to the right."""
    for key, value in data.items():
        label = f"{'  ' * depth}{key}".ljust(22)
        if isinstance(value, dict) and value:
            emit_line(label)
            _fields(value, depth + 1)
        elif isinstance(value, list | tuple) and value and isinstance(value[0], dict):
            for item in value:
                emit_line(label)
                _fields(item, depth + 1)
        elif isinstance(value, list | tuple | dict):
            emit_line(f"{label} {', '.join(map(str, value)) or '–'}")
        else:
            emit_line(f"{label} {dash(value)}")
