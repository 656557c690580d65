"""Rules that hang on an architecture's name: which layers keep what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.gguf.architectures import ARCHITECTURES, architecture
from llmgw_core.gguf.caches import Role, Settings, caches
from llmgw_core.gguf.families import Kind, Layout, layout
from llmgw_core.gguf.hyper import hyper
from tests.gguf.shapes import small


def _layout(name: str, **keys: Any) -> Layout:
    return layout(hyper(small(name, **keys)))


def _drawn(laid: Layout) -> str:
    letters = {Kind.FULL: "F", Kind.WINDOW: "w", Kind.NOTHING: ".", Kind.STATE: "s", Kind.BOTH: "B"}
    return "".join(letters[kind] for kind in laid.layers)


def test_the_table_holds_what_the_checked_build_knows() -> None:
    assert len(ARCHITECTURES) == 154
    assert architecture("llama") is not None
    assert architecture("foo") is None


@pytest.mark.parametrize(
    ("name", "keys", "drawn"),
    [
        ("llama", {"attention.sliding_window": 4096}, "FFFF"),
        ("phi3", {"attention.sliding_window": 2047}, "FFFF"),
        ("gemma2", {}, "wFwF"),
        ("gemma2", {"attention.sliding_window": 0}, "FFFF"),
        ("gemma3", {"block_count": 8, "attention.sliding_window": 512}, "wwwwwFww"),
        ("gemma3", {}, "FFFF"),
        ("llama4", {}, "wwwF"),
        ("llama4", {"attention.sliding_window": 0}, "FFFF"),
        ("exaone4", {"attention.sliding_window": 4096}, "FFFF"),
        ("cohere2moe", {"attention.sliding_window": 4096}, "Fwww"),
        ("smallthinker", {}, "FFFF"),
        ("smallthinker", {"attention.sliding_window": 1}, "Fwww"),
        (
            "gemma3n",
            {"block_count": 22, "attention.sliding_window": 512},
            "wwwwF" * 4 + "..",
        ),
        (
            "gemma4",
            {
                "attention.sliding_window": 512,
                "attention.sliding_window_pattern": [True, True, False, True],
                "attention.shared_kv_layers": 1,
            },
            "wwF.",
        ),
        (
            "mimo2",
            {"attention.sliding_window": 128, "attention.sliding_window_pattern": [0, 1, 1, 0]},
            "FwwF",
        ),
        ("mimo2", {"attention.sliding_window": 128}, "FFFF"),
        (
            "gpt-oss",
            {"attention.sliding_window": 128, "attention.sliding_window_pattern": 4},
            "wwwF",
        ),
        ("lfm2", {"attention.head_count_kv": [0, 0, 8, 0]}, "ssFs"),
        (
            "lfm2",
            {"attention.head_count_kv": [0, 0, 8, 0], "attention.sliding_window": 512},
            "ssws",
        ),
        ("jamba", {"attention.head_count_kv": [0, 8, 0, 0]}, "sFss"),
        (
            "nemotron_h",
            {"attention.head_count_kv": [0, 0, 8, 0], "feed_forward_length": [0, 64, 0, 64]},
            "s.F.",
        ),
        ("qwen3next", {}, "sssF"),
        ("qwen3next", {"full_attention_interval": 2}, "sFsF"),
        ("qwen35", {"attention.recurrent_layers": [False, True, True, False]}, "FssF"),
        ("falcon-h1", {"ssm.inner_size": 64}, "BBBB"),
        ("mamba2", {"ssm.inner_size": 64}, "ssss"),
        ("bert", {}, "...."),
        ("deci", {"attention.head_count_kv": [8, 0, 8, 0]}, "F.F."),
        ("glm4moe", {"nextn_predict_layers": 1}, "FFF"),
        (
            "foo",
            {"attention.head_count_kv": [0, 8, 0, 0], "ssm.inner_size": 64, "ssm.state_size": 16},
            "sFss",
        ),
        ("foo", {"attention.head_count_kv": [0, 8, 0, 0]}, ".F.."),
    ],
)
def test_which_layer_keeps_what(name: str, keys: dict[str, Any], drawn: str) -> None:
    assert _drawn(_layout(name, **keys)) == drawn


@pytest.mark.parametrize(
    ("name", "named", "window"),
    [
        ("exaone4", None, 4096),
        ("exaone-moe", None, 128),
        ("gemma2", 1024, 1024),
        ("smallthinker", 7, 4096),
        ("llama4", 7, 8192),
        ("qwen3", 4096, 0),
    ],
)
def test_windows_that_the_header_does_not_name(name: str, named: int | None, window: int) -> None:
    laid = _layout(name, block_count=64, attention__sliding_window=named)
    assert laid.window == window


def _bytes(name: str, role: Role, parallel: int = 1, **keys: Any) -> int:
    found = caches(hyper(small(name, **keys)), Settings(1024, parallel=parallel))
    return sum(cache.total_bytes for cache in found if cache.role is role)


def test_a_latent_needs_both_keys() -> None:
    old: dict[str, Any] = {"attention.key_length": 576, "attention.value_length": 512}
    new = {"attention.key_length_mla": 192, "attention.value_length_mla": 128}
    assert _bytes("deepseek2", Role.KV, **old) == 4 * 1024 * 2 * (576 + 512) * 2
    assert _bytes("deepseek2", Role.KV, **old, **new) == 4 * 1024 * 2 * 576 * 2


def test_an_indexer_keeps_one_more_row_where_the_header_lists_it() -> None:
    keys: dict[str, Any] = {"attention.indexer.key_length": 128}
    assert _bytes("deepseek32", Role.INDEXER, **keys) == 4 * 1024 * 128 * 2
    listed: dict[str, Any] = {**keys, "attention.indexer.types": [1, 0, 0, 1]}
    assert _bytes("glm-dsa", Role.INDEXER, **listed) == 2 * 1024 * 128 * 2
    assert _bytes("llama", Role.INDEXER, **keys) == 0


def test_an_indexer_with_values_begins_after_the_dense_layers() -> None:
    keys: dict[str, Any] = {"attention.indexer.key_length": 128, "leading_dense_block_count": 1}
    assert _bytes("minimax-m3", Role.INDEXER, **keys) == 3 * 1024 * (128 + 64) * 2


@pytest.mark.parametrize(
    ("name", "keys", "floats"),
    [
        ("mamba", {"ssm.conv_kernel": 4, "ssm.inner_size": 100, "ssm.state_size": 16}, 300 + 1600),
        (
            "mamba2",
            {
                "ssm.conv_kernel": 4,
                "ssm.inner_size": 100,
                "ssm.state_size": 16,
                "ssm.group_count": 2,
            },
            3 * (100 + 64) + 1600,
        ),
        ("rwkv7", {"wkv.head_size": 64}, (2 + 64) * 512),
        ("rwkv7", {"wkv.head_size": 64, "token_shift_count": 1}, (1 + 64) * 512),
        (
            "kimi-linear",
            {"ssm.conv_kernel": 4, "kda.head_dim": 32, "attention.head_count_kv": [0, 0, 0, 0]},
            3 * 3 * 8 * 32 + 32 * 32 * 8,
        ),
    ],
)
def test_states_are_floats_for_each_slot(name: str, keys: dict[str, Any], floats: int) -> None:
    assert _bytes(name, Role.STATE, **keys) == 4 * 4 * floats
    assert _bytes(name, Role.STATE, parallel=3, **keys) == 3 * 4 * 4 * floats


def test_lightning_attention_keeps_a_square_for_each_head() -> None:
    assert _bytes("minimax-01", Role.STATE) == 3 * 4 * 64 * 64 * 8


def test_window_layers_may_have_keys_and_values_of_another_length() -> None:
    keys: dict[str, Any] = {
        "attention.sliding_window": 64,
        "attention.sliding_window_pattern": [1, 1, 1, 0],
        "attention.key_length_swa": 32,
        "attention.value_length_swa": 16,
    }
    assert _bytes("gemma4", Role.KV, **keys) == 1024 * 2 * (64 + 64) * 2
    # 64 tokens of the window and a batch of 512 are 768 cells
    assert _bytes("gemma4", Role.WINDOW, **keys) == 3 * 768 * 2 * (32 + 16) * 2


@pytest.mark.engine
def test_the_installed_engine_knows_every_name_of_the_table() -> None:
    pytest.importorskip("xllamacpp")
    script = Path(__file__).parents[2] / "scripts" / "check-architectures"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    # a newer engine may know more, and then the status is 1
    assert done.returncode in (0, 1), done.stderr
    assert "known to the table alone: none" in done.stdout
