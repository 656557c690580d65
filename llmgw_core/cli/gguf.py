"""``llmgw run gguf``: a header and the memory that a replica of it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmgw_core.cli.output import emit_json, emit_line
from llmgw_core.cli.place import Place
from llmgw_core.cli.reads import Json

if TYPE_CHECKING:
    from llmgw_core.mirror.looked import Looked


def register(run: typer.Typer) -> None:
    """Add the command to ``llmgw run``."""
    run.command()(gguf)


def gguf(
    context: typer.Context,
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A file here, mirror:…, hf:…:FILE, or a URL.")
    ],
    ctx: Annotated[int, typer.Option(help="Context pool in tokens.")] = 16384,
    parallel: Annotated[int, typer.Option(help="Slots.")] = 1,
    unified: Annotated[bool, typer.Option("--unified", help="Slots share one cache.")] = False,
    kv_type: Annotated[str, typer.Option(help="Type of the KV cache, or K/V apart.")] = "f16",
    ubatch: Annotated[int, typer.Option(help="Tokens computed at once.")] = 512,
    as_json: Json = False,
) -> None:
    """A header without its weights, and what a server of it would use."""
    import asyncio
    import os

    from llmgw_core.cli.mirror import store_of
    from llmgw_core.config_file import load_config
    from llmgw_core.gguf.memory import Settings
    from llmgw_core.mirror.inspect import Places, look
    from llmgw_core.serve.described import described

    place: Place = context.obj
    keys, _, values = kv_type.partition("/")
    settings = Settings(
        ctx=ctx, parallel=parallel, unified=unified, ubatch=ubatch,
        kv_type_k=keys, kv_type_v=values or keys,
    )  # fmt: skip
    hub = load_config(place.config_file).mirror.hub_endpoint or os.environ.get("HF_ENDPOINT")
    looked = asyncio.run(look(source, Places(store_of(place), hub)))
    document = described(looked, settings)
    if as_json:
        emit_json(document)
    else:
        _show(document, looked)


def _show(document: dict[str, Any], looked: Looked) -> None:
    width = max(map(len, document))
    for key, value in document.items():
        shown = "–" if value is None else "yes" if value is True else value
        if key.endswith("_bytes") and isinstance(value, int):
            shown = f"{value / 1024**2:,.1f} MiB"
        if isinstance(value, list | tuple):
            shown = " ".join(map(str, value))
        emit_line(f"{key:<{width}}  {shown}")
    for warning in looked.header.warnings if looked.header else ():
        emit_line(f"note: {warning}")
