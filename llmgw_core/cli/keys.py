"""``llmgw run keys``: who may ask the gateway."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_core.cli.output import dash, emit_json, emit_line, emit_table, narrate
from llmgw_core.cli.place import Place, actor
from llmgw_core.cli.reads import Json
from llmgw_core.errors import InvalidInput, NoController

Count = Annotated[int | None, typer.Option(min=1)]


def register(run: typer.Typer) -> None:
    """Add the commands to ``llmgw run``."""
    keys = typer.Typer(help="Keys of the gateway's clients.", no_args_is_help=True,
                       rich_markup_mode=None)  # fmt: skip
    keys.command("add")(add)
    keys.command("list")(show)
    keys.command("revoke")(revoke)
    run.add_typer(keys, name="keys")


def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is, for people.")],
    owner: Annotated[str | None, typer.Option(help="Whom its usage is charged to.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="A model it opens; repeat it.")] = None,
    model_class: Annotated[
        str | None, typer.Option("--class", help="Of its requests where they wait.")
    ] = None,
    expires: Annotated[str | None, typer.Option(help="How long it lasts, like 30d.")] = None,
    requests_per_minute: Count = None,
    requests_per_day: Count = None,
    tokens_per_minute: Count = None,
    tokens_per_day: Count = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Requests at once.")] = None,
    as_json: Json = False,
) -> None:
    """Make a key. Its secret is shown this once and kept nowhere."""
    limits = {
        "requests_per_minute": requests_per_minute,
        "requests_per_day": requests_per_day,
        "tokens_per_minute": tokens_per_minute,
        "tokens_per_day": tokens_per_day,
        "concurrency": concurrency,
    }
    args: dict[str, Any] = {
        "name": name,
        "owner": owner,
        "models": model or None,
        "class": model_class,
        "limits": {key: value for key, value in limits.items() if value is not None},
        "expires_s": _seconds(expires),
    }
    text, data = _ask(context.obj, "add", args)
    if as_json:
        emit_json(data)
        return
    narrate(f"{text}; its secret is shown only now:")
    emit_line(data["key"])


def show(context: typer.Context, as_json: Json = False) -> None:
    """Every key that was ever made, without its secret."""
    import time

    _, data = _ask(context.obj, "list", {})
    if as_json:
        emit_json(data)
        return
    now = time.time()
    rows = [
        [key["name"], key["hint"], key["state"], key["owner"] or "–",
         "all" if key["models"] is None else ", ".join(key["models"]), _limits(key["limits"]),
         dash(key["expires"] and (key["expires"] - now) / 86400, "{:.1f} d"), key["created_by"]]
        for key in data["keys"]
    ]  # fmt: skip
    heads = ["NAME", "KEY", "STATE", "OWNER", "MODELS", "LIMITS", "LASTS", "BY"]
    emit_table(heads, rows, "no keys; the gateway is open, on this machine only")


def revoke(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name or id.")],
    as_json: Json = False,
) -> None:
    """Put a key out of force, at once and for good."""
    text, data = _ask(context.obj, "revoke", {"name": name})
    if as_json:
        emit_json(data)
    else:
        emit_line(text)


def _ask(place: Place, verb: str, args: dict[str, Any]) -> tuple[str, Any]:
    """Have the controller do it, or, while none runs, do it here: the gateway reads the file."""
    try:
        result = place.client().command(f"keys.{verb}", args, actor())
    except NoController:
        import time

        from llmgw_core.config_file import load_config
        from llmgw_core.controller.key_commands import key_command

        config = load_config(place.config_file)
        result = key_command(place.state, config, verb, args, actor=actor(), now=time.time())
    return result.text, result.data


def _seconds(text: str | None) -> float | None:
    from llmgw_core.catalog.durations import parse_duration

    if text is None:
        return None
    days, unit = text.strip()[:-1], text.strip()[-1:]
    try:
        return float(days) * 86400 if unit == "d" else parse_duration(text)
    except ValueError as error:
        raise InvalidInput(f"--expires: {error}") from error


_SHORT = {
    "requests_per_minute": "req/min",
    "requests_per_day": "req/day",
    "tokens_per_minute": "tok/min",
    "tokens_per_day": "tok/day",
    "concurrency": "at once",
}


def _limits(limits: dict[str, Any]) -> str:
    shown = [f"{limits[name]} {unit}" for name, unit in _SHORT.items() if limits.get(name)]
    return ", ".join(shown) or "–"
