"""What of a header is taken, and what is refused in one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw_core.errors import LlmgwError
from llmgw_core.gguf.header import Header, SkippedArray
from llmgw_core.gguf.hyper import HeaderUnusable, hyper
from llmgw_core.gguf.memory import Settings, estimate
from tests.gguf.shapes import header_of, small


def test_missing_kv_heads_are_as_many_as_heads() -> None:
    shape = hyper(small(attention__head_count_kv=None))
    assert shape.kv_heads == shape.heads == (8, 8, 8, 8)


def test_key_length_need_not_be_a_share_of_the_embedding() -> None:
    assert hyper(small()).key_length == 512 // 8
    shape = hyper(small(attention__key_length=128, attention__value_length=96))
    assert (shape.key_length, shape.value_length) == (128, 96)


def test_heads_may_differ_by_layer_and_the_first_may_have_none() -> None:
    shape = hyper(small(attention__head_count=[0, 8, 8, 8], attention__head_count_kv=[0, 4, 2, 2]))
    assert shape.kv_heads == (0, 4, 2, 2)
    assert shape.key_length == 64


def test_a_list_may_be_longer_than_the_layers_but_not_shorter() -> None:
    assert hyper(small(attention__head_count_kv=[2] * 6)).kv_heads == (2, 2, 2, 2)
    with pytest.raises(HeaderUnusable, match=r"llama\.attention\.head_count_kv is a list of 3"):
        hyper(small(attention__head_count_kv=[2] * 3))


def test_layers_of_multi_token_prediction_are_told_apart() -> None:
    shape = hyper(small(nextn_predict_layers=1))
    assert (shape.block_count, shape.layers) == (4, 3)


def test_the_vocabulary_is_the_tokenizers_or_the_one_named() -> None:
    named = header_of({**small().keys, "llama.vocab_size": 77})
    assert hyper(named).vocabulary == 2000
    keys = {k: v for k, v in named.keys.items() if not k.startswith("tokenizer")}
    assert hyper(header_of(keys)).vocabulary == 77


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("block_count", None, "tells no llama.block_count"),
        ("block_count", "thirty-two", "llama.block_count is 'thirty-two'"),
        ("block_count", -5, "llama.block_count is -5"),
        ("block_count", 4_000_000_000, "llama.block_count is 4000000000"),
        ("block_count", 0, "not a whole number from 1 to 512"),
        ("block_count", 3.5, "3.5"),
        ("block_count", True, "True"),
        ("embedding_length", (1 << 20) + 1, "llama.embedding_length is 1048577"),
        ("attention__head_count", 65537, "65537"),
        ("context_length", (1 << 31) + 1, "llama.context_length"),
        ("attention__head_count_kv", [1, 2, "x", 4], "'x'"),
        ("embedding_length", None, "tells no llama.embedding_length"),
        ("nextn_predict_layers", 4, "llama.nextn_predict_layers is 4"),
        ("feed_forward_length", "\x1b[31m" * 99, "llama.feed_forward_length"),
    ],
)
def test_what_cannot_be_a_model_is_refused(key: str, value: Any, said: str) -> None:
    with pytest.raises(HeaderUnusable) as caught:
        hyper(small(**{key: value}))
    text = str(caught.value)
    assert isinstance(caught.value, LlmgwError)
    assert said in text
    assert text.isprintable()
    assert len(text) < 250


def test_a_header_without_an_architecture_is_refused() -> None:
    with pytest.raises(HeaderUnusable, match=r"general\.architecture"):
        hyper(Header(3, {}))


def test_a_list_that_was_passed_over_is_refused() -> None:
    keys = {**small().keys, "llama.attention.head_count_kv": SkippedArray(100_000)}
    with pytest.raises(HeaderUnusable, match="a list of 100000"):
        hyper(Header(3, keys))


def test_no_heads_at_all_are_refused_lest_the_cache_counts_as_nothing() -> None:
    bare = {"attention__head_count": None, "attention__head_count_kv": None}
    for name in ("llama", "foo"):
        with pytest.raises(HeaderUnusable, match="head_count"):
            hyper(small(name, **bare))
    assert hyper(small("bert", **bare)).kv_heads == (0, 0, 0, 0)
    assert hyper(small("mamba", ssm__inner_size=8, ssm__state_size=2, **bare)).kv_heads == (
        0,
        0,
        0,
        0,
    )


texts = st.text("a\x1b\u202e\n", max_size=8)
scalars = st.one_of(st.booleans(), st.integers(-(2**63), 2**63), st.floats(), texts)
values = st.one_of(
    scalars,
    st.none(),
    st.integers(0, 600),
    st.lists(scalars, max_size=8).map(tuple),
    st.lists(st.integers(0, 64), min_size=4, max_size=6).map(tuple),
    st.integers(0, 2**40).map(SkippedArray),
)
KEYS = """
    block_count embedding_length feed_forward_length context_length nextn_predict_layers
    attention.head_count attention.head_count_kv attention.key_length attention.value_length
    attention.key_length_mla attention.value_length_mla attention.sliding_window
    attention.sliding_window_pattern attention.shared_kv_layers attention.indexer.key_length
    attention.indexer.types attention.recurrent_layers full_attention_interval ssm.conv_kernel
    ssm.inner_size ssm.state_size ssm.group_count wkv.head_size kda.head_dim shortconv.l_cache
    expert_used_count expert_feed_forward_length expert_shared_count vocab_size
"""


@settings(deadline=None)
@given(
    name=st.sampled_from(["llama", "gemma3", "deepseek2", "jamba", "qwen3next", "gemma4", "foo"]),
    changes=st.dictionaries(st.sampled_from(KEYS.split()), values, max_size=6),
)
def test_any_header_is_estimated_or_refused(name: str, changes: dict[str, Any]) -> None:
    keys = {**small(name).keys, **{f"{name}.{key}": value for key, value in changes.items()}}
    header = Header(3, {key: value for key, value in keys.items() if value is not None})
    try:
        shape = hyper(header)
    except HeaderUnusable as error:
        refusal = str(error)
    else:
        refusal = ""
        memory = estimate(shape, 1000, Settings(4096, parallel=2))
        assert memory.memory_bytes > 1000
        assert min(part.size_bytes for part in memory.parts) >= 0
        assert memory.basis.isprintable()
    assert refusal.isprintable()


@pytest.mark.parametrize("changes", [{}, {"block_count": 0}, {"attention.head_count": "\x1b[2J"}])
def test_a_name_that_would_steer_the_terminal_is_shown_harmless_and_short(
    changes: dict[str, Any],
) -> None:
    name = "\x1b[2J" + "x" * (1 << 20)
    keys = {"block_count": 2, "embedding_length": 64} if changes else {}
    header = header_of(
        {"general.architecture": name, **{f"{name}.{k}": v for k, v in {**keys, **changes}.items()}}
    )
    with pytest.raises(HeaderUnusable) as caught:
        hyper(header)
    said = str(caught.value)
    assert said.isprintable()
    assert "·[2Jxx" in said
    assert len(said) < 250
