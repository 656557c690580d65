"""One model's table: defaults, and what is told of values that cannot be used."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from llmgw_core.catalog.model import Mode, Model
from llmgw_core.catalog.parse import parse_model
from llmgw_core.catalog.rules import Known, check_models
from tests.catalog.standins import ENGINES
from tests.catalog.strategies import tables

KNOWN = Known(("critical", "standard", "best-effort"), ("ada",), ENGINES)


def table(profile: dict[str, Any] | None = None, **model: Any) -> dict[str, Any]:
    cpu = {"name": "cpu", "engine": "llamacpp"} | (profile or {})
    return {"name": "m", "source": "/w/m.gguf", "profiles": [cpu]} | model


def problems(raw: dict[str, Any]) -> list[tuple[str | None, str]]:
    parsed = parse_model(raw)
    found = list(parsed.findings)
    if parsed.model:
        found += check_models([parsed.model], KNOWN)
    return [(f.key, f.text) for f in found]


def good(raw: dict[str, Any]) -> Model:
    parsed = parse_model(raw)
    assert parsed.findings == []
    assert parsed.model is not None
    return parsed.model


def test_defaults() -> None:
    model = good(table())
    (profile,) = model.profiles
    assert model.model_class == "standard"
    assert model.owner is None
    assert model.scaling.idle_timeout_s == 900
    assert model.scaling.mode is Mode.ON_DEMAND
    assert model.routing_profile == "chat"
    assert model.declared
    assert (profile.weight, profile.priority, profile.startup_timeout_s) == (1.0, 0, 1200)
    assert (profile.min_memory_gb, profile.cpu_cores) == (None, None)


def test_zero_means_the_default_where_the_contract_says_so() -> None:
    keys = ("tp", "pp", "nodes", "gpus_per_node", "weight", "startup_timeout")
    raw = table(dict.fromkeys(keys, 0) | {"gpu_class": "l4"}, scaling={"idle_timeout": 0})
    assert good(raw) == good(table({"gpu_class": "l4"}))


@pytest.mark.parametrize(
    ("key", "value"),
    [("tp", -1), ("pp", -1), ("nodes", -2), ("gpus_per_node", -1), ("weight", -0.5),
     ("priority", -1), ("startup_timeout", -1), ("min_memory_gb", -1), ("cpu_cores", -1)],
)  # fmt: skip
def test_negative_numbers(key: str, value: float) -> None:
    assert [found for found, _ in problems(table({key: value, "gpu_class": "l4"}))] == [key]


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ({"aliases": "x"}, "aliases"),
        ({"aliases": [1]}, "aliases"),
        ({"context_length": 0}, "context_length"),
        ({"max_output": True}, "max_output"),
        ({"max_output": 2.0}, "max_output"),
        ({"scaling": 3}, "scaling"),
        ({"scaling": {"max": -1}}, "scaling.max"),
        ({"scaling": {"max": 10**9}}, "scaling.max"),
        ({"scaling": {"idle_timeout": "soon"}}, "scaling.idle_timeout"),
        ({"scaling": {"minimum": 1}}, "scaling.minimum"),
        ({"slo": {"tpot_p99": 0}}, "slo.tpot_p99"),
        ({"routing_profile": "chatty"}, "routing_profile"),
        ({"owner": "bob"}, "owner"),
        ({"name": "  "}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "x" * 300}, "name"),
        ({"source": 3}, "source"),
        ({"source": "hf:nothing"}, "source"),
        ({"source": "mirror:m"}, "source"),
        ({"source": "mirror:m/../secret"}, "source"),
        ({"source": "ftp://host/file"}, "source"),
        ({"source": "https:///file"}, "source"),
        ({"profiles": []}, "profiles"),
        ({"profiles": "cpu"}, "profiles"),
        ({"profiles": [3]}, "profiles"),
    ],
)
def test_one_thing_wrong_is_one_problem(model: dict[str, Any], key: str) -> None:
    assert [found for found, _ in problems(table(**model))] == [key]


@pytest.mark.parametrize(
    ("profile", "key"),
    [
        ({"args": "--ctx-size 4096"}, "args"),
        ({"env": {"BAD NAME": "x"}}, "env"),
        ({"env": {"GOOD": []}}, "env.GOOD"),
        ({"engine": "llamacp"}, "engine"),
        ({"weight": float("nan")}, "weight"),
        ({"nodes": 2}, "nodes"),
        ({"gpu_clas": "l4"}, "gpu_clas"),
        ({"name": ""}, "name"),
        ({"gpu_class": "l4", "pp": 2}, "pp"),
        ({"engine": "vllm", "tp": 8}, "gpu_class"),
    ],
)
def test_one_thing_wrong_in_a_profile(profile: dict[str, Any], key: str) -> None:
    assert [found for found, _ in problems(table(profile))] == [key]


@pytest.mark.parametrize(
    "source",
    ["mirror:m/v1", "mirror:m/v1/", "mirror:m/v1/f.gguf", "hf:o/r", "hf:o/r@main:f.gguf",
     "hf:o/r:sub/f.gguf", "http://h/f", "https://h:8443/f.gguf", "/w/", "/w/m.gguf", "~/m.gguf"],
)  # fmt: skip
def test_sources(source: str) -> None:
    assert good(table(source=source)).source == source


def test_numbers_in_arguments_labels_and_variables_are_taken_as_written() -> None:
    raw = table(
        {"args": ["--ctx-size", 4096, ""], "env": {"N": 4, "ON": True}, "node_selector": {"z": 1}}
    )
    (profile,) = good(raw).profiles
    assert profile.args == ("--ctx-size", "4096", "")
    assert profile.env == {"N": "4", "ON": "true"}
    assert profile.node_selector == {"z": "1"}


def test_a_secret_never_reaches_a_message() -> None:
    raw = table({"env": {"HF_TOKEN": ["hunter2"], "API_KEY": {"x": "hunter2"}, "a b": "hunter2"}})
    told = problems(raw)
    assert len(told) == 3
    assert "hunter2" not in str(told)


def test_typo_gets_a_suggestion() -> None:
    ((_, text),) = problems(table(sclaing={}))
    assert 'did you mean "scaling"?' in text


def test_a_default_class_that_is_not_ranked_is_told_of() -> None:
    found = check_models([good(table())], Known(("gold",), (), ENGINES))
    assert [f.key for f in found] == ["class"]


def test_two_models_may_fall_back_on_each_other() -> None:
    pair = [good(table(name="a", fallbacks=["b"])), good(table(name="b", fallbacks=["a"]))]
    assert check_models(pair, KNOWN) == []


def test_a_fallback_on_the_models_own_alias() -> None:
    found = check_models([good(table(aliases=["x"], fallbacks=["x"]))], KNOWN)
    assert ["itself" in f.text for f in found] == [True]


@given(tables)
@settings(max_examples=200)
def test_any_table_is_read_or_told_of(raw: dict[str, object]) -> None:
    parsed = parse_model(raw)
    assert parsed.model is not None or parsed.findings
    for finding in parsed.findings:
        assert finding.problem("f", None).message
    if parsed.model is not None:
        check_models([parsed.model], KNOWN)
