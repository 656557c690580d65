"""``mirror``, ``gguf`` and ``serve`` while no controller runs: on the disk alone."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_light import llmgw
from tests.gguf.writer import base, good


def ask(folder: Path, *words: str) -> Any:
    done = llmgw(folder, "run", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def model_file(folder: Path, name: str = "tiny.gguf") -> Path:
    path = folder / name
    path.write_bytes(bytes(good()))
    return path


def test_a_header_is_described_with_its_memory(tmp_path: Path) -> None:
    path = model_file(tmp_path)
    told = ask(tmp_path, "gguf", str(path), "--ctx", "1024")
    assert (told["name"], told["architecture"], told["layers"]) == ("A model", "llama", 2)
    assert (told["heads"], told["kv_heads"], told["key_length"]) == (4, 2, 16)
    assert told["kv_bytes"] == 2 * 1024 * 2 * (16 + 16) * 2
    assert told["state_bytes"] == 0
    assert told["weights_bytes"] == path.stat().st_size
    assert told["servable"] is True
    halved = ask(tmp_path, "gguf", str(path), "--ctx", "1024", "--kv-type", "q8_0")
    assert halved["kv_bytes"] == told["kv_bytes"] * 34 // 64


def test_what_is_no_model_or_not_known_is_not_servable_and_says_why(tmp_path: Path) -> None:
    odd = tmp_path / "odd.gguf"
    odd.write_bytes(bytes(base()).replace(b"llama", b"lemma"))
    told = ask(tmp_path, "gguf", str(odd))
    assert told["servable"] is False
    assert "'lemma'" in told["reason"]
    page = tmp_path / "page.gguf"
    page.write_text("<!doctype html><html>not found</html>")
    done = llmgw(tmp_path, "run", "gguf", str(page))
    assert done.returncode == 2
    assert "HTML" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_is_pulled_listed_served_and_not_removed_while_used(tmp_path: Path) -> None:
    pulled = ask(tmp_path, "mirror", "pull", str(model_file(tmp_path)), "--as", "tiny/v1")
    assert pulled["state"] == "done"
    (version,) = ask(tmp_path, "mirror", "list")["versions"]
    assert (version["model"], version["version"]) == ("tiny", "v1")
    assert set(version["files"][0]) >= {"file", "bytes_done", "bytes_total", "state", "sha256"}

    plan = ask(tmp_path, "serve", "--plan", "tiny/v1", "--ctx", "2048", "--memory", "3")
    assert plan["source"] == "mirror:/tiny/v1/tiny.gguf"
    assert tomllib.loads(plan["toml"])["models"][0]["profiles"][0]["min_memory_gb"] == 3
    assert ask(tmp_path, "models")["models"] == []

    done = llmgw(tmp_path, "run", "serve", "tiny", "--mode", "ondemand", "--aliases", "small")
    assert done.returncode == 0, done.stderr
    assert "takes effect when one starts" in done.stderr
    (model,) = ask(tmp_path, "models")["models"]
    assert (model["name"], model["aliases"], model["mode"]) == ("tiny", ["small"], "ondemand")

    refused = llmgw(tmp_path, "run", "mirror", "rm", "tiny/v1")
    assert refused.returncode == 4
    assert "tiny" in refused.stderr
    assert llmgw(tmp_path, "run", "remove", "tiny").returncode == 0
    assert llmgw(tmp_path, "run", "mirror", "rm", "tiny/v1").returncode == 0
    assert ask(tmp_path, "mirror", "list") == {"versions": []}


def test_damage_is_found_and_a_new_pull_mends_it(tmp_path: Path) -> None:
    source = model_file(tmp_path)
    ask(tmp_path, "mirror", "pull", str(source), "--as", "tiny/v1")
    kept = tmp_path / "state" / "mirror" / "tiny" / "v1" / "tiny.gguf"
    kept.chmod(0o644)
    kept.write_bytes(bytes(kept.stat().st_size))
    done = llmgw(tmp_path, "run", "mirror", "verify", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["findings"][0]["file"] == "tiny.gguf"
    ask(tmp_path, "mirror", "pull", str(source), "--as", "tiny/v1")
    assert ask(tmp_path, "mirror", "verify")["ok"] is True


def test_a_plan_may_be_made_for_an_imagined_fleet(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.json"
    nodes = [{"name": "n1", "memory_gb": 64, "cores": 16, "engines": ["vllm"]}]
    fleet.write_text(json.dumps({"nodes": nodes}))
    path = str(model_file(tmp_path))
    plan = ask(tmp_path, "serve", "--plan", path, "--fleet", str(fleet))
    assert plan["cpu_cores"] == 8
    assert "no node reports llamacpp" in plan["warning"]
    fleet.write_text('{"nodes": [{"memory_gb": 1}]}')
    done = llmgw(tmp_path, "run", "serve", "--plan", path, "--fleet", str(fleet))
    assert (done.returncode, done.stderr.strip()) == (
        2, "llmgw: node 1 of the fleet file has no name",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["serve", "--plan", "nothing/v1"], 3, "nothing/v1"),
        (["serve", "--plan", "hf:org"], 2, "no source"),
        (["mirror", "rm", "nothing/v1"], 3, "the mirror has no nothing/v1"),
        (["mirror", "rm", "nothing"], 2, "MODEL/VERSION"),
        (["mirror", "pull", "/nonexistent.gguf"], 3, "/nonexistent.gguf"),
        (["mirror", "cancel", "a/b"], 5, "no controller"),
        (["gguf", "/nonexistent.gguf"], 3, "/nonexistent.gguf"),
        (["gguf", "/nonexistent.gguf", "--kv-type", "q9"], 2, "q9"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    tmp_path: Path, words: list[str], status: int, said: str
) -> None:
    done = llmgw(tmp_path, "run", *words)
    assert (done.returncode, said in done.stderr) == (status, True), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_refused_plan_adds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    done = llmgw(tmp_path, "run", "serve", str(path))
    assert done.returncode == 4
    assert "nothing here reads .txt files" in done.stderr
    assert ask(tmp_path, "models")["models"] == []
