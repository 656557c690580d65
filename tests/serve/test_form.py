"""The form that a plan fills, and the catalog entry that it becomes."""

from __future__ import annotations

import tomllib
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.catalog.parse import parse_model
from llmgw_core.errors import InvalidInput
from llmgw_core.serve.form import LABELS, ServeForm, filled, problems, table, toml
from tests.serve.test_plan import plan_8b

FORM = filled(plan_8b())


def test_the_plan_fills_all_that_it_knows() -> None:
    assert FORM.name == "m"
    assert FORM.source == "mirror:/m/v1/m.gguf"
    assert (FORM.engine, FORM.profile, FORM.mode, FORM.replicas) == (
        "llamacpp", "cpu", "always", "1",
    )  # fmt: skip
    assert (FORM.ctx_pool, FORM.parallel, FORM.kv_type) == ("16384", "4", "f16")
    assert (FORM.memory, FORM.cores) == ("8", "8")


def test_what_the_estimate_assumed_is_said_to_the_engine() -> None:
    plan = plan_8b()
    assert plan.memory is not None
    cache = str(plan.memory.prompt_cache_bytes // 1024**2)
    assert table(FORM)["profiles"] == [
        {
            "name": "cpu", "engine": "llamacpp", "priority": 100, "min_memory_gb": 8,
            "cpu_cores": 8,
            "args": ["--ctx-size", "16384", "--parallel", "4", "--cache-ram", cache],
        }
    ]  # fmt: skip
    quantised = replace(FORM, kv_type="q8_0")
    assert table(quantised)["profiles"][0]["args"][-4:] == [  # type: ignore[index]
        "--cache-type-k", "q8_0", "--cache-type-v", "q8_0",
    ]  # fmt: skip


def test_the_entry_is_one_that_the_catalog_takes() -> None:
    full = replace(
        FORM, aliases="gpt, chat ", description="a model", context_length="8192",
        max_output="512", mode="ondemand", replicas="3", idle="20m", selector_key="disk",
        selector_value="nvme", owner="team", model_class="critical",
    )  # fmt: skip
    (raw,) = tomllib.loads(toml(full))["models"]
    parsed = parse_model(raw, declared=False)
    assert parsed.findings == []
    model = parsed.model
    assert model is not None
    assert model.aliases == ("gpt", "chat")
    assert (model.scaling.min, model.scaling.max, model.scaling.idle_timeout_s) == (0, 3, 1200)
    assert model.profiles[0].node_selector == {"disk": "nvme"}
    assert (model.owner, model.model_class) == ("team", "critical")
    assert (model.profiles[0].weight, model.profiles[0].priority) == (1.0, 100)


def test_an_empty_optional_field_is_unset_and_the_profile_takes_the_engines_name() -> None:
    bare = ServeForm(name="m", source="/w/m.gguf", engine="llamacpp", kv_type="")
    entry: dict[str, Any] = table(bare)
    assert set(entry) == {"name", "source", "class", "scaling", "profiles"}
    assert entry["profiles"] == [{"name": "llamacpp", "engine": "llamacpp", "priority": 100}]


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("name", "  ", "Name is missing"),
        ("source", "", "Source is missing"),
        ("replicas", "two", "Replicas must be a whole number, 1 or more, not 'two'"),
        ("replicas", "0", "Replicas must be a whole number, 1 or more, not '0'"),
        ("ctx_pool", "16k", "Context pool must be a whole number, 1 or more, not '16k'"),
        ("max_output", "-1", "Max output must be a whole number, 1 or more, not '-1'"),
        ("memory", "much", "Memory must be a number, 0 or more, not 'much'"),
        ("cores", "nan", "Cores must be a number, 0 or more, not 'nan'"),
        ("idle", "soon", "Idle: "),
        ("mode", "never", "Run must be always, ondemand or stopped, not 'never'"),
        ("selector_key", "disk", "Selector value is missing"),
    ],
)
def test_each_field_has_its_own_message(field: str, text: str, said: str) -> None:
    wrong = replace(FORM, **{field: text})
    found = problems(wrong)
    assert any(message.startswith(said) for message in found.values()), found
    with pytest.raises(InvalidInput, match=said.split("'")[0].strip()):
        table(wrong)


def test_all_that_is_wrong_is_said_at_once() -> None:
    found = problems(replace(FORM, replicas="x", memory="y", name=""))
    assert set(found) == {"replicas", "memory", "name"}


def test_every_field_has_a_label() -> None:
    assert set(LABELS) == {field.name for field in fields(ServeForm)}


@given(st.dictionaries(st.sampled_from(sorted(LABELS)), st.text(max_size=12)))
def test_whatever_is_typed_becomes_an_entry_or_a_message(given_: dict[str, str]) -> None:
    form = FORM.with_fields(dict(given_))
    found = problems(form)
    if found:
        return
    (raw,) = tomllib.loads(toml(form))["models"]
    assert parse_model(raw, declared=False).model is not None
