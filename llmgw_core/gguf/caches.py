"""The buffers in which a llama.cpp server keeps contexts: exact to the byte. Pure.

Formulas of llama.cpp b11549, checked against what it allocates itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from llmgw_core.errors import InvalidInput
from llmgw_core.gguf.families import Kind, Layout, layout
from llmgw_core.gguf.hyper import Hyper

CELLS = 256
"""Caches hold a multiple of so many tokens."""
BATCH = 2048
"""llama.cpp's ``--batch-size``, which limits the physical batch."""

KV_TYPES = MappingProxyType(
    {
        "f32": (1, 4),
        "f16": (1, 2),
        "bf16": (1, 2),
        "q8_0": (32, 34),
        "q5_1": (32, 24),
        "q5_0": (32, 22),
        "q4_1": (32, 20),
        "q4_0": (32, 18),
        "iq4_nl": (32, 18),
    }
)
"""Floats in a block of each cache type, and its bytes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a server is started.

    Raises:
        InvalidInput: a number below its least value, or an unknown cache type.
    """

    ctx: int
    """Tokens asked for with ``--ctx-size``; 0 means the model's own context length."""
    parallel: int = 1
    unified: bool = False
    """All slots share one cache (``--kv-unified``)."""
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    ubatch: int = 512
    swa_full: bool = False
    flash_attention: bool = True
    cache_ram_mib: int | None = None
    """``--cache-ram``; None: a tenth of the memory reserved, 512 at most, as llmgw sets it."""
    checkpoints: int = 0
    """``--ctx-checkpoints``, which llmgw sets to 0."""
    embedding_mode: bool = False

    def __post_init__(self) -> None:
        least = (
            ("ctx", self.ctx, 0),
            ("parallel", self.parallel, 1),
            ("ubatch", self.ubatch, 1),
            ("checkpoints", self.checkpoints, 0),
            ("cache_ram_mib", self.cache_ram_mib or 0, 0),
        )
        for name, value, bound in least:
            if value < bound:
                raise InvalidInput(f"{name} is {value} and has to be {bound} at least")
        for name in (self.kv_type_k, self.kv_type_v):
            if name not in KV_TYPES:
                raise InvalidInput(
                    f"llama.cpp has no cache type {name!r}; choose one of {', '.join(KV_TYPES)}"
                )


class Role(StrEnum):
    """What a buffer is for."""

    KV = "kv"
    WINDOW = "window"
    INDEXER = "indexer"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class Cache:
    """One buffer. Sizes are bytes over all layers and streams."""

    role: Role
    layers: int
    cells: int
    """Tokens in one stream; for a state, sequences."""
    streams: int
    key_bytes: int
    value_bytes: int

    @property
    def total_bytes(self) -> int:
        """Size of the whole buffer."""
        return self.key_bytes + self.value_bytes


@dataclass(frozen=True, slots=True)
class Cells:
    """How a pool of tokens is divided."""

    pool: int
    per_slot: int
    """Tokens that one slot may hold (``n_ctx_seq``)."""
    window: int
    """Tokens of a window layer in one stream."""
    streams: int
    ubatch: int


def padded(tokens: int) -> int:
    """Tokens rounded up to whole cells."""
    return -(-tokens // CELLS) * CELLS


def cells(hyper: Hyper, settings: Settings) -> Cells:
    """How llama.cpp divides the context pool among slots and layers."""
    return _cells(hyper, settings, layout(hyper).window)


def caches(hyper: Hyper, settings: Settings) -> tuple[Cache, ...]:
    """Every buffer that the server allocates for contexts; none for an encoder."""
    laid = layout(hyper)
    size = _cells(hyper, settings, laid.window)
    full = [n for n, kind in enumerate(laid.layers) if kind in (Kind.FULL, Kind.BOTH)]
    window = [n for n, kind in enumerate(laid.layers) if kind is Kind.WINDOW]
    indexed = [n for n in full if laid.indexed[n]]
    found = (
        _attention(hyper, settings, laid, Role.KV, full, size.per_slot, size.streams),
        _attention(hyper, settings, laid, Role.WINDOW, window, size.window, size.streams),
        _indexer(hyper, settings, laid, indexed, size),
        _state(laid, settings),
    )
    return tuple(cache for cache in found if cache.layers and cache.total_bytes)


def row_bytes(kv_type: str, floats: int) -> int:
    """Bytes of a row in a cache; a part of a block counts as a whole one."""
    block, size = KV_TYPES[kv_type]
    return -(-floats // block) * size


def _cells(hyper: Hyper, settings: Settings, window: int) -> Cells:
    pool = padded(settings.ctx or hyper.context_length or CELLS)
    unified = settings.unified
    per_slot = pool if unified else padded(pool // settings.parallel)
    ubatch = min(settings.ubatch, BATCH, pool)
    held = window * (settings.parallel if unified else 1) + ubatch
    return Cells(
        pool=pool,
        per_slot=per_slot,
        window=per_slot if settings.swa_full else padded(min(per_slot, held)),
        streams=1 if unified else settings.parallel,
        ubatch=ubatch,
    )


def _attention(
    hyper: Hyper,
    settings: Settings,
    laid: Layout,
    role: Role,
    layers: list[int],
    tokens: int,
    streams: int,
) -> Cache:
    is_window = role is Role.WINDOW
    key = hyper.key_length_window if is_window else hyper.key_length
    value = hyper.value_length_window if is_window else hyper.value_length
    widest = None if settings.flash_attention else _widest_value(hyper, laid)
    keys = values = 0
    for layer in layers:
        heads = hyper.kv_heads[layer]
        keys += row_bytes(settings.kv_type_k, key * heads)
        if not hyper.is_latent:
            values += row_bytes(settings.kv_type_v, widest or value * heads)
    count = tokens * streams
    return Cache(role, len(layers), tokens, streams, keys * count, values * count)


def _widest_value(hyper: Hyper, laid: Layout) -> int:
    """Without flash attention values are stored turned, each layer's as wide as the widest."""
    lengths = [
        hyper.value_length_window if kind is Kind.WINDOW else hyper.value_length
        for kind in laid.layers
    ]
    return max(n * heads for n, heads in zip(lengths, hyper.kv_heads, strict=False))


def _indexer(
    hyper: Hyper, settings: Settings, laid: Layout, layers: list[int], size: Cells
) -> Cache:
    length = hyper.indexer.key_length if hyper.indexer else 0
    count = size.per_slot * size.streams * len(layers)
    values = hyper.value_length if laid.indexer_has_values else 0
    return Cache(
        role=Role.INDEXER,
        layers=len(layers),
        cells=size.per_slot,
        streams=size.streams,
        key_bytes=row_bytes(settings.kv_type_k, length) * count,
        value_bytes=row_bytes(settings.kv_type_v, values) * count,
    )


def _state(laid: Layout, settings: Settings) -> Cache:
    """Always 32-bit floats, one for each slot, whatever the context and the cache types."""
    layers = laid.count(Kind.STATE, Kind.BOTH)
    total = 4 * laid.state_floats * layers * settings.parallel
    return Cache(Role.STATE, layers, settings.parallel, 1, total, 0)
