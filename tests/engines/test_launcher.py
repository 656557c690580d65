"""The launcher as a process, over a stand-in for the package."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmgw_core.engines.llamacpp import LlamaCpp

from .requests import KEY, Started, request, start

ENGINE = LlamaCpp()
BOUND_S = 60.0


class Bench:
    """Starts launchers over the stand-in and ends them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "params.json"
        self.started: list[Started] = []
        package = folder / "packages"
        package.mkdir()
        fake = Path(__file__).with_name("fake_xllamacpp.py")
        (package / "xllamacpp.py").write_text(fake.read_text())
        self.packages = str(package)
        self.model = folder / "model.gguf"
        self.model.write_bytes(b"GGUF" + bytes(9996))

    def start(self, *args: str, does: str = "serve", source: str | None = None) -> Started:
        launch = ENGINE.launch(request(*args, source=source or str(self.model)))
        env = {"PYTHONPATH": self.packages, "FAKE_OUT": str(self.out), "FAKE_DOES": does}
        started = start(launch, self.folder / "run", env)
        self.started.append(started)
        return started

    def params(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.out.read_text())
        return read


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for started in made.started:
        started.end()


def wait_for_line(started: Started, text: str) -> None:
    end = time.monotonic() + BOUND_S
    while text not in started.text():
        assert time.monotonic() < end, started.text()
        assert started.process.poll() is None or text in started.text(), started.text()
        time.sleep(0.01)


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def wait_gone(pid: int) -> None:
    end = time.monotonic() + BOUND_S
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_options_arrive_as_fields(bench: Bench) -> None:
    started = bench.start("--chat-template", "chatml", "--embeddings")
    wait_for_line(started, "llmgw: ready on")
    params = bench.params()
    assert params["model"]["path"] == str(bench.model)
    assert params["model_alias"] == ["smol"]
    assert params["api_keys"] == [KEY]
    assert params["port"] == 18000
    assert (params["n_ctx"], params["n_parallel"], params["kv_unified"]) == (16384, 4, True)
    assert params["cpuparams"]["n_threads"] == params["cpuparams_batch"]["n_threads"] == 2
    assert params["load_mode"] == 0
    assert params["chat_template"] == "chatml"
    assert params["n_batch"] == params["n_ubatch"] == 512
    assert KEY not in started.text()


def test_what_llmgw_adds_is_left_out_where_the_package_lacks_it(bench: Bench) -> None:
    wait_for_line(bench.start(), "llmgw: ready on")
    assert "cache_ram_mib" not in bench.params()


def test_what_the_profile_asks_for_must_be_there(bench: Bench) -> None:
    started = bench.start("--cache-ram", "0")
    assert started.process.wait(BOUND_S) == 64
    reason = ENGINE.failure_reason(started.text(), 64)
    assert reason == "this xllamacpp (1.2.3) has no --cache-ram"


def test_without_cores_the_threads_are_bounded(bench: Bench) -> None:
    launch = ENGINE.launch(request(source=str(bench.model), cores=None))
    env = {"PYTHONPATH": bench.packages, "FAKE_OUT": str(bench.out)}
    started = start(launch, bench.folder / "run", env)
    bench.started.append(started)
    wait_for_line(started, "llmgw: ready on")
    most = min(16, max(1, len(os.sched_getaffinity(0)) // 2))
    assert 1 <= bench.params()["cpuparams"]["n_threads"] <= most


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("does", "line"), [("serve", "ready on"), ("load", "loads ")])
def test_a_signal_ends_it_with_0_loaded_or_not(
    bench: Bench, number: int, does: str, line: str
) -> None:
    started = bench.start(does=does)
    wait_for_line(started, f"llmgw: {'xllamacpp 1.2.3 ' if does == 'load' else ''}{line}")
    (child,) = children_of(started.process.pid)
    started.process.send_signal(number)
    assert started.process.wait(BOUND_S) == 0
    wait_gone(child)


def test_a_signal_to_the_whole_group_is_the_same(bench: Bench) -> None:
    started = bench.start()
    wait_for_line(started, "llmgw: ready on")
    os.killpg(started.process.pid, signal.SIGTERM)
    assert started.process.wait(BOUND_S) == 0


def test_the_server_does_not_outlive_a_launcher_that_is_killed(bench: Bench) -> None:
    started = bench.start(does="load")
    wait_for_line(started, "llmgw: xllamacpp 1.2.3 loads")
    (child,) = children_of(started.process.pid)
    started.process.kill()
    started.process.wait(BOUND_S)
    wait_gone(child)


def test_how_far_loading_is_is_told_while_the_server_cannot(bench: Bench) -> None:
    bench.model.write_bytes(b"GGUF" + bytes(8_000_000))
    started = bench.start(does="read")
    wait_for_line(started, " %")
    share = ENGINE.load_progress(started.text())
    assert share is not None
    assert 0 < share < 1


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGILL, signal.SIGKILL])
def test_a_crash_of_the_server_is_told_by_its_signal(bench: Bench, number: int) -> None:
    started = bench.start(does=f"signal {int(number)}")
    assert started.process.wait(BOUND_S) == -number
    reason = ENGINE.failure_reason(started.text(), 128 + number)
    words = {signal.SIGSEGV: "SIGSEGV", signal.SIGILL: "newer processor", signal.SIGKILL: "memory"}
    assert words[signal.Signals(number)] in reason


def test_a_server_that_does_not_start_is_exit_1(bench: Bench) -> None:
    started = bench.start(does="fail")
    assert started.process.wait(BOUND_S) == 1
    assert "the server did not start" in ENGINE.failure_reason(started.text(), 1)


def test_without_the_package_it_says_which_python_lacks_it(bench: Bench) -> None:
    (Path(bench.packages) / "xllamacpp.py").write_text("raise ImportError('libcudart.so.12')")
    started = bench.start()
    assert started.process.wait(BOUND_S) == 69
    reason = ENGINE.failure_reason(started.text(), 69)
    assert sys.executable in reason
    assert "libcudart.so.12" in reason


class TestFolders:
    def folder(self, bench: Bench, *names: str) -> str:
        folder = bench.folder / "weights"
        folder.mkdir()
        for name in names:
            (folder / name).write_bytes(b"GGUF")
        return f"{folder}/"

    def test_the_only_model_is_taken_with_the_projector_beside_it(self, bench: Bench) -> None:
        source = self.folder(bench, "a.gguf", "mmproj-a.gguf", "README.md")
        wait_for_line(bench.start(source=source), "llmgw: ready on")
        assert bench.params()["model"]["path"] == f"{source}a.gguf"
        assert bench.params()["mmproj"]["path"] == f"{source}mmproj-a.gguf"

    def test_the_first_part_of_a_split_model_is_taken(self, bench: Bench) -> None:
        parts = [f"a-0000{n}-of-00003.gguf" for n in (2, 1, 3)]
        source = self.folder(bench, *parts)
        wait_for_line(bench.start(source=source), "llmgw: ready on")
        assert bench.params()["model"]["path"] == f"{source}a-00001-of-00003.gguf"

    def test_a_projector_of_the_profile_wins(self, bench: Bench) -> None:
        source = self.folder(bench, "a.gguf", "mmproj-a.gguf")
        wait_for_line(bench.start("--mmproj", "/other", source=source), "llmgw: ready on")
        assert bench.params()["mmproj"]["path"] == "/other"

    @pytest.mark.parametrize(
        ("names", "said"),
        [((), "no GGUF file"), (("a.gguf", "b.gguf"), "2 GGUF files to choose from")],
    )
    def test_no_choice_or_too_many_is_a_sentence(
        self, bench: Bench, names: tuple[str, ...], said: str
    ) -> None:
        started = bench.start(source=self.folder(bench, *names))
        assert started.process.wait(BOUND_S) == 66
        assert said in ENGINE.failure_reason(started.text(), 66)

    def test_a_missing_folder_is_a_sentence(self, bench: Bench) -> None:
        started = bench.start(source="/nowhere/at/all/")
        assert started.process.wait(BOUND_S) == 66
        assert "/nowhere/at/all/ cannot be read" in ENGINE.failure_reason(started.text(), 66)
