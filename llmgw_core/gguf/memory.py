"""The memory that a llama.cpp replica needs, in parts and in words. Pure.

A header gives ``hyper.hyper(header)``; that, the size of the weights and the server's settings give
``estimate``. Where there is no header ``unheaded`` guesses from the size alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from llmgw_core.gguf.basis import context_words
from llmgw_core.gguf.caches import (
    CELLS,
    Cache,
    Role,
    Settings,
    caches,
    cells,
)
from llmgw_core.gguf.compute import compute_bytes, output_bytes
from llmgw_core.gguf.families import layout
from llmgw_core.gguf.hyper import MOST_CONTEXT, Hyper
from llmgw_core.gguf.words import GIB, MIB, plural, size

__all__ = [
    "Cache",
    "Memory",
    "Part",
    "Role",
    "Settings",
    "caches",
    "estimate",
    "fits_context",
    "unheaded",
]

PROGRAM_BYTES = 96 * MIB
"""Code, threads and allocator of the server, and the launcher's two processes."""
TOKEN_BYTES = 300
"""Of the tokenizer's tables, for each token."""
WEIGHTS_MARGIN = 50
"""The engine is given one part in so many of the weights to spare."""
FLAT_ENGINE_BYTES = GIB
FLAT_WEIGHTS_SHARE = 20
"""Without sizes in the header the engine counts as 1 GiB and a twentieth of the weights."""
CACHE_RAM_MOST_MIB = 512
CACHE_RAM_SHARE = 10
"""llmgw gives the prompt cache a tenth of the memory reserved, and no more than that."""
MMPROJ_BYTES = 256 * MIB
"""For the computation of an image, beside one and a half times the projector's file."""


@dataclass(frozen=True, slots=True)
class Part:
    """One summand of an estimate. ``words`` say how it comes about, its size included."""

    name: str
    size_bytes: int
    words: str


@dataclass(frozen=True, slots=True)
class Memory:
    """An estimate, all in bytes. ``basis`` is the sum in words."""

    weights_bytes: int
    kv_bytes: int
    state_bytes: int
    compute_bytes: int | None
    """Of the engine: the buffer for one batch; None where the header lacks sizes."""
    output_bytes: int | None
    """Of the engine: the buffer of results; None where the header lacks sizes."""
    engine_bytes: int
    """All that the server needs beside the other parts."""
    mmproj_bytes: int
    prompt_cache_bytes: int
    checkpoints_bytes: int
    context_per_slot: int
    """Tokens that one slot may hold."""
    parts: tuple[Part, ...]

    @property
    def memory_bytes(self) -> int:
        """All parts together."""
        return sum(part.size_bytes for part in self.parts)

    @property
    def min_memory_gb(self) -> int:
        """Whole GiB to reserve."""
        return -(-self.memory_bytes // GIB)

    @property
    def basis(self) -> str:
        """The sum in words and numbers, for people."""
        return " + ".join(part.words for part in self.parts)


@dataclass(frozen=True, slots=True)
class _Engine:
    compute: int | None
    output: int | None
    total: int

    @property
    def is_flat(self) -> bool:
        return self.compute is None or self.output is None


def estimate(
    hyper: Hyper,
    weights_bytes: int,
    settings: Settings,
    *,
    mmproj_bytes: int | None = None,
    old_logits: bool = False,
) -> Memory:
    """What a replica needs at most once every slot is full.

    ``weights_bytes`` counts all split files, ``mmproj_bytes`` is a projector's file beside them.
    ``old_logits`` is for servers before June 2026, which keep logits of a whole batch.
    """
    found = caches(hyper, settings)
    kv = sum(cache.total_bytes for cache in found if cache.role is not Role.STATE)
    state = sum(cache.total_bytes for cache in found if cache.role is Role.STATE)
    engine = _engine(hyper, weights_bytes, settings, old_logits=old_logits)
    projector = 0 if mmproj_bytes is None else mmproj_bytes * 3 // 2 + MMPROJ_BYTES
    checkpoints = _checkpoints(hyper, settings, found)
    before = weights_bytes + kv + state + engine.total + projector + checkpoints
    cache = _prompt_cache(settings, found, before, is_flat=engine.is_flat)
    parts = [
        Part("weights", weights_bytes, f"weights {size(weights_bytes)}"),
        *(Part(*row) for row in context_words(hyper, settings, found)),
        Part("engine", engine.total, f"{size(engine.total)} for the engine"),
        Part("projector", projector, f"{size(projector)} for images"),
        Part("prompt cache", cache, f"{size(cache)} prompt cache"),
        Part("checkpoints", checkpoints, _checkpoint_words(checkpoints, settings)),
    ]
    return Memory(
        weights_bytes=weights_bytes,
        kv_bytes=kv,
        state_bytes=state,
        compute_bytes=engine.compute,
        output_bytes=engine.output,
        engine_bytes=engine.total,
        mmproj_bytes=projector,
        prompt_cache_bytes=cache,
        checkpoints_bytes=checkpoints,
        context_per_slot=cells(hyper, settings).per_slot,
        parts=tuple(part for part in parts if part.size_bytes or part.name in ("weights", "kv")),
    )


def unheaded(bytes_total: int | None) -> tuple[int, str]:
    """GiB to reserve for weights whose header is not known, and on what basis."""
    if not bytes_total:
        return 0, "size unknown"
    return bytes_total * 3 // (2 * GIB) + 2, "weights plus half again plus two"


def fits_context(hyper: Hyper, weights_bytes: int, memory_bytes: int, settings: Settings) -> int:
    """The largest context pool that a reservation has room for; 0 where none has.

    No larger than the model's own context; ``settings.ctx`` plays no role.
    """
    if settings.cache_ram_mib is None:
        settings = replace(settings, cache_ram_mib=_own_cache_ram_mib(memory_bytes))
    most = hyper.context_length or MOST_CONTEXT

    def fits(ctx: int) -> bool:
        needed = estimate(hyper, weights_bytes, replace(settings, ctx=ctx))
        return needed.memory_bytes <= memory_bytes

    # needs grow with the context, and only from one multiple of CELLS to the next
    low, high = 0, -(-most // CELLS)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle * CELLS):
            low = middle
        else:
            high = middle - 1
    return min(low * CELLS, most)


def _engine(hyper: Hyper, weights_bytes: int, settings: Settings, *, old_logits: bool) -> _Engine:
    compute = compute_bytes(hyper, settings, old_logits=old_logits)
    output = output_bytes(hyper, settings)
    if compute is None or output is None or hyper.vocabulary is None:
        return _Engine(None, None, FLAT_ENGINE_BYTES + weights_bytes // FLAT_WEIGHTS_SHARE)
    fixed = PROGRAM_BYTES + TOKEN_BYTES * hyper.vocabulary + weights_bytes // WEIGHTS_MARGIN
    return _Engine(compute, output, compute + output + fixed)


def _prompt_cache(
    settings: Settings, found: tuple[Cache, ...], before: int, *, is_flat: bool
) -> int:
    """Room for contexts of earlier prompts; none for a model that keeps no context."""
    if not found:
        return 0
    given = settings.cache_ram_mib
    if is_flat:
        # the flat sum for the engine has room for as much as llmgw sets itself
        return max(0, (given or 0) - CACHE_RAM_MOST_MIB) * MIB
    if given is not None:
        return given * MIB
    reserved = -(-before // GIB)
    while before + _own_cache_ram_mib(reserved * GIB) * MIB > reserved * GIB:
        reserved += 1
    return _own_cache_ram_mib(reserved * GIB) * MIB


def _own_cache_ram_mib(memory_bytes: int) -> int:
    """``--cache-ram`` as llmgw sets it for a reservation."""
    return min(CACHE_RAM_MOST_MIB, memory_bytes // (CACHE_RAM_SHARE * MIB))


def _checkpoints(hyper: Hyper, settings: Settings, found: tuple[Cache, ...]) -> int:
    """Copies of what cannot be rolled back: windows, and states; for each slot."""
    one = 0
    for cache in found:
        if cache.role is Role.STATE:
            one += cache.total_bytes // settings.parallel
        elif cache.role is Role.WINDOW:
            each = cache.total_bytes // (cache.cells * cache.streams)
            one += each * min(layout(hyper).window, cache.cells)
    return one * settings.checkpoints * settings.parallel


def _checkpoint_words(total: int, settings: Settings) -> str:
    count = settings.checkpoints * settings.parallel
    return f"{size(total)} for {plural(count, 'checkpoint')}"
