"""The sum in words, as people read it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmgw_core.gguf.header import Header
from llmgw_core.gguf.hyper import hyper
from llmgw_core.gguf.memory import Settings, estimate, unheaded
from llmgw_core.gguf.words import GIB, MIB, size
from tests.gguf.shapes import CASES, header_of, model, small

NAMES = {
    "layers": "block_count",
    "heads": "attention.head_count",
    "kv_heads": "attention.head_count_kv",
    "key_length": "attention.key_length",
    "value_length": "attention.value_length",
}
PLANS = [
    case
    for case in json.loads((CASES / "serve_plan.json").read_text(encoding="utf-8"))["cases"]
    if "min_memory_gb" in case["expect"]
]


def _header(given: dict[str, Any]) -> Header:
    name = given["architecture"]
    keys = {f"{name}.{NAMES[key]}": value for key, value in given.items() if key in NAMES}
    return header_of({"general.architecture": name, **keys})


@pytest.mark.parametrize("case", PLANS, ids=lambda case: case["name"])
def test_serve_plans(case: dict[str, Any]) -> None:
    weights = sum(file["bytes_total"] or file["bytes_done"] for file in case["files"])
    if "header" in case:
        settings = Settings(16384, parallel=4, unified=True)
        memory = estimate(hyper(_header(case["header"])), weights, settings)
        found = memory.min_memory_gb, memory.basis
    else:
        found = unheaded(weights)
    expected = case["expect"]
    assert found[0] == expected["min_memory_gb"]
    assert found[1] == expected.get("memory_basis", found[1])


def test_an_unknown_size_is_said() -> None:
    assert unheaded(None) == unheaded(0) == (0, "size unknown")


CONTEXTS = {
    "llama-3.1-8b": "KV cache 2.0 GB for 16384 tokens (32 layers × 8 KV heads)",
    "gemma3-4b": "KV cache 0.8 GB for 16384 tokens "
    "(5 full layers × 4 KV heads; 29 window layers hold 4608 tokens)",
    "deepseek-v2-lite (MLA keys)": "KV cache 0.5 GB for 16384 tokens (27 layers × 576 latent, MLA)",
    "openelm-270m (per-layer heads)": "KV cache 0.2 GB for 16384 tokens (16 layers × 3–5 KV heads)",
    "qwen3-next-80b": "KV cache 0.4 GB for 16384 tokens (12 attention layers of 48) "
    "+ state 0.3 GB (75 MB per slot)",
    "mamba-2.8b": "state 95 MB (24 MB per slot)",
    "bge-base (bert)": "no KV cache (encoder)",
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_each_family_says_how_its_context_is_kept(name: str) -> None:
    memory = estimate(model(name), GIB, Settings(16384, parallel=4, unified=True))
    context = [part.words for part in memory.parts if part.name in ("kv", "state")]
    assert " + ".join(context) == CONTEXTS[name]
    assert memory.basis.startswith(f"weights 1.0 GB + {CONTEXTS[name]} + ")
    assert "for the engine" in memory.basis


def test_an_unknown_architecture_is_named_and_counted_in_full() -> None:
    known, unknown = hyper(small("llama")), hyper(small("foo"))
    settings = Settings(4096)
    memory = estimate(unknown, GIB, settings)
    assert memory.kv_bytes == estimate(known, GIB, settings).kv_bytes > 0
    assert '(unknown architecture "foo": counted as full attention)' in memory.basis


def test_a_hostile_name_cannot_drive_the_terminal() -> None:
    basis = estimate(hyper(small("a\x1b[31m\u202eb" + "c" * 90)), 1, Settings(256)).basis
    assert basis.isprintable()
    assert "c" * 60 not in basis


def test_summands_of_a_profile_are_named() -> None:
    settings = Settings(4096, parallel=2, cache_ram_mib=1024, checkpoints=3)
    memory = estimate(model("gemma3-4b"), GIB, settings, mmproj_bytes=800 * MIB)
    assert "+ 1.0 GB prompt cache" in memory.basis
    assert "for 6 checkpoints" in memory.basis
    assert "+ 1.4 GB for images" in memory.basis


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0.0 GB"),
        (GIB * 3 // 2, "1.5 GB"),
        (300 * MIB, "0.3 GB"),
        (98 * MIB, "98 MB"),
        (160 << 10, "160 KB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text
