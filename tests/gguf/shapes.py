"""Headers of tests: those in the case files, and small ones made on the spot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from llmgw_core.gguf.header import Header, SkippedArray, Value
from llmgw_core.gguf.hyper import Hyper, hyper
from llmgw_core.gguf.memory import Settings

CASES = Path(__file__).parent.parent / "cases"


@cache
def families() -> Any:
    """What llama.cpp itself allocates for 24 headers."""
    return json.loads((CASES / "gguf_families.json").read_text(encoding="utf-8"))


def header_of(keys: Mapping[str, Any], vocabulary: int | None = None) -> Header:
    """A header with these keys, lists as the reader gives them."""
    values: dict[str, Value] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in keys.items()
    }
    if vocabulary is not None:
        values["tokenizer.ggml.tokens"] = SkippedArray(vocabulary)
    return Header(version=3, keys=values)


def model(name: str, vocabulary: int = 2000) -> Hyper:
    """A model of the case file."""
    return hyper(header_of(families()["headers"][name], vocabulary))


def settings_of(cfg: Mapping[str, Any]) -> Settings:
    """The settings that a vector's ``cfg`` names."""
    return Settings(
        ctx=cfg["ctx"],
        parallel=cfg["np"],
        unified=cfg.get("kvu", False),
        kv_type_k=cfg.get("ctk", "f16"),
        kv_type_v=cfg.get("ctv", "f16"),
        ubatch=cfg.get("ub", 512),
        swa_full=cfg.get("swa_full", False),
        flash_attention=bool(cfg.get("fa", 1)),
    )


def small(architecture: str = "llama", **changes: Any) -> Header:
    """A small model's header; ``a__b`` stands for the key ``a.b``, None takes a key away."""
    keys: dict[str, Any] = {
        "block_count": 4,
        "embedding_length": 512,
        "feed_forward_length": 1024,
        "context_length": 8192,
        "attention.head_count": 8,
        "attention.head_count_kv": 2,
    }
    keys |= {name.replace("__", "."): value for name, value in changes.items()}
    named = {f"{architecture}.{name}": v for name, v in keys.items() if v is not None}
    return header_of({"general.architecture": architecture, **named}, 2000)
