"""What a llama.cpp server needs beside weights and contexts, from above. Pure.

Measured with llama.cpp b11549 over 24 shapes and 9 settings each: between the real buffer and twice
that.
"""

from __future__ import annotations

from llmgw_core.gguf.caches import Cells, Role, Settings, caches, cells
from llmgw_core.gguf.families import Kind, Layout, layout
from llmgw_core.gguf.hyper import Hyper

FLOAT = 4


def compute_bytes(hyper: Hyper, settings: Settings, *, old_logits: bool = False) -> int | None:
    """Upper bound of the buffer for one physical batch; None where the header lacks sizes.

    With ``old_logits`` as servers before June 2026 did it, with a row of logits for each token.
    """
    if hyper.embedding is None or hyper.feed_forward is None or hyper.vocabulary is None:
        return None
    size = cells(hyper, settings)
    laid = layout(hyper)
    widest = max(_feed_forward(hyper), _experts(hyper), _attention(hyper), _recurrent(hyper))
    floats = size.ubatch * (widest + _inputs(hyper))
    floats += laid.state_floats * settings.parallel
    total = FLOAT * floats + _masks(hyper, settings, size)
    if not settings.flash_attention:
        total += FLOAT * max(hyper.heads) * _longest(laid, size) * size.ubatch
    if laid.count(Kind.NOTHING) < len(laid.layers):
        total += total // 10  # encoders are below even without this
    if old_logits:
        total = max(total, FLOAT * size.ubatch * (hyper.vocabulary + 2 * hyper.embedding))
    return total


def output_bytes(hyper: Hyper, settings: Settings) -> int | None:
    """The buffer of results: a row of logits for each slot; None without a vocabulary's size."""
    if hyper.vocabulary is None or hyper.embedding is None:
        return None
    if settings.embedding_mode:
        rows = cells(hyper, settings).ubatch
        return FLOAT * rows * (hyper.vocabulary + hyper.embedding)
    return FLOAT * settings.parallel * hyper.vocabulary


def _inputs(hyper: Hyper) -> int:
    embedding = hyper.embedding or 0
    return (6 + hyper.altup_inputs) * embedding + hyper.layers * hyper.embedding_per_layer


def _feed_forward(hyper: Hyper) -> int:
    return 3 * max(hyper.feed_forward or (0,))


def _experts(hyper: Hyper) -> int:
    experts, embedding = hyper.experts, hyper.embedding or 0
    return 3 * experts.used * experts.feed_forward + 3 * experts.shared + experts.used * embedding


def _attention(hyper: Hyper) -> int:
    return 3 * max(hyper.heads) * max(hyper.key_length, hyper.key_length_window)


def _recurrent(hyper: Hyper) -> int:
    mixed = 16 * (hyper.embedding or 0) if hyper.state.wkv_head_size else 0
    return max(4 * hyper.state.inner_size, mixed)


def _masks(hyper: Hyper, settings: Settings, size: Cells) -> int:
    """Which token sees which, as 16-bit floats, for each cache."""
    kept = [cache.cells for cache in caches(hyper, settings) if cache.role is not Role.STATE]
    return 2 * size.ubatch * sum(kept)


def _longest(laid: Layout, size: Cells) -> int:
    """Tokens that one token is compared with at most."""
    if laid.count(Kind.FULL, Kind.BOTH):
        return size.per_slot
    if laid.count(Kind.WINDOW):
        return size.window
    return 0 if laid.count(Kind.STATE) else size.ubatch
