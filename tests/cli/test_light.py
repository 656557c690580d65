"""What the command line loads, and what it says where nothing runs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"textual", "gguf", "numpy", "asyncssh", "httptools", "uvloop", "aiohttp", "httpx"}

REPORT = """
import sys
from llmgw_core.cli import main
sys.argv = ["llmgw", *{words!r}]
try:
    main()
finally:
    sys.stderr.write("\\nLOADED " + " ".join(sorted({{m.partition(".")[0] for m in sys.modules}})))
"""


def llmgw(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HOME": str(folder), "LLMGW_STATE": str(folder / "state")}
    argv = [sys.executable, "-m", "llmgw_core", *words]
    return subprocess.run(argv, capture_output=True, text=True, env=env, timeout=60, check=False)


@pytest.mark.parametrize("words", [["run", "--help"], ["run", "models"], ["--help"]])
def test_it_loads_neither_screen_nor_servers_nor_ssh(tmp_path: Path, words: list[str]) -> None:
    env = {**os.environ, "HOME": str(tmp_path), "LLMGW_STATE": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-c", REPORT.format(words=words)],
        capture_output=True, text=True, env=env, timeout=60, check=False,
    )  # fmt: skip
    loaded = set(done.stderr.rpartition("LOADED ")[2].split())
    assert done.returncode == 0
    assert "typer" in loaded
    assert not loaded & HEAVY


def test_without_a_controller_reads_work_and_the_rest_says_what_to_do(tmp_path: Path) -> None:
    assert "no models" in llmgw(tmp_path, "run", "models").stdout
    nodes = llmgw(tmp_path, "run", "nodes")
    assert nodes.returncode == 5
    assert nodes.stderr.startswith("llmgw: no controller runs for this cluster; start one with")
    assert "Traceback" not in nodes.stderr


def test_the_catalog_is_changed_without_a_controller_and_says_so(tmp_path: Path) -> None:
    toml = tmp_path / "m.toml"
    toml.write_text(
        '[[models]]\nname = "m"\nsource = "/w/m.gguf"\n'
        '[[models.profiles]]\nname = "cpu"\nengine = "llamacpp"\n'
    )
    added = llmgw(tmp_path, "run", "add", str(toml), "--json")
    assert added.returncode == 0
    assert json.loads(added.stdout)["name"] == "m"
    assert "takes effect when one starts" in added.stderr
    scaled = llmgw(tmp_path, "run", "scale", "m", "--mode", "always", "--replicas", "2", "--json")
    assert json.loads(scaled.stdout)["scaling"] == {"min": 2, "max": 2, "idle_timeout_s": 900.0}
    (model,) = json.loads(llmgw(tmp_path, "run", "models", "--json").stdout)["models"]
    assert (model["mode"], model["class"], model["declared"]) == ("always", "standard", False)
    assert llmgw(tmp_path, "run", "remove", "m").returncode == 0
    missing = llmgw(tmp_path, "run", "model", "m")
    assert missing.returncode == 3
    assert "there is no model 'm'" in missing.stderr


def test_catalog_check_gives_all_errors_and_exits_2(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('[[models]]\nname = "a"\n[[models]]\nname = "b"\nsource = "/w"\n')
    done = llmgw(tmp_path, "run", "catalog", "check", str(config), "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 2
    assert found["ok"] is False
    assert {error["model"] for error in found["errors"]} == {"a", "b"}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["run", "scale", "m"], 2),
        (["run", "scale", "m", "--idle", "soon"], 2),
        (["run", "node", "takeover", "n"], 5),
        (["run", "node", "fly", "n"], 2),
        (["run", "add", "/nonexistent"], 2),
        (["--config", "/nonexistent.toml", "run", "models"], 2),
        (["run", "nonsense"], 2),
    ],
)
def test_bad_input_is_one_sentence_and_its_code(
    tmp_path: Path, words: list[str], code: int
) -> None:
    done = llmgw(tmp_path, *words)
    assert done.returncode == code
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


def test_the_console_without_a_terminal_says_so(tmp_path: Path) -> None:
    done = llmgw(tmp_path)
    assert done.returncode == 4
    assert "needs a terminal" in done.stderr


@pytest.mark.parametrize("words", [["--headless"], ["run", "add", "M"], ["demo", "--check"]])
def test_a_state_directory_that_cannot_be_made_is_one_sentence(
    tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "file").write_text("")
    toml = tmp_path / "m.toml"
    toml.write_text(
        '[[models]]\nname = "m"\nsource = "/w/m.gguf"\n'
        '[[models.profiles]]\nname = "cpu"\nengine = "llamacpp"\n'
    )
    state = ["--state", str(tmp_path / "file" / "state")]
    given = [str(toml) if word == "M" else word for word in words]
    if "demo" in words:
        state = []
        given += ["--directory", str(tmp_path / "file" / "demo")]
    done = llmgw(tmp_path, *state, *given)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("llmgw: ")
    assert str(tmp_path / "file") in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode != 0:
        pytest.skip("this root may not mount")
    try:
        with (disk / "fill").open("wb", buffering=0) as fill, contextlib.suppress(OSError):
            while True:
                fill.write(bytes(1024))
        done = llmgw(tmp_path, "--state", str(disk / "state"), "--headless")
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr
