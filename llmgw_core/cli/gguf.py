"""``llmgw run gguf``: a header and the memory that a replica of it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmgw_core.cli.output import emit_json, emit_line
from llmgw_core.cli.place import Place
from llmgw_core.cli.reads import Json
from llmgw_core.errors import InvalidInput

if TYPE_CHECKING:
    from llmgw_core.gguf.hyper import Hyper
    from llmgw_core.gguf.memory import Memory, Settings
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


def described(looked: Looked, settings: Settings) -> dict[str, Any]:
    """The document with its stable keys.

    Raises:
        InvalidInput: there is no header to describe.
    """
    from llmgw_core.gguf.architectures import CHECKED_BUILD, architecture
    from llmgw_core.gguf.facts import facts
    from llmgw_core.gguf.hyper import HeaderUnusable, hyper
    from llmgw_core.gguf.memory import estimate, unheaded
    from llmgw_core.serve.plan import weights_bytes
    from llmgw_core.serve.view import not_served

    if looked.header is None:
        raise InvalidInput(
            looked.header_error or looked.unread or f"{looked.version.model} has no GGUF file"
        )
    told = facts(looked.header)
    total = weights_bytes(looked.version)
    weights = total - looked.mmproj_bytes if total and looked.mmproj_bytes else total
    shape: Hyper | None = None
    memory: Memory | None = None
    reason = not_served(looked)
    try:
        shape = hyper(looked.header)
        memory = estimate(shape, weights or 0, settings, mmproj_bytes=looked.mmproj_bytes)
    except HeaderUnusable as error:
        reason = reason or str(error)
    if not reason and architecture(told.architecture or "") is None:
        reason = f"llama.cpp {CHECKED_BUILD} does not know the architecture {told.architecture!r}"
    gb, basis = unheaded(weights)
    kv_heads = told.kv_heads if told.kv_heads is not None else told.heads
    return {
        "name": told.name or looked.version.model,
        "architecture": told.architecture,
        "file_type": told.file_type,
        "parameters": told.parameters,
        "layers": told.layers,
        "embedding": told.embedding,
        "heads": told.heads,
        "kv_heads": kv_heads,
        "key_length": shape.key_length if shape else told.key_length,
        "value_length": shape.value_length if shape else told.value_length,
        "context_length": told.context_length,
        "sliding_window": told.sliding_window,
        "experts": told.experts,
        "splits": told.split_count,
        "weights_bytes": weights,
        "kv_bytes": memory.kv_bytes if memory else None,
        "state_bytes": memory.state_bytes if memory else None,
        "compute_bytes": memory.compute_bytes if memory else None,
        "engine_bytes": memory.engine_bytes if memory else None,
        "memory_bytes": memory.memory_bytes if memory else None,
        "min_memory_gb": memory.min_memory_gb if memory else gb,
        "memory_basis": memory.basis if memory else basis,
        "servable": not reason,
        "reason": reason,
        "requests": looked.requests,
        "bytes_read": looked.bytes_read,
    }


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
