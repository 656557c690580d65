"""Where a package's wheel lies, by the user's own settings of pip, or by the index itself."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urljoin

import httpx
import msgspec

from llmgw_core.demo.download import Wanted, said
from llmgw_core.errors import LlmgwError

PIP_MOST_S = 120.0
FETCH_MOST_S = 1800.0
DEFAULT_INDEX = "https://pypi.org/simple"
_INDEX_SETTINGS = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
_JSON = "application/vnd.pypi.simple.v1+json"


class _File(msgspec.Struct):
    filename: str
    url: str
    hashes: dict[str, str] = {}
    yanked: bool | str = False
    size: int | None = None
    upload_time: str = msgspec.field(name="upload-time", default="")


class _Project(msgspec.Struct):
    files: list[_File]


def ask_pip(name: str) -> Wanted:
    """Where pip would take a package's wheel from, by the user's own index settings; blocks.

    Raises:
        LlmgwError: there is no pip, it finds none, or no index answers.
    """
    out = _pip("install", "--dry-run", "--report", "-", "--ignore-installed", name)
    try:
        source = json.loads(out)["install"][0]["download_info"]
        url, digest = str(source["url"]), source["archive_info"]["hashes"]["sha256"]
    except (ValueError, LookupError, TypeError) as error:
        raise LlmgwError(f"pip's answer about {name} could not be read") from error
    return Wanted(url, str(digest))


def fetch_with_pip(name: str, folder: Path) -> Path:
    """Let pip fetch the wheel, for indexes that only it can talk to; blocks.

    Raises:
        LlmgwError: there is no pip, or it fails.
    """
    _pip("download", "--dest", str(folder), name, timeout_s=FETCH_MOST_S)
    found = sorted(folder.glob("*.whl"))
    if not found:
        raise LlmgwError(f"pip fetched no wheel of {name}")
    return found[-1]


def _pip(verb: str, *args: str, timeout_s: float = PIP_MOST_S) -> bytes:
    if importlib.util.find_spec("pip") is None:
        raise LlmgwError("this Python has no pip")
    argv = [sys.executable, "-m", "pip", verb, "--quiet", "--no-input", "--no-deps"]
    argv += ["--disable-pip-version-check", "--only-binary", ":all:", *args]
    try:
        done = subprocess.run(
            argv, capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LlmgwError(f"pip {verb} did not end well ({type(error).__name__})") from error
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().splitlines()
        raise LlmgwError(f"pip {verb} failed: {last[-1] if last else 'no reason given'}")
    return done.stdout


async def ask_index(http: httpx.AsyncClient, name: str) -> Wanted:
    """The newest wheel that the package index lists, for Pythons without pip.

    Raises:
        LlmgwError: the index does not answer, or has none.
    """
    index = next((os.environ[key] for key in _INDEX_SETTINGS if os.environ.get(key)), DEFAULT_INDEX)
    page = f"{index.rstrip('/')}/{name}/"
    try:
        answer = await http.get(page, headers={"Accept": _JSON})
        answer.raise_for_status()
        files = msgspec.json.decode(answer.content, type=_Project).files
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise LlmgwError(
            f"the package index does not answer about {name} ({said(error)})"
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LlmgwError(f"the package index's answer about {name} could not be read") from error
    wheels = [file for file in files if file.filename.endswith(".whl") and file.yanked is False]
    if not wheels:
        raise LlmgwError(f"the package index has no wheel of {name}")
    newest = max(wheels, key=lambda file: file.upload_time)
    url = urljoin(str(answer.url), newest.url)
    return Wanted(url, newest.hashes.get("sha256"), newest.size)
