"""The context's part of an estimate in words. Pure."""

from __future__ import annotations

from llmgw_core.gguf.caches import Cache, Role, Settings, cells
from llmgw_core.gguf.families import Kind, Layout, layout
from llmgw_core.gguf.hyper import Hyper
from llmgw_core.gguf.words import plural, size
from llmgw_core.plain_text import sanitise


def context_words(
    hyper: Hyper, settings: Settings, found: tuple[Cache, ...]
) -> list[tuple[str, int, str]]:
    """Name, bytes and words of the cache and of the state, as far as the model has them."""
    laid = layout(hyper)
    kv = sum(cache.total_bytes for cache in found if cache.role is not Role.STATE)
    state = sum(cache.total_bytes for cache in found if cache.role is Role.STATE)
    rows = []
    if kv:
        held = cells(hyper, settings)
        shape = _shape(hyper, laid, found)
        text = f"KV cache {size(kv)} for {held.per_slot * held.streams} tokens ({shape})"
        rows.append(("kv", kv, text))
    elif not state:
        reason = laid.instead_of_cache
        rows.append(("kv", 0, f"no KV cache ({reason})" if reason else "no KV cache"))
    if state:
        rows.append(("state", state, _state(state, settings)))
    return rows


def _shape(hyper: Hyper, laid: Layout, found: tuple[Cache, ...]) -> str:
    if not laid.is_known:
        name = sanitise(hyper.architecture, most=40)
        return f'unknown architecture "{name}": counted as full attention'
    full = laid.count(Kind.FULL, Kind.BOTH)
    window = next((cache for cache in found if cache.role is Role.WINDOW), None)
    if laid.count(Kind.STATE):
        return f"{plural(full + laid.count(Kind.WINDOW), 'attention layer')} of {hyper.layers}"
    parts = []
    if full and hyper.is_latent:
        parts.append(f"{plural(full, 'layer')} × {hyper.key_length} latent, MLA")
    elif full:
        heads = _heads(hyper, laid, Kind.FULL, Kind.BOTH)
        parts.append(f"{plural(full, 'full layer' if window else 'layer')} × {heads}")
    if window:
        heads = "" if full else f" × {_heads(hyper, laid, Kind.WINDOW)}"
        holds = "holds" if window.layers == 1 else "hold"
        text = f"{plural(window.layers, 'window layer')}{heads} {holds} {window.cells} tokens"
        parts.append(text)
    if any(cache.role is Role.INDEXER for cache in found):
        parts.append("with an indexer")
    if laid.is_upper_bound:
        parts.append("an upper bound")
    return "; ".join(parts)


def _heads(hyper: Hyper, laid: Layout, *kinds: Kind) -> str:
    """KV heads of a layer, as a range where layers differ."""
    counts = [
        heads for heads, kind in zip(hyper.kv_heads, laid.layers, strict=False) if kind in kinds
    ]
    least, most = min(counts), max(counts)
    return plural(most, "KV head") if least == most else f"{least}–{most} KV heads"


def _state(total: int, settings: Settings) -> str:
    if settings.parallel == 1:
        return f"state {size(total)}"
    return f"state {size(total)} ({size(total // settings.parallel)} per slot)"
