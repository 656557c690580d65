"""Serve plans: every case of serve_plan.json, and what an estimate changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.gguf.header import Header, Value
from llmgw_core.mirror.versions import FileState, MirrorFile, MirrorVersion
from llmgw_core.serve.plan import FleetNode, Known, ServePlan, Wish, plan_serve

CASES = json.loads((Path(__file__).parent.parent / "cases" / "serve_plan.json").read_text())
KEYS = {
    "layers": "block_count",
    "heads": "attention.head_count",
    "kv_heads": "attention.head_count_kv",
    "key_length": "attention.key_length",
    "value_length": "attention.value_length",
}
LLAMA_8B: dict[str, Value] = {
    "general.architecture": "llama",
    "llama.block_count": 32,
    "llama.context_length": 8192,
    "llama.embedding_length": 4096,
    "llama.feed_forward_length": 14336,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
    "llama.vocab_size": 128256,
}


def header_of(summary: dict[str, Any]) -> Header:
    name = summary["architecture"]
    keys: dict[str, Value] = {"general.architecture": name}
    keys.update({f"{name}.{key}": summary[k] for k, key in KEYS.items() if k in summary})
    return Header(3, keys)


def version_of(case: dict[str, Any]) -> MirrorVersion:
    files = [
        MirrorFile(f["file"], f["bytes_done"], f["bytes_total"] or None, FileState.DONE)
        for f in case["files"]
    ]
    return MirrorVersion(case["model"], case["version"], tuple(files))


def node_of(raw: dict[str, Any]) -> FleetNode:
    engines = raw.get("engines")
    return FleetNode(
        raw["name"], raw.get("state", "ready"), raw.get("memory_gb"), raw.get("cores"),
        None if engines is None else tuple(engines), raw.get("gpus_total"),
    )  # fmt: skip


def run(case: dict[str, Any]) -> ServePlan:
    known = Known(
        fleet=tuple(map(node_of, case["fleet"])),
        declared=case.get("declared", ()),
        engine_refuses=case.get("engine_refuses", ""),
        header=header_of(case["header"]) if "header" in case else None,
    )
    return plan_serve(version_of(case), known)


@pytest.mark.parametrize("case", CASES["cases"], ids=lambda case: case["name"])
def test_a_case_gives_the_plan_that_it_must(case: dict[str, Any]) -> None:
    plan = run(case)
    for key, wanted in case["expect"].items():
        if key.endswith("_mentions"):
            text = getattr(plan, key.removesuffix("_mentions"))
            assert [word for word in wanted if word not in text] == [], text
        elif key.endswith("_ends_with"):
            assert getattr(plan, key.removesuffix("_ends_with")).endswith(wanted)
        else:
            assert getattr(plan, key) == wanted, key


def plan_8b(wish: Wish | None = None, **known: Any) -> ServePlan:
    version = MirrorVersion(
        "m", "v1", (MirrorFile("m.gguf", 4920734000, 4920734000, FileState.DONE),)
    )
    fleet = (FleetNode("n1", "ready", 64, 16, ("llamacpp",), 0),)
    return plan_serve(version, Known(fleet=fleet, header=Header(3, LLAMA_8B), **known), wish)


def test_a_smaller_pool_and_a_quantised_cache_need_less() -> None:
    usual, small = plan_8b(), plan_8b(Wish(ctx_pool=4096))
    quantised = plan_8b(Wish(ctx_pool=65536, kv_type="q8_0"))
    assert small.min_memory_gb < usual.min_memory_gb
    assert quantised.min_memory_gb < plan_8b(Wish(ctx_pool=65536)).min_memory_gb


def test_a_model_with_a_state_gets_one_slot_unless_more_are_asked_for() -> None:
    keys: dict[str, Value] = {
        "general.architecture": "mamba", "mamba.block_count": 24, "mamba.embedding_length": 768,
        "mamba.ssm.conv_kernel": 4, "mamba.ssm.inner_size": 1536, "mamba.ssm.state_size": 16,
        "mamba.ssm.time_step_rank": 48, "mamba.attention.head_count": 0,
        "mamba.feed_forward_length": 0, "mamba.context_length": 2048,
    }  # fmt: skip
    version = MirrorVersion("m", "v1", (MirrorFile("m.gguf", 10**9, 10**9, FileState.DONE),))
    known = Known(header=Header(3, keys))
    assert plan_serve(version, known).parallel == 1
    assert plan_serve(version, known, Wish(parallel=4)).parallel == 4


def test_a_header_with_impossible_numbers_falls_back_and_says_so() -> None:
    version = MirrorVersion("m", "v1", (MirrorFile("m.gguf", 2**30, 2**30, FileState.DONE),))
    keys: dict[str, Value] = {"general.architecture": "llama", "llama.block_count": -5}
    plan = plan_serve(version, Known(header=Header(3, keys)))
    assert plan.min_memory_gb == 3
    assert plan.memory_basis == "weights plus half again plus two"
    assert "block_count" in plan.warning
    assert plan.refusal == ""


def test_an_unreadable_header_is_refused_with_its_reason() -> None:
    assert plan_8b(header_error="m.gguf is an HTML page").refusal == "m.gguf is an HTML page"


@pytest.mark.parametrize(
    "name", ["model.\x1b[2J", "\u202em\x9b" + "x" * 5000 + "-00001-of-00002.gguf"]
)
def test_names_of_files_are_shown_harmless_and_short(name: str) -> None:
    version = MirrorVersion("m", "v", (MirrorFile(name, 1, 1, FileState.DONE),))
    refusal = plan_serve(version, Known()).refusal
    assert refusal
    assert refusal.isprintable()
    assert len(refusal) < 300


def test_a_declared_name_is_refused_until_another_one_is_typed() -> None:
    assert "configuration" in plan_8b(declared=("m", "n")).refusal
    assert plan_8b(Wish(name="other"), declared=("m", "n")).refusal == ""
    assert "n is declared" in plan_8b(Wish(name="n"), declared=("m", "n")).refusal
