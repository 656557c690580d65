"""Every vector of gguf_families.json as an operator meets it: a file on the disk, ``run gguf``."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.gguf.memory import Settings
from llmgw_core.gguf.parse import Type
from llmgw_core.mirror.inspect import Places, look
from llmgw_core.mirror.looked import Looked
from llmgw_core.mirror.store import Store
from llmgw_core.serve.described import described
from tests.gguf.writer import File, numbers, texts

CASES = json.loads((Path(__file__).parent.parent / "cases" / "gguf_families.json").read_text())
SHOWN = [v for v in CASES["vectors"] if not {"swa_full", "fa"} & set(v["cfg"])]
"""Those that the command has options for."""
MIB = 1024**2


def written(name: str, vocabulary: int) -> bytes:
    file = File()
    for key, value in CASES["headers"][name].items():
        if isinstance(value, list):
            whole = all(isinstance(item, int) and not isinstance(item, bool) for item in value)
            kind = Type.INT32 if whole else Type.BOOL
            file.raw(key, Type.ARRAY, numbers(kind, value))
        else:
            file.add(key, value)
    file.raw("tokenizer.ggml.tokens", Type.ARRAY, texts([str(n) for n in range(vocabulary)]))
    file.tensor("token_embd.weight", (32,))
    file.data = bytes(128)
    return bytes(file)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("headers")

    @cache
    def looked(name: str, vocabulary: int) -> Looked:
        path = folder / f"{abs(hash((name, vocabulary)))}.gguf"
        path.write_bytes(written(name, vocabulary))
        return asyncio.run(look(str(path), Places(Store(folder / "mirror"))))

    return looked


@pytest.mark.parametrize("vector", SHOWN, ids=lambda v: f"{v['model']} {json.dumps(v['cfg'])}")
def test_a_vector_is_told_as_llama_cpp_would_allocate_it(vector: Any, seen: Any) -> None:
    cfg = vector["cfg"]
    settings = Settings(
        ctx=cfg["ctx"],
        parallel=cfg.get("np", 1),
        unified=bool(cfg.get("kvu", False)),
        kv_type_k=cfg.get("ctk", "f16"),
        kv_type_v=cfg.get("ctv", "f16"),
        ubatch=cfg.get("ub", 512),
    )
    told = described(seen(vector["model"], vector["n_vocab"]), settings)
    assert told["kv_bytes"] / MIB == pytest.approx(vector["kv_mib"], abs=0.011)
    assert told["state_bytes"] / MIB == pytest.approx(vector["rs_mib"], abs=0.011)
    if told["compute_bytes"] is not None:
        assert vector["compute_mib"] <= told["compute_bytes"] / MIB <= 2 * vector["compute_mib"]
    assert told["servable"] is True, told["reason"]
