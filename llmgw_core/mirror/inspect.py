"""Looks at weights wherever they are, without fetching them: names, sizes, and the header."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from llmgw_core.catalog.sources import (
    HubSource,
    MirrorSource,
    PathSource,
    Source,
    UrlSource,
    read_source,
)
from llmgw_core.errors import InvalidInput, LlmgwError, NotFound
from llmgw_core.gguf.errors import HeaderError, SourceError
from llmgw_core.gguf.reader import read_header
from llmgw_core.gguf.sources import ByteSource, FileSource, NodeSource
from llmgw_core.gguf.splits import grouped, is_projector, part_name, split_name
from llmgw_core.mirror.looked import Looked
from llmgw_core.mirror.names import default_model, default_version
from llmgw_core.mirror.store import Store
from llmgw_core.mirror.versions import FileState, MirrorFile, MirrorVersion
from llmgw_core.plain_text import sanitise

if TYPE_CHECKING:
    from llmgw_core.mirror.listing import Listing
    from llmgw_core.nodes.api import NodeHandle


@dataclass(frozen=True, slots=True)
class Places:
    """Where to look."""

    store: Store
    endpoint: str | None = None
    """Of the hub, where it is not the usual one."""
    nodes: Mapping[str, NodeHandle] | None = None
    """For paths: those that answer; None looks on this machine instead."""
    whole: bool = True
    """False reads the beginnings of headers only, which is enough for an estimate."""


async def inspect(source: Source, text: str, places: Places) -> Looked:
    """See what a source holds.

    Args:
        source: what ``text`` means.
        text: the source as it was given.
        places: where to look.

    Raises:
        NotFound: nothing is there.
        LlmgwError: it cannot be looked at, with why.
    """
    match source:
        case MirrorSource():
            return await _in_mirror(source, places)
        case HubSource() | UrlSource():
            return await _away(source, text, places)
        case PathSource(path) if places.nodes is not None:
            return await _on_nodes(path, places.nodes, places)
        case PathSource(path):
            return await _here(path, places)


async def meant(text: str, store: Store) -> Source:
    """What a source says; ``MODEL`` and ``MODEL/VERSION`` of the mirror may stand by themselves.

    Raises:
        InvalidInput: it says nothing.
    """
    text = text.strip()
    source = read_source(text)
    if source is None or text in ("", "/"):
        raise InvalidInput(
            f"{text!r} is no source; give mirror:MODEL/VERSION, hf:ORG/REPO, a URL or a path"
        )
    if not isinstance(source, PathSource) or text.startswith(("/", "~", ".")):
        return source
    return await asyncio.to_thread(_in_store, text, store) or source


def _in_store(text: str, store: Store) -> MirrorSource | None:
    """The version that a bare name means; the newest where only the model is named."""
    model, _, rest = text.partition("/")
    found = [version for version in store.versions() if version.model == model]
    if not found:
        return None
    version, _, file = rest.partition("/")
    if not version:
        version = max(found, key=lambda v: v.created or 0.0).version
    return MirrorSource(model, version, file) if version in {v.version for v in found} else None


async def look(text: str, places: Places, *, whole: bool = True) -> Looked:
    """The same for a source as it is written.

    Raises:
        InvalidInput: it says nothing.
    """
    places = replace(places, whole=whole)
    return await inspect(await meant(text, places.store), text.strip(), places)


def main_file(names: Iterable[str]) -> str | None:
    """The file whose header speaks for all: the first part of a split model, or the only one."""
    found = grouped(names)
    whole = [parts.parts[0] for parts in found.sets if parts.numbers[0] == 1]
    return next(iter((*whole, *found.singles)), None)


def _projector_bytes(files: Mapping[str, int | None]) -> int | None:
    return next((size for name, size in files.items() if is_projector(name)), None)


async def _read(looked: Looked, source: ByteSource, places: Places) -> Looked:
    """With the header, or why there is none."""
    try:
        header = await read_header(source, whole=places.whole)
    except SourceError as error:
        return replace(looked, unread=str(error))
    except HeaderError as error:
        return replace(looked, header_error=str(error))
    return replace(looked, header=header, requests=source.requests, bytes_read=source.bytes_read)


def _parts(name: str) -> tuple[str, ...]:
    """All parts of the split model that a file belongs to; only itself where it is none."""
    part = split_name(name)
    if part is None:
        return (name,)
    return tuple(part_name(part.stem, n, part.count) for n in range(1, part.count + 1))


async def _in_mirror(source: MirrorSource, places: Places) -> Looked:
    store = places.store
    version = await asyncio.to_thread(store.need, source.model, source.version)
    if source.file:
        wanted = set(_parts(source.file))
        files = tuple(f for f in version.files if f.file in wanted)
        if not files:
            raise NotFound(f"{version.name} in the mirror has no file {source.file}")
        version = MirrorVersion(
            version.model, version.version, files, version.source, version.revision
        )
    sizes = {file.file: file.bytes_total for file in version.files}
    looked = Looked(version, in_mirror=True, mmproj_bytes=_projector_bytes(sizes))
    name = main_file(sizes)
    if name is None:
        return looked
    file = next(f for f in version.files if f.file == name)
    if file.state is FileState.DONE:
        path = store.path(version.model, version.version, name)
    else:
        path = store.half(version.model, version.version, name).data
        if not path.exists():
            return looked
    read = await _read(looked, FileSource(path), places)
    if read.header_error and file.state is not FileState.DONE:
        return looked  # it is still coming
    return read


async def _away(source: HubSource | UrlSource, text: str, places: Places) -> Looked:
    import httpx

    from llmgw_core.gguf.http_source import HttpSource
    from llmgw_core.mirror.fetch import TIMEOUT
    from llmgw_core.mirror.listing import list_source

    async with httpx.AsyncClient(timeout=TIMEOUT) as http:
        listing = await list_source(http, source, text, endpoint=places.endpoint)
        version = _listed(source, listing)
        sizes = {remote.file: remote.size for remote in listing.files}
        looked = Looked(version, source=text, mmproj_bytes=_projector_bytes(sizes))
        name = main_file(sizes)
        if name is None:
            return looked
        remote = next(r for r in listing.files if r.file == name)
        return await _read(
            looked, HttpSource(http, remote.address, headers=listing.headers), places
        )


def _listed(source: HubSource | UrlSource, listing: Listing) -> MirrorVersion:
    return MirrorVersion(
        default_model(source),
        default_version(listing.commit, date.today()),
        tuple(
            MirrorFile(remote.file, 0, remote.size, FileState.WAITING, remote.sha256)
            for remote in listing.files
        ),
        source=listing.source,
        revision=listing.revision,
    )


async def _on_nodes(path: str, nodes: Mapping[str, NodeHandle], places: Places) -> Looked:
    """The first node that has it speaks for all."""
    found: dict[str, Mapping[str, int]] = {}
    trouble = ""
    for name, node in nodes.items():
        try:
            files = await node.list_files(path)
        except LlmgwError as error:
            trouble = trouble or str(error)
            continue
        if files and any(files.values()):
            found[name] = files
    if not found:
        why = f" ({sanitise(trouble, most=300)})" if trouble else ""
        raise NotFound(
            f"no node that answers has {path}{why}",
            hint="pull it into the mirror, or put it on a node",
        )
    first = next(iter(found))
    looked, at = _at_path(path, found[first], tuple(found))
    return looked if at is None else await _read(looked, NodeSource(nodes[first], at), places)


async def _here(path: str, places: Places) -> Looked:
    """On this machine."""
    place = Path(path).expanduser()
    files = await asyncio.to_thread(_files_here, place)
    if not files:
        raise NotFound(f"there is no file {path} on this machine")
    looked, at = _at_path(str(place), files, ())
    return looked if at is None else await _read(looked, FileSource(Path(at)), places)


def _files_here(place: Path) -> dict[str, int]:
    if place.is_file():
        return {"": place.stat().st_size}
    found = {}
    for folder, _, names in os.walk(place):
        for name in names:
            path = Path(folder, name)
            if path.is_file():
                found[path.relative_to(place).as_posix()] = path.stat().st_size
    return found


def _at_path(
    path: str, files: Mapping[str, int], nodes: tuple[str, ...]
) -> tuple[Looked, str | None]:
    """What lies at a path, and the file whose header speaks for it."""
    is_file = set(files) == {""}
    named = {PurePosixPath(path).name: files[""]} if is_file else dict(files)
    folder = str(PurePosixPath(path).parent) if is_file else path.rstrip("/")
    version = MirrorVersion(
        default_model(PathSource(path)),
        "",
        tuple(MirrorFile(n, size, size, FileState.DONE) for n, size in sorted(named.items())),
    )
    looked = Looked(
        version,
        source=path if is_file else f"{folder}/",
        mmproj_bytes=_projector_bytes(named),
        on_nodes=nodes,
    )
    name = main_file(named)
    return looked, f"{folder}/{name}" if name else None
