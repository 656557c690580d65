"""Pulls: files of a source brought into the store, checked, and written down.

Cancelling a pull at any moment, or killing its process, leaves what the next one goes on from.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import httpx
import msgspec

from llmgw_core.errors import InvalidInput, LlmgwError, Refused
from llmgw_core.mirror.board import Board, FileListener, OnProgress
from llmgw_core.mirror.copying import copy
from llmgw_core.mirror.disk import SPARE_BYTES, amount, place, read_sums
from llmgw_core.mirror.fetch import TIMEOUT, Fetcher
from llmgw_core.mirror.halves import Half
from llmgw_core.mirror.limit import RATE_LEAST
from llmgw_core.mirror.listing import Listing, Remote, list_source
from llmgw_core.mirror.manifest import Entry, Manifest, ManifestDamaged, unwritable
from llmgw_core.mirror.mend import mend
from llmgw_core.mirror.names import (
    check_files,
    check_model,
    check_version,
    default_model,
    default_version,
    read_pull,
)
from llmgw_core.mirror.store import Store
from llmgw_core.mirror.sums import PIECE_BYTES, Sums
from llmgw_core.mirror.toll import Toll
from llmgw_core.mirror.tree import prune, remove_tree, size_of
from llmgw_core.mirror.versions import FileState, MirrorVersion
from llmgw_core.mirror.wanted import Fetched, Wanted
from llmgw_core.plain_text import sanitise

AT_ONCE = 2
"""Files fetched at the same time."""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """What to pull, and under which name; empty names follow from the source."""

    source: str
    model: str = ""
    version: str = ""
    endpoint: str | None = None
    """The model hub; None for the usual one."""
    rate: float | None = None
    """Bytes per second for all files together; None is no limit."""


def _nobody(version: MirrorVersion) -> None:
    """Hear nothing."""


async def pull(
    store: Store,
    request: PullRequest,
    on_progress: OnProgress = _nobody,
    *,
    now: Callable[[], float] = time.time,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    piece_bytes: int = PIECE_BYTES,
) -> MirrorVersion:
    """Bring a source into the store.

    What is there already is kept, what is damaged is mended, what came halfway is gone on with.

    Args:
        store: Where to.
        request: What.
        on_progress: Hears of the version some five times a second, and of its last state.
        now: The time of day, for the version's date.
        pause: How to wait between attempts.
        piece_bytes: Length of the pieces by which damage is found later.

    Raises:
        InvalidInput: the source or a name cannot be used.
        NotFound: the source has no such thing.
        Refused: it is not clear what is meant, somebody works on the version, or it holds others.
        LlmgwError: a file could not be fetched or stored; what has come is kept.
    """
    if request.rate is not None and request.rate < RATE_LEAST:
        raise InvalidInput(f"a pull's rate is at least {RATE_LEAST} bytes a second")
    source = read_pull(request.source)
    model = check_model(request.model or default_model(source))
    if request.version:
        check_version(request.version)
    limits = httpx.Limits(max_connections=2 * AT_ONCE)
    async with httpx.AsyncClient(timeout=TIMEOUT, limits=limits) as http:
        listing = await list_source(http, source, request.source, endpoint=request.endpoint)
        day = date.fromtimestamp(now())
        version = request.version or default_version(listing.commit, day)
        await asyncio.to_thread(store.check_new, model, version)
        fetcher = Fetcher(
            http,
            toll=Toll(request.rate, time.monotonic),
            pause=pause,
            piece_bytes=piece_bytes,
        )
        async with _locked(store, model, version):
            found = await asyncio.to_thread(_manifest, store, model, version)
            made = found or Manifest(
                model, version, source=listing.source, revision=listing.revision, created=now()
            )
            return await _Pull(store, listing, fetcher, made, on_progress).run()


@asynccontextmanager
async def _locked(store: Store, model: str, version: str) -> AsyncIterator[None]:
    with contextlib.ExitStack() as held:
        # taken on the loop: a few system calls, and a cancelled thread would keep it
        held.enter_context(store.locked(model, version, "a pull"))
        yield


def _manifest(store: Store, model: str, version: str) -> Manifest | None:
    try:
        return store.manifest(model, version)
    except ManifestDamaged:
        return None  # made anew: the files that are there are checked and taken over


def same_file(entry: Entry, remote: Remote) -> bool:
    """Whether a stored file is what the source has now, by all that both know. Pure."""
    if entry.sha256 and remote.sha256:
        return entry.sha256 == remote.sha256
    if entry.size is not None and remote.size is not None and entry.size != remote.size:
        return False
    return not (entry.etag and remote.mark and entry.etag != remote.mark)


def check_same_source(found: Manifest, listing: Listing) -> None:
    """Refuse to mix two sources, or two states of one, in a version. Pure.

    Raises:
        Refused: the version holds something else.
    """
    name = f"{found.model}/{found.version}"
    same = found.source == listing.source or (found.revision and found.revision == listing.revision)
    if not same and any(entry.state is not FileState.WAITING for entry in found.files):
        raise Refused(
            f"{name} holds files of {sanitise(found.source, most=300)}",
            hint="name another version with --version, or remove this one",
        )
    for remote in listing.files:
        entry = found.entry(remote.file)
        stored = entry is not None and entry.state is not FileState.WAITING
        if entry is not None and stored and not same_file(entry, remote):
            raise Refused(
                f"{remote.file} changed at its source since {name} was pulled",
                hint="name another version with --version, or remove this one",
            )


class _Pull:
    """One pull, under the version's lock."""

    def __init__(
        self,
        store: Store,
        listing: Listing,
        fetcher: Fetcher,
        found: Manifest,
        told: OnProgress,
    ) -> None:
        check_same_source(found, listing)
        self._store = store
        self._listing = listing
        self._fetcher = fetcher
        self._remotes = {remote.file: remote for remote in listing.files}
        self._made = found
        self._told = told
        self._writing = asyncio.Lock()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._errors: list[LlmgwError] = []

    async def run(self) -> MirrorVersion:
        """Fetch what is missing; the version as it is then."""
        await asyncio.to_thread(self._begin)
        board = Board(self._shown(), self._told, time.monotonic)
        try:
            async with asyncio.TaskGroup() as group:
                teller = group.create_task(board.run())
                async with asyncio.TaskGroup() as files:
                    for name in self._missing():
                        files.create_task(self._one(board, name))
                teller.cancel()
        finally:
            board.tell()
        if self._errors:
            raise self._errors[0]
        await asyncio.to_thread(self._end)
        return board.version

    def _begin(self) -> None:
        """Write down what is going to be there, and see that there is room for it; blocks."""
        waiting = {entry.file for entry in self._made.files if entry.state is FileState.WAITING}
        entries = [
            Entry(remote.file, remote.size, remote.sha256)
            for remote in self._listing.files
            if self._made.entry(remote.file) is None or remote.file in waiting
        ]
        listing = self._listing
        names = [remote.file for remote in listing.files]
        made = self._made.asked_for(listing.source, names).put(entries)
        if not any(entry.state is not FileState.WAITING for entry in made.files):
            # nothing of an earlier source is here, only what it would have had
            made = msgspec.structs.replace(
                made,
                files=tuple(entries),
                source=listing.source,
                revision=listing.revision,
                asked={listing.source: tuple(names)},
            )
        check_files(entry.file for entry in made.files)
        self._made = made
        self._check_room()
        self._store.write_manifest(made)

    def _check_room(self) -> None:
        needed = 0
        for name in self._missing():
            remote = self._remotes[name]
            half, target = self._places(name)
            have = max(size_of(half.data) or 0, size_of(target) or 0)
            needed += max((remote.size or 0) - have, 0)
        free = self._store.free_bytes()
        if needed and free is not None and free < needed + SPARE_BYTES:
            raise LlmgwError(
                f"{self._store.root} has {amount(free)} free and {amount(needed)} are needed "
                f"beside {amount(SPARE_BYTES)} that stay free",
                hint="free some space or put it elsewhere ([mirror] path)",
            )

    def _missing(self) -> list[str]:
        """The files of this pull that are not here and sound."""
        missing = []
        for remote in self._listing.files:
            entry = self._made.entry(remote.file)
            sound = entry is not None and entry.state is FileState.DONE
            _, target = self._places(remote.file)
            if entry is None or not sound or size_of(target) != entry.size:
                missing.append(remote.file)
        return missing

    def _places(self, name: str) -> tuple[Half, Path]:
        model, version = self._made.model, self._made.version
        return self._store.half(model, version, name), self._store.path(model, version, name)

    def _shown(self) -> MirrorVersion:
        """As it lies on the disk, with the sizes that the source says."""
        shown = self._store.need(self._made.model, self._made.version)
        return replace(
            shown,
            files=tuple(
                replace(file, state=FileState.WAITING, error="")
                if file.state is FileState.DAMAGED and file.file in self._remotes
                else file
                for file in shown.files
            ),
        )

    async def _one(self, board: Board, name: str) -> None:
        """Fetch one file; a failure is kept, so that the others go on."""
        async with self._slots:
            try:
                await self._fetch(board, name)
            except LlmgwError as error:
                self._errors.append(error)
                file = board.file(name)
                board.put(replace(file, state=FileState.FAILED, rate=None, error=str(error)))
            except asyncio.CancelledError:
                board.put(replace(board.file(name), state=FileState.WAITING, rate=None))
                raise

    async def _fetch(self, board: Board, name: str) -> None:
        half, target = self._places(name)
        hear = FileListener(board, name)
        fetched = await self._taken_over(name, target, hear)
        if fetched is None:
            fetched = await self._brought(name, half, target, hear)
            try:
                await asyncio.to_thread(place, half.data, target)
            except OSError as error:
                raise unwritable(target.parent, error) from error
        entry = Entry(
            name,
            fetched.size,
            fetched.sha256,
            FileState.DONE,
            # the mark that the next listing is compared with: the hub's are not its servers' ETags
            etag=self._remotes[name].mark if self._listing.commit else fetched.etag,
            piece_bytes=fetched.piece_bytes,
            pieces=fetched.pieces,
        )
        async with self._writing:
            self._made = self._made.put([entry])
            await asyncio.to_thread(self._store.write_manifest, self._made)
        await asyncio.to_thread(remove_tree, half.note)
        board.put(
            replace(
                board.file(name),
                state=FileState.DONE,
                bytes_done=fetched.size,
                bytes_total=fetched.size,
                sha256=fetched.sha256,
                rate=None,
                error="",
            )
        )

    async def _taken_over(self, name: str, target: Path, hear: FileListener) -> Fetched | None:
        """A file that is in its place and was not written down: a kill came just between."""
        remote, entry = self._remotes[name], self._made.entry(name)
        unknown = entry is None or entry.state is FileState.WAITING
        if not unknown or remote.sha256 is None or size_of(target) != remote.size:
            return None
        sums = Sums(self._fetcher.piece_bytes)
        await read_sums(target, sums, lambda done: hear.checking(done, remote.size))
        if sums.sha256() != remote.sha256:
            return None
        return Fetched(
            sums.count, sums.sha256(), remote.mark, self._fetcher.piece_bytes, sums.pieces()
        )

    async def _brought(self, name: str, half: Half, target: Path, hear: FileListener) -> Fetched:
        remote, entry = self._remotes[name], self._made.entry(name)
        damaged = entry is not None and entry.state is not FileState.WAITING
        if self._listing.local:
            return await copy(
                remote,
                half,
                hear,
                toll=self._fetcher.toll,
                piece_bytes=self._fetcher.piece_bytes,
            )
        wanted = Wanted(
            remote.address,
            remote.sha256 or (entry.sha256 if entry is not None and damaged else None),
            remote.size,
            mark="" if self._listing.commit else remote.mark,
            headers=self._listing.headers,
            explain=self._listing.explain,
        )
        if entry is not None and damaged:
            await asyncio.to_thread(_take_back, target, half)
            if size_of(half.data):
                mended = await mend(self._fetcher, wanted, half, entry, hear)
                if mended is not None:
                    return mended
        return await self._fetcher.fetch(wanted, half, hear)

    def _end(self) -> None:
        """Remove what the halves lay in; blocks."""
        base = self._store.partial(self._made.model, self._made.version)
        if all(entry.state is not FileState.WAITING for entry in self._made.files):
            remove_tree(base)
            prune(base.parent, self._store.root)


def _take_back(target: Path, half: Half) -> None:
    """Make a damaged file a half again; blocks."""
    if size_of(target) is None:
        return
    try:
        half.data.parent.mkdir(parents=True, exist_ok=True)
        target.replace(half.data)
    except OSError as error:
        raise unwritable(half.data.parent, error) from error
