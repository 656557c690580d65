from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import given

from llmgw_core.api.views import ReplicaCount
from llmgw_core.catalog.model import Model, Profile
from llmgw_core.catalog.normalise import check, normalised, view
from llmgw_core.catalog.overlay import Overlay
from llmgw_core.catalog.parse import parse_model
from llmgw_core.catalog.secrets import masked_args, masked_source
from tests.catalog.standins import ENGINES
from tests.catalog.strategies import models

SECRETS = Profile(
    "cpu",
    engine="llamacpp",
    env={"HF_TOKEN": "hunter2", "my_password": "hunter2", "OMP_NUM_THREADS": "4"},
    args=("--api-key", "hunter2", "--hf-token=hunter2", "--ctx-size", "4096"),
)
MODEL = Model("m", "https://ada:hunter2@host/f.gguf", (SECRETS,))


def test_secrets_are_hidden_and_the_rest_is_shown() -> None:
    row = normalised(MODEL)
    shown = json.dumps(row, ensure_ascii=False)
    assert "hunter2" not in shown
    assert "•••" in shown
    assert '"OMP_NUM_THREADS": "4"' in shown
    assert "https://•••@host/f.gguf" in shown
    assert masked_args(("--api-key", "--token", "-c")) == ("--api-key", "•••", "-c")
    assert masked_source("https://h/f.gguf?sig=hunter2") == "https://h/f.gguf?•••"
    assert masked_source("/w/odd?name@x") == "/w/odd?name@x"
    told = parse_model({"name": "m", "source": "ftp://ada:hunter2@h/f"}).findings
    assert "hunter2" not in str(told)
    assert masked_args(("--max-tokens", "12", "--key", "x")) == ("--max-tokens", "12", "--key", "x")


def test_keys_that_scripts_rely_on() -> None:
    row = normalised(MODEL)
    assert {"name", "aliases", "mode", "scaling", "class", "owner", "profiles", "declared"} <= set(
        row
    )
    assert "replicas" not in row


def test_a_row_with_what_is_measured() -> None:
    row = view(MODEL, replicas=ReplicaCount(1, 2), state="ready", running=3)
    assert (row.replicas.ready, row.running, row.waiting) == (1, 3, None)
    assert row.headroom.free is None


@given(models())
def test_any_model_can_be_shown(model: Model) -> None:
    assert json.loads(json.dumps(normalised(model)))["name"] == model.name


def test_check_takes_in_what_was_added(tmp_path: Path) -> None:
    overlay = Overlay(tmp_path / "catalog.d")
    plain = Model("a", "/w", (Profile("cpu", engine="llamacpp"),), declared=False)
    overlay.put(plain)
    overlay.put(replace(plain, name="m"))
    config = tmp_path / "config.toml"
    config.write_text(
        '[[models]]\nname="m"\nsource="/w"\n[[models.profiles]]\nname="p"\nengine="llamacpp"\n'
    )
    result = check(config, overlay.directory, ENGINES)
    assert not result.ok
    assert [m.name for m in result.models] == ["m", "a"]
    assert [Path(e.file or "").name for e in result.errors] == ["m.toml"]
    assert check(None, overlay.directory, ENGINES).ok
    assert check(None).to_json() == {"ok": True, "errors": [], "models": []}


def test_check_still_shows_the_sound_models(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    sound = '[[models]]\nname="m"\nsource="/w"\n[[models.profiles]]\nname="p"\nengine="llamacpp"\n'
    config.write_text(sound + '[[models]]\nname = "bad"\n')
    result = check(config, tmp_path / "none", ENGINES)
    assert [m.name for m in result.models] == ["m"]
    assert len(result.errors) == 2
