"""The contract's own cases: each a configuration that holds only models."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.catalog.normalise import check
from llmgw_core.engines.base import Engine
from tests.catalog.standins import ENGINES

CASES = json.loads((Path(__file__).parent.parent / "cases" / "catalog.json").read_text())["cases"]


def _holds(given: object, want: object) -> bool:
    """Whether everything wanted is in what is given; lists are compared item by item."""
    if isinstance(want, Mapping):
        assert isinstance(given, Mapping)
        return all(key in given and _holds(given[key], value) for key, value in want.items())
    if isinstance(want, list):
        assert isinstance(given, list)
        return len(given) >= len(want) and all(map(_holds, given, want))
    return given == want


def _shipped() -> Mapping[str, Engine]:
    registry = pytest.importorskip("llmgw_core.engines.registry")
    engines: Mapping[str, Engine] = registry.ENGINES
    return engines


@pytest.mark.parametrize("engines", [lambda: ENGINES, _shipped], ids=["stand-ins", "shipped"])
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(
    case: dict[str, Any], engines: Callable[[], Mapping[str, Engine]], tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(case["toml"])
    shown = json.loads(json.dumps(check(file, None, engines()).to_json()))
    messages = " ".join(error["message"] for error in shown["errors"])
    assert shown["ok"] is case["ok"], messages
    assert shown["ok"] is not bool(shown["errors"])
    for word in case.get("errors_mention", ()):
        assert word in messages
    assert all(error["file"] == str(file) for error in shown["errors"])
    models = {model["name"]: model for model in shown["models"]}
    for name, fields in case.get("gives", {}).items():
        assert _holds(models[name], fields), models[name]
