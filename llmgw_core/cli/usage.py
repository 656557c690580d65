"""``llmgw run usage``: who used how many tokens of what."""

from __future__ import annotations

from typing import Annotated

import typer

from llmgw_core.cli.output import emit_json, emit_table
from llmgw_core.cli.place import Place
from llmgw_core.cli.reads import Json
from llmgw_core.errors import InvalidInput

_HEADS = {"requests": "REQ", "prompt_tokens": "PROMPT", "completion_tokens": "OUTPUT",
          "cached_tokens": "CACHED", "untold": "UNTOLD", "cut": "CUT",
          "refused": "REFUSED"}  # fmt: skip


def register(run: typer.Typer) -> None:
    """Add the command to ``llmgw run``."""
    run.command()(usage)


def usage(
    context: typer.Context,
    by: Annotated[
        str, typer.Option(help="Kept apart by these: day,owner,key,model,requested.")
    ] = "owner,key,model",
    since: Annotated[
        str | None, typer.Option(help="First UTC day, like 2026-11-30, or for how long, like 7d.")
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Of this owner only.")] = None,
    key: Annotated[str | None, typer.Option(help="Of the keys of this name only.")] = None,
    model: Annotated[str | None, typer.Option(help="Of this model only.")] = None,
    as_json: Json = False,
) -> None:
    """Requests and tokens as the engines counted them, by owner, key and model."""
    from dataclasses import asdict

    from llmgw_core.ledger.usage import FILE, UsageStore

    place: Place = context.obj
    columns = [name.strip() for name in by.split(",") if name.strip()]
    columns = ["key_name" if name == "key" else name for name in columns]
    only = {"owner": owner or "", "key_name": key or "", "model": model or ""}
    rows = UsageStore(place.state / FILE).read(columns, since=_first_day(since), only=only)
    if as_json:
        found = [
            {**{_shown(name): value or None for name, value in row.by.items()}, **asdict(row.sums)}
            for row in rows
        ]
        emit_json({"usage": found})
        return
    cells = [
        [*(value or "–" for value in row.by.values()),
         *(f"{asdict(row.sums)[name]:,}" for name in _HEADS)]
        for row in rows
    ]  # fmt: skip
    heads = [*(_shown(name).upper() for name in columns), *_HEADS.values()]
    emit_table(heads, cells, "nothing was used yet")


def _shown(column: str) -> str:
    return "key" if column == "key_name" else column


def _first_day(since: str | None) -> str:
    from datetime import UTC, date, datetime, timedelta

    if since is None:
        return ""
    text = since.strip()
    try:
        if text.endswith("d") and text[:-1].isascii() and text[:-1].isdigit():
            first = datetime.now(UTC).date() - timedelta(days=int(text[:-1]) - 1)
        else:
            first = date.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"--since {since!r} is no day; write it like 2026-11-30, or how many days, like 7d"
        ) from error
    return first.isoformat()
