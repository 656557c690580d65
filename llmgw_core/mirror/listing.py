"""What a source has: the files of a pull with all that is known of them before a byte moves."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import httpx

from llmgw_core.catalog.sources import HubSource, PathSource, UrlSource
from llmgw_core.errors import InvalidInput, LlmgwError, NotFound, Refused
from llmgw_core.mirror.answer import number_in
from llmgw_core.mirror.choose import split_parts, whole_sets
from llmgw_core.mirror.names import (
    PullSource,
    check_files,
    file_of_url,
    file_trouble,
    shown,
)
from llmgw_core.mirror.wanted import Explain
from llmgw_core.plain_text import sanitise

PARTS_MOST = 1000
"""Of a set on a web server, which is asked about each."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Remote:
    """A file where it comes from."""

    file: str
    """Its name in the mirror."""
    address: str = field(repr=False)
    """A URL, or a path of this machine; may hold a signature."""
    size: int | None = None
    sha256: str | None = None
    mark: str = ""
    """The server's ETag or the file's time; other content has another one."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a pull."""

    source: str
    files: tuple[Remote, ...]
    revision: str = ""
    commit: str = ""
    """The hub's; names the version."""
    local: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    explain: Explain | None = field(default=None, repr=False)


async def list_source(
    http: httpx.AsyncClient, source: PullSource, text: str, *, endpoint: str | None = None
) -> Listing:
    """What a source has.

    Raises:
        NotFound: there is no such repository, file or address.
        Refused: it is not clear what is meant, a split set is incomplete, or access is refused.
        InvalidInput: a file's name cannot be kept.
        LlmgwError: the server does not answer as it should.
    """
    match source:
        case PathSource(path=path):
            listing = await asyncio.to_thread(_list_path, Path(path).expanduser().absolute())
        case UrlSource(url=url):
            listing = await _list_url(http, url)
        case HubSource():
            from llmgw_core.mirror.hub import list_hub  # loads the hub's library

            listing = await asyncio.to_thread(list_hub, source, text, endpoint)
    check_files(remote.file for remote in listing.files)
    return listing


def _list_path(path: Path) -> Listing:
    """A file of this machine with the other parts of its set, or all files of a folder; blocks."""
    try:
        if path.is_dir():
            found = _folder_files(path)
            whole_sets(found, found, str(path))
        elif path.is_file():
            siblings = os.listdir(path.parent)
            names = whole_sets([path.name], siblings, str(path.parent))
            found = {name: path.parent / name for name in names}
        else:
            raise NotFound(f"{path} is not on this machine")
        files = tuple(_local(name, at) for name, at in found.items())
    except OSError as error:
        raise LlmgwError(f"{path} cannot be read: {error.strerror}") from error
    if not files:
        raise NotFound(f"{path} has no files")
    return Listing(str(path), files, local=True)


def _folder_files(folder: Path) -> dict[str, Path]:
    found = {}
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(at, name)
            inside = path.relative_to(folder).as_posix()
            if name.startswith(".") or not path.is_file():
                continue
            if file_trouble(inside):
                raise InvalidInput(f"{path} cannot be kept: {file_trouble(inside)}")
            found[inside] = path
    return found


def _local(name: str, path: Path) -> Remote:
    status = path.stat()
    return Remote(name, str(path), status.st_size, mark=f"mtime {status.st_mtime_ns}")


async def _list_url(http: httpx.AsyncClient, url: str) -> Listing:
    """The file at an address, with the other parts of its set."""
    asked = file_of_url(url)
    if file_trouble(asked):
        raise InvalidInput(f"{shown(url)} cannot be kept under its name: {file_trouble(asked)}")
    parts = split_parts(asked)
    if len(parts) > PARTS_MOST:
        raise Refused(f"{asked} is one of {len(parts)} parts; more than {PARTS_MOST} are not asked")
    files = []
    for name in parts:
        address = _beside(url, name) if name != asked else url
        try:
            files.append(await _ask(http, name, address))
        except NotFound as error:
            if name == asked:
                raise
            raise Refused(
                f"{asked} is one part of a set and {shown(address)} is not there; "
                "nothing was fetched"
            ) from error
    return Listing(shown(url), tuple(files), revision=files[0].mark)


def _beside(url: str, name: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rpartition('/')[0]}/{quote(name)}"))


async def _ask(http: httpx.AsyncClient, name: str, url: str) -> Remote:
    """Size and marks of a file, by HEAD, else by a range of one byte."""
    headers = {"Accept-Encoding": "identity"}
    try:
        found: dict[str, str] = {}
        answer = await http.head(url, headers=headers, follow_redirects=True)
        if answer.status_code >= HTTPStatus.BAD_REQUEST:
            # some servers and signed addresses know GET only
            ranged = {**headers, "Range": "bytes=0-0"}
            async with http.stream("GET", url, headers=ranged, follow_redirects=True) as answer:
                pass
        for hop in (*answer.history, answer):
            found.update(hop.headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        said = sanitise(str(error).partition("\n")[0], most=200) or type(error).__name__
        raise LlmgwError(f"{shown(url)} does not answer ({said})") from error
    status = answer.status_code
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        raise NotFound(f"{shown(url)} is not there: it answers {status}")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise Refused(f"{shown(url)} is not open to us: it answers {status}")
    if status >= HTTPStatus.BAD_REQUEST:
        raise LlmgwError(f"{shown(url)} cannot be fetched: it answers {status}")
    # a model hub's own redirect names the SHA-256 of what it leads to
    linked = found.get("x-linked-etag", "").strip('"').lower()
    return Remote(
        name,
        url,
        _size(answer),
        sha256=linked if _SHA256.fullmatch(linked) else None,
        mark=answer.headers.get("etag", ""),
    )


def _size(answer: httpx.Response) -> int | None:
    if answer.status_code == HTTPStatus.PARTIAL_CONTENT:
        said = answer.headers.get("content-range", "").rpartition("/")[2]
    elif answer.headers.get("content-encoding"):
        return None
    else:
        said = answer.headers.get("content-length", "")
    return number_in(said)
