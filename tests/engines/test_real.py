"""The launcher over the real package, with the real model."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from llmgw_core.engines.llamacpp import LlamaCpp
from llmgw_core.engines.llamacpp_options import FLAGS, OPTIONS, parse

from .real import real_model
from .requests import KEY, Started, request, start

pytestmark = pytest.mark.engine

ENGINE = LlamaCpp()
BOUND_S = 120.0
AUTH = {"Authorization": f"Bearer {KEY}"}


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture(scope="module")
def model() -> Path:
    return real_model()


class Runs:
    """Starts engines and ends what is left of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[Started] = []

    def start(self, source: Path, *args: str, port: int | None = None) -> tuple[Started, str]:
        port = port or free_port()
        launch = ENGINE.launch(request("-c", "2048", *args, source=str(source), port=port, cores=1))
        started = start(launch, self.folder / f"run{len(self.started)}")
        self.started.append(started)
        return started, f"http://127.0.0.1:{port}"

    def fails(self, source: Path, *args: str, port: int | None = None) -> str:
        """The reason why it ended, which it has to."""
        started, _ = self.start(source, *args, port=port)
        status = started.process.wait(BOUND_S)
        assert status != 0, started.text()
        return ENGINE.failure_reason(started.text(), status)


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path)
    yield made
    for started in made.started:
        started.end()


def wait_ready(started: Started, base: str) -> None:
    """Until the health check says 200; what it says until then is that it loads, or nothing."""
    end = time.monotonic() + BOUND_S
    while time.monotonic() < end:
        assert started.process.poll() is None, started.text()
        try:
            status = httpx.get(f"{base}/health", timeout=10).status_code
        except httpx.TransportError:
            status = 0
        if status == 200:
            return
        assert status in (0, 503)
        time.sleep(0.05)
    pytest.fail(started.text())


def test_it_serves_protects_counts_and_ends(runs: Runs, model: Path) -> None:
    started, base = runs.start(model)
    wait_ready(started, base)
    for path in ("/v1/models", "/metrics", "/slots", "/props"):
        assert httpx.get(base + path).status_code == 401, path
    assert httpx.get(f"{base}/metrics", headers={"Authorization": "Bearer no"}).status_code == 401
    listed = httpx.get(f"{base}/v1/models", headers=AUTH).json()["data"][0]
    assert listed["id"] == "smol"
    assert listed["meta"]["n_ctx"] == 2048
    assert len(httpx.get(f"{base}/slots", headers=AUTH).json()) == 4
    asked = {"model": "smol", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8}
    answer = httpx.post(
        f"{base}/v1/chat/completions", json=asked, headers=AUTH, timeout=BOUND_S
    ).json()
    assert answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] >= 1
    metrics = httpx.get(f"{base}/metrics", headers=AUTH).text
    for names in (ENGINE.metrics.running, ENGINE.metrics.waiting, ENGINE.metrics.output_tokens):
        assert f"\n{names[0]} " in metrics
    assert ENGINE.load_progress(started.text()) == 1.0
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert KEY.encode() not in process.read_bytes()
        except OSError:
            continue
    started.process.send_signal(signal.SIGTERM)
    assert started.process.wait(ENGINE.stop_grace_s) == 0
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{base}/health")


def test_sigterm_while_it_loads_ends_it_with_0(runs: Runs, model: Path) -> None:
    started, _ = runs.start(model)
    end = time.monotonic() + BOUND_S
    while "loading model" not in started.text():
        assert time.monotonic() < end, started.text()
        time.sleep(0.005)
    os.killpg(started.process.pid, signal.SIGTERM)
    assert started.process.wait(ENGINE.stop_grace_s) == 0
    assert "llmgw: ready on" not in started.text()


def test_sigterm_ends_it_while_it_answers(runs: Runs, model: Path) -> None:
    started, base = runs.start(model)
    wait_ready(started, base)
    asked = {"model": "smol", "prompt": "Once", "max_tokens": 1500, "stream": True}
    with (
        httpx.stream(
            "POST", f"{base}/v1/completions", json=asked, headers=AUTH, timeout=BOUND_S
        ) as answer,
        pytest.raises(httpx.TransportError),
    ):
        for index, _ in enumerate(answer.iter_bytes()):
            if index == 0:
                started.process.send_signal(signal.SIGTERM)
    assert started.process.wait(ENGINE.stop_grace_s) == 0


def test_with_embeddings_in_its_arguments_it_answers_them_and_chats_too(
    runs: Runs, model: Path
) -> None:
    started, base = runs.start(model, "--embeddings", "--pooling", "mean")
    wait_ready(started, base)
    asked = {"model": "smol", "input": "hello"}
    answer = httpx.post(f"{base}/v1/embeddings", json=asked, headers=AUTH, timeout=BOUND_S)
    assert len(answer.json()["data"][0]["embedding"]) == 576
    said = {"model": "smol", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    chat = httpx.post(f"{base}/v1/chat/completions", json=said, headers=AUTH, timeout=BOUND_S)
    assert chat.status_code == 200


def test_a_missing_file(runs: Runs, model: Path, tmp_path: Path) -> None:
    assert f"there is no model file {tmp_path}/no.gguf" in runs.fails(tmp_path / "no.gguf")


def test_a_file_that_ends_too_early(runs: Runs, model: Path, tmp_path: Path) -> None:
    with model.open("rb") as file:
        (tmp_path / "half.gguf").write_bytes(file.read(30_000_000))
        file.seek(0)
        (tmp_path / "head.gguf").write_bytes(file.read(500_000))
    assert "the model file is incomplete" in runs.fails(tmp_path / "half.gguf")
    assert "header is broken" in runs.fails(tmp_path / "head.gguf")


def test_a_file_that_is_no_model(runs: Runs, model: Path, tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_text("<html>404</html>")
    assert "not GGUF (it begins with '<htm')" in runs.fails(tmp_path / "page.gguf")


def test_an_architecture_that_it_does_not_know(runs: Runs, model: Path, tmp_path: Path) -> None:
    content = model.read_bytes()
    key = b"general.architecture"
    at = content.index(key) + len(key) + 4 + 8
    assert content[at : at + 5] == b"llama"
    (tmp_path / "new.gguf").write_bytes(content[:at] + b"zzama" + content[at + 5 :])
    assert "does not know the model's architecture zzama" in runs.fails(tmp_path / "new.gguf")


def test_a_port_that_is_taken(runs: Runs, model: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        assert f"port {port} was taken" in runs.fails(model, port=port)


def test_more_context_than_there_is_memory(runs: Runs, model: Path) -> None:
    assert "not enough memory" in runs.fails(model, "--ctx-size", "90000000")


def test_every_option_of_the_table_has_its_field_in_the_package(
    model: Path, tmp_path: Path
) -> None:
    import xllamacpp

    from llmgw_core.engines.llamacpp_launcher import fill

    template = tmp_path / "template"
    template.write_text("{{ messages }}")
    samples = {
        "int": "1", "float": "0.5", "str": "x", "words": "a,b", "keys": str(template),
        "file": str(template), "flash": "on", "switch": "off", "three": "off", "layers": "all",
        "seed": "7", "inverse": "4", "shares": "3,1", "lora": "/a:0.5", "template": '{"a": true}',
        "numa": "isolate", "cache_type_k": "q8_0", "cache_type_v": "f16", "load_mode": "mmap+mlock",
        "lazy_mode": "on", "split_mode": "row", "rope_scaling_type": "yarn",
        "reasoning_format": "deepseek-legacy", "pooling_type": "mean",
        "tensor_buft_overrides": "blk.*=CPU",
    }  # fmt: skip
    for option in OPTIONS:
        kind = option.kind.partition(":")[0]
        for name in option.names.split():
            sample = "" if kind in FLAGS else samples.get(option.fields) or samples[kind]
            fill(xllamacpp.CommonParams(), parse([name, sample] if sample else [name]), xllamacpp)


def test_a_sampling_option_outranks_what_the_model_recommends(model: Path) -> None:
    import xllamacpp

    from llmgw_core.engines.llamacpp_launcher import fill

    params = xllamacpp.CommonParams()
    fill(params, parse(["--temp", "0.5", "--top-k", "7"]), xllamacpp)
    bits = xllamacpp.common_params_sampling_config
    assert params.sampling.user_sampling_config == (
        bits.COMMON_PARAMS_SAMPLING_CONFIG_TEMP | bits.COMMON_PARAMS_SAMPLING_CONFIG_TOP_K
    )
