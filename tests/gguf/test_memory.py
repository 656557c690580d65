"""Estimates as a whole: how they move with the settings, and what fits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw_core.errors import InvalidInput
from llmgw_core.gguf.caches import KV_TYPES, padded
from llmgw_core.gguf.hyper import Hyper, hyper
from llmgw_core.gguf.memory import Memory, Settings, estimate, fits_context
from llmgw_core.gguf.words import GIB, MIB
from tests.gguf.shapes import families, model, small

MODELS = st.sampled_from(sorted(families()["headers"])).map(model)
CONTEXTS = st.integers(1, 1 << 20)
SLOTS = st.integers(1, 16)


@st.composite
def servers(draw: st.DrawFn) -> Settings:
    """Any way to start a server."""
    return Settings(
        ctx=draw(CONTEXTS),
        parallel=draw(SLOTS),
        unified=draw(st.booleans()),
        kv_type_k=draw(st.sampled_from(sorted(KV_TYPES))),
        kv_type_v=draw(st.sampled_from(sorted(KV_TYPES))),
        ubatch=draw(st.sampled_from([32, 512, 2048])),
        swa_full=draw(st.booleans()),
        flash_attention=draw(st.booleans()),
        cache_ram_mib=draw(st.none() | st.integers(0, 8192)),
        checkpoints=draw(st.integers(0, 32)),
        embedding_mode=draw(st.booleans()),
    )


@settings(deadline=None, max_examples=50)
@given(shape=MODELS, chosen=servers(), weights=st.integers(0, 1 << 40))
def test_parts_are_the_sum_and_none_is_negative(
    shape: Hyper, chosen: Settings, weights: int
) -> None:
    memory = estimate(shape, weights, chosen)
    assert memory.memory_bytes == (
        weights
        + memory.kv_bytes
        + memory.state_bytes
        + memory.engine_bytes
        + memory.mmproj_bytes
        + memory.prompt_cache_bytes
        + memory.checkpoints_bytes
    )
    assert min(part.size_bytes for part in memory.parts) >= 0
    assert memory.engine_bytes > (memory.compute_bytes or 0) + (memory.output_bytes or 0) > 0
    assert (memory.min_memory_gb - 1) * GIB < memory.memory_bytes <= memory.min_memory_gb * GIB


@settings(deadline=None, max_examples=50)
@given(shape=MODELS, chosen=servers(), more=CONTEXTS)
def test_more_context_never_needs_less(shape: Hyper, chosen: Settings, more: int) -> None:
    larger = replace(chosen, ctx=chosen.ctx + more)
    assert _total(shape, larger) >= _total(shape, chosen)


@settings(deadline=None, max_examples=50)
@given(shape=MODELS, chosen=servers(), more=SLOTS)
def test_more_slots_never_need_less_memory_when_they_share(
    shape: Hyper, chosen: Settings, more: int
) -> None:
    shared = replace(chosen, unified=True)
    assert _total(shape, replace(shared, parallel=shared.parallel + more)) >= _total(shape, shared)


@settings(deadline=None, max_examples=50)
@given(shape=MODELS, chosen=servers(), more=SLOTS)
def test_more_slots_of_one_size_never_need_less(shape: Hyper, chosen: Settings, more: int) -> None:
    each = padded(min(chosen.ctx, 1 << 16))
    few = replace(chosen, unified=False, ctx=each * chosen.parallel)
    many = replace(few, parallel=few.parallel + more, ctx=each * (few.parallel + more))
    assert _total(shape, many) >= _total(shape, few)


def _total(shape: Hyper, chosen: Settings) -> int:
    return estimate(shape, GIB, chosen).memory_bytes


@settings(deadline=None, max_examples=50)
@given(shape=MODELS, steps=st.lists(st.integers(80, 4000), min_size=3, max_size=3), slots=SLOTS)
def test_the_cache_grows_by_the_same_for_each_token(
    shape: Hyper, steps: list[int], slots: int
) -> None:
    # windows of all slots are full beyond this
    first = Settings(1 << 18, parallel=slots, unified=True)
    a, b, c = (
        estimate(shape, 0, replace(first, ctx=first.ctx + step * 256)).kv_bytes for step in steps
    )
    assert (b - a) * (steps[2] - steps[0]) == (c - a) * (steps[1] - steps[0])


@settings(deadline=None, max_examples=50)
@given(shape=MODELS, chosen=servers(), kind=st.sampled_from(sorted(KV_TYPES)))
def test_a_quantised_cache_is_no_larger_than_one_of_16_bits(
    shape: Hyper, chosen: Settings, kind: str
) -> None:
    plain = replace(chosen, kv_type_k="f16", kv_type_v="f16")
    other = replace(chosen, kv_type_k=kind, kv_type_v=kind)
    found, usual = (estimate(shape, 0, each).kv_bytes for each in (other, plain))
    assert found >= usual if kind == "f32" else found <= usual


@settings(deadline=None, max_examples=50)
@given(
    shape=MODELS,
    memory_gb=st.integers(1, 64),
    slots=st.integers(1, 4),
    unified=st.booleans(),
    cache_ram=st.none() | st.integers(0, 1024),
)
def test_what_fits_fits_and_more_does_not(
    shape: Hyper, memory_gb: int, slots: int, unified: bool, cache_ram: int | None
) -> None:
    room = memory_gb * GIB
    chosen = Settings(0, parallel=slots, unified=unified, cache_ram_mib=cache_ram)
    largest = fits_context(shape, GIB // 2, room, chosen)
    if cache_ram is None:
        chosen = replace(chosen, cache_ram_mib=min(512, room // (10 * MIB)))
    assert shape.context_length is not None
    assert 0 <= largest <= shape.context_length

    def needed(ctx: int) -> int:
        return estimate(shape, GIB // 2, replace(chosen, ctx=ctx)).memory_bytes

    if largest:
        assert needed(largest) <= room
    if largest < shape.context_length:
        assert needed(padded(largest + 1)) > room


def test_nothing_fits_where_the_weights_alone_are_too_much() -> None:
    assert fits_context(model("llama-3.1-8b"), 9 * GIB, 8 * GIB, Settings(0)) == 0


def test_three_slots_round_the_pool_up() -> None:
    memory = estimate(model("llama-3.1-8b"), GIB, Settings(1024, parallel=3))
    assert memory.context_per_slot == 512
    assert "for 1536 tokens" in memory.basis


def test_no_context_asked_for_means_the_models_own() -> None:
    memory = estimate(model("gemma2-9b"), GIB, Settings(0))
    assert memory.context_per_slot == 8192


def test_without_sizes_the_engine_is_a_flat_sum_that_holds_the_prompt_cache() -> None:
    shape = hyper(small(feed_forward_length=None))
    memory = estimate(shape, 20 * GIB, Settings(4096))
    assert memory.compute_bytes is None
    assert memory.engine_bytes == 2 * GIB
    assert memory.prompt_cache_bytes == 0
    most = estimate(shape, 20 * GIB, Settings(4096, cache_ram_mib=8192))
    assert most.prompt_cache_bytes == (8192 - 512) * MIB


@pytest.mark.parametrize("weights", [GIB // 10, GIB, 4 * GIB, 40 * GIB])
def test_the_prompt_cache_is_what_the_engine_will_be_given(weights: int) -> None:
    memory = estimate(model("llama-3.1-8b"), weights, Settings(2048))
    given = min(512, int(memory.min_memory_gb * 1024 * 0.1))
    assert memory.prompt_cache_bytes == given * MIB


def test_checkpoints_are_copies_of_windows_and_states() -> None:
    # measured with Gemma 3 270M: 7.5 MiB for each checkpoint
    shape = hyper(
        small(
            "gemma3",
            block_count=18,
            attention__sliding_window=512,
            attention__head_count_kv=1,
            attention__key_length=256,
            attention__value_length=256,
        )
    )
    memory = estimate(shape, 0, Settings(4096, parallel=2, checkpoints=4))
    assert memory.checkpoints_bytes == int(7.5 * MIB) * 4 * 2
    states = estimate(model("granite-4.0-h-small"), 0, Settings(4096, checkpoints=32))
    assert states.checkpoints_bytes / GIB == pytest.approx(4.6, abs=0.05)
    plain = estimate(model("llama-3.1-8b"), 0, Settings(4096, checkpoints=32))
    assert plain.checkpoints_bytes == 0


def test_servers_before_june_2026_keep_logits_of_a_whole_batch() -> None:
    shape = model("qwen3-30b-a3b", 151_936)
    old = _of(shape, old_logits=True)
    assert (old.compute_bytes or 0) >= 512 * 4 * 151_936 > (_of(shape).compute_bytes or 0)


def test_embeddings_keep_a_row_for_each_token_of_a_batch() -> None:
    memory = estimate(model("bge-base (bert)"), 0, Settings(512, embedding_mode=True))
    assert memory.output_bytes == 512 * 4 * (2000 + 768)


def _of(shape: Hyper, *, old_logits: bool = False) -> Memory:
    return estimate(shape, GIB, Settings(4096), old_logits=old_logits)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ctx": -1},
        {"ctx": 1, "parallel": 0},
        {"ctx": 1, "ubatch": 0},
        {"ctx": 1, "cache_ram_mib": -1},
        {"ctx": 1, "kv_type_k": "q3"},
    ],
)
def test_settings_that_no_server_takes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidInput):
        Settings(**wrong)  # type: ignore[arg-type]
