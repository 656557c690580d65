"""Every family's caches against what llama.cpp b11549 allocates itself."""

from __future__ import annotations

from typing import Any

import pytest

from llmgw_core.gguf.caches import Role, caches, cells
from llmgw_core.gguf.compute import compute_bytes, output_bytes
from llmgw_core.gguf.words import MIB
from tests.gguf.shapes import families, model, settings_of

LOG_ROUNDING = 0.0101
VECTORS = families()["vectors"]


def _name(vector: dict[str, Any]) -> str:
    return f"{vector['model']} " + ",".join(f"{k}={v}" for k, v in vector["cfg"].items())


def test_the_cases_are_all_there() -> None:
    assert len(VECTORS) == 213
    assert {vector["model"] for vector in VECTORS} == set(families()["headers"])


@pytest.mark.parametrize("vector", VECTORS, ids=_name)
def test_caches_are_exact_and_compute_is_from_above(vector: dict[str, Any]) -> None:
    shape, settings = model(vector["model"], vector["n_vocab"]), settings_of(vector["cfg"])
    found = caches(shape, settings)

    kept = [cache for cache in found if cache.role is not Role.STATE]
    state = sum(cache.total_bytes for cache in found if cache.role is Role.STATE)
    assert sum(c.total_bytes for c in kept) / MIB == pytest.approx(
        vector["kv_mib"], abs=LOG_ROUNDING
    )
    assert state / MIB == pytest.approx(vector["rs_mib"], abs=LOG_ROUNDING)
    assert cells(shape, settings).per_slot == vector["n_ctx_seq"]
    assert [(c.cells, c.layers, c.streams) for c in kept] == [
        (row["cells"], row["layers"], row["streams"]) for row in vector["caches"]
    ]
    for cache, row in zip(kept, vector["caches"], strict=True):
        assert cache.key_bytes / MIB == pytest.approx(row["k"], abs=LOG_ROUNDING)
        assert cache.value_bytes / MIB == pytest.approx(row["v"], abs=LOG_ROUNDING)

    compute, output = compute_bytes(shape, settings), output_bytes(shape, settings)
    assert compute is not None
    assert output is not None
    assert vector["compute_mib"] <= compute / MIB <= 2 * vector["compute_mib"]
    assert output / MIB == pytest.approx(vector["output_mib"], abs=LOG_ROUNDING)
