"""One file over HTTP: gone on with after any break, its checksums taken as it comes.

A half file may be gone on with where its SHA-256 is known (it decides in the end) or where the
server gave a strong ETag or a date, which then guards the range (RFC 9110, section 13.1.5).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, NoReturn

import httpx

from llmgw_core.errors import LlmgwError
from llmgw_core.mirror.disk import finish, read_sums, write_all
from llmgw_core.mirror.halves import Half, Note, drop, read_note, why_stale, write_note
from llmgw_core.mirror.manifest import unwritable
from llmgw_core.mirror.names import shown
from llmgw_core.mirror.sums import Sums
from llmgw_core.mirror.toll import Toll
from llmgw_core.mirror.tree import size_of

ATTEMPTS = 5
"""Breaks in a row that are gone on from; one that brought nothing counts, others begin anew."""
BACKOFF_FIRST_S, BACKOFF_MOST_S, RETRY_AFTER_MOST_S = 0.5, 30.0, 120.0
FLUSH_BYTES = 1024 * 1024
FLUSH_S = 0.2
TIMEOUT = httpx.Timeout(60.0, connect=20.0)
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_RANGE_END = re.compile(r"bytes \*/(\d+)")
_AGAIN = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}


class Interrupted(LlmgwError):
    """The connection broke; what has come is kept, and the next call goes on from there."""

    code = "interrupted"


class WrongContent(LlmgwError):
    """What came is not what was promised; nothing of it is kept."""

    code = "wrong_content"


class _Broken(Exception):
    """This attempt ended early; another may go on."""

    def __init__(self, why: str, *, wait_s: float = 0.0) -> None:
        super().__init__(why)
        self.wait_s = wait_s


Explain = Callable[[int, Mapping[str, str]], LlmgwError | None]
"""What a status means at this server; None where it means what it always does."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file and what it must be."""

    url: str
    sha256: str | None
    size: int | None = None
    mark: str = ""
    """The ETag that the size was told with: where the file has another one by now, the size is
    another one too, and that is no fault."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent to this host only: a redirect elsewhere goes without a login."""
    explain: Explain | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came."""

    size: int
    sha256: str
    etag: str = ""
    piece_bytes: int = 0
    pieces: tuple[int, ...] = ()


class Listener:
    """Hears how a fetch goes; this one does nothing."""

    def moved(self, done: int, total: int | None) -> None:
        """So many bytes have come."""

    def checking(self, done: int, total: int | None) -> None:
        """What came earlier is being read."""

    def noted(self, what: str) -> None:
        """Something went otherwise than planned, and was mended."""


class Fetcher:
    """Fetches files over one HTTP client.

    Args:
        http: The client; its timeouts count.
        toll: What limits the rate.
        pause: How to wait between attempts.
        piece_bytes: Length of the pieces that get a checksum each; 0 for none.
        attempts: Breaks in a row after which it gives up.
        disk_error: What to say where a folder cannot be written.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        *,
        toll: Toll | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        piece_bytes: int = 0,
        attempts: int = ATTEMPTS,
        disk_error: Callable[[Path, OSError], LlmgwError] = unwritable,
    ) -> None:
        self.http = http
        self.toll = toll or Toll(None, time.monotonic)
        self.pause = pause
        self.piece_bytes = piece_bytes
        self.attempts = attempts
        self.disk_error = disk_error

    async def fetch(self, wanted: Wanted, half: Half, hear: Listener) -> Fetched:
        """Fetch a file to ``half.data``, going on with what is there.

        A wrong checksum is fetched once more from the start: the half kept from an earlier run may
        have been another file's.

        Raises:
            Interrupted: the connection broke too often, or the server refused.
            WrongContent: the content is not what was promised, twice.
            LlmgwError: the disk did not take it, or ``wanted.explain`` knew better.
        """
        digest = ""
        for again in (False, True):
            run = _Run(self, wanted, half, hear)
            try:
                fetched = await run.whole()
            except WrongContent:
                await asyncio.to_thread(drop, half)
                raise
            digest = fetched.sha256
            if wanted.sha256 in (None, digest):
                return fetched
            await asyncio.to_thread(drop, half)
            if not again:
                hear.noted("its checksum was wrong; fetched again")
        raise WrongContent(
            f"{shown(wanted.url)} is not what it should be: its checksum is {digest}"
        )


class _Run:
    """One file from where its half stands to its end."""

    def __init__(self, by: Fetcher, wanted: Wanted, half: Half, hear: Listener) -> None:
        self._by = by
        self._wanted = wanted
        self._half = half
        self._hear = hear
        self._note = Note()
        self._total = wanted.size
        self._sums = Sums(by.piece_bytes)
        """Its count is how much of the half is good."""

    async def whole(self) -> Fetched:
        """Fetch until nothing is missing, through breaks."""
        try:
            await self._take_up()
            await self._through_breaks()
        except OSError as error:
            raise self._by.disk_error(self._half.data.parent, error) from error
        return Fetched(
            size=self._sums.count,
            sha256=self._sums.sha256(),
            etag=self._note.etag,
            piece_bytes=self._by.piece_bytes,
            pieces=self._sums.pieces(),
        )

    async def _take_up(self) -> None:
        """Read what came in an earlier run, or begin anew."""
        have = size_of(self._half.data)
        if not have:
            return
        note = read_note(self._half)
        stale = why_stale(
            note,
            have,
            address=shown(self._wanted.url),
            sha256=self._wanted.sha256,
            size=self._wanted.size,
            mark=self._wanted.mark,
        )
        if stale:
            self._hear.noted(stale)
            await asyncio.to_thread(drop, self._half)
            return
        self._note = note or Note()
        if self._total is None:
            self._total = self._note.size
        await read_sums(
            self._half.data, self._sums, lambda done: self._hear.checking(done, self._total)
        )

    async def _through_breaks(self) -> None:
        failures = 0
        furthest = self._sums.count
        while True:
            try:
                await self._attempt()
                return
            except (_Broken, httpx.HTTPError, httpx.InvalidURL) as error:
                failures = 1 if self._sums.count > furthest else failures + 1
                furthest = max(furthest, self._sums.count)
                final = isinstance(
                    error, (httpx.UnsupportedProtocol, httpx.TooManyRedirects, httpx.InvalidURL)
                )
                if final or failures >= self._by.attempts:
                    raise self._gave_up(error) from error
                wait_s = error.wait_s if isinstance(error, _Broken) else 0.0
            backoff = min(BACKOFF_FIRST_S * 2 ** (failures - 1), BACKOFF_MOST_S)
            await self._by.pause(max(backoff, wait_s))

    def _gave_up(self, error: Exception) -> Interrupted:
        said = str(error).partition("\n")[0] or type(error).__name__
        return Interrupted(
            f"{shown(self._wanted.url)} could not be fetched ({said}); "
            "what has come is kept, try again"
        )

    async def _attempt(self) -> None:
        done = self._sums.count
        if 0 < done == self._total:
            return
        headers = {"Accept-Encoding": "identity", **self._wanted.headers}
        if done:
            headers["Range"] = f"bytes={done}-"
            if not self._wanted.sha256:
                headers["If-Range"] = self._note.validator
        request = self._by.http.build_request("GET", self._wanted.url, headers=headers)
        response = await self._by.http.send(request, stream=True, follow_redirects=True)
        try:
            if self._judge(response):
                await self._receive(response)
        finally:
            await response.aclose()
        if self._total is not None and self._sums.count < self._total:
            raise _Broken(f"it ended after {self._sums.count} of {self._total} bytes")

    def _judge(self, response: httpx.Response) -> bool:
        """Whether a body is to be read; the count is set back where it begins anew.

        Raises:
            _Broken: to be asked again.
            LlmgwError: not to be asked again.
        """
        status, done = response.status_code, self._sums.count
        if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and done:
            return self._judge_end(response)
        if status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            self._refuse(response)
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise Interrupted(f"{shown(self._wanted.url)} comes compressed, against what was asked")
        if status == HTTPStatus.PARTIAL_CONTENT:
            self._judge_part(response)
            return True
        length = response.headers.get("content-length", "")
        total = int(length) if length.isdigit() else None
        if done:
            changed = self._changed(response, total)
            self._restart(
                "it changed at the source; begun again"
                if changed
                else "the server cannot go on in the middle; begun again"
            )
        self._expect(response, total)
        return True

    def _judge_end(self, response: httpx.Response) -> bool:
        """A range beyond the end: all is there already, or it is another file."""
        found = _RANGE_END.fullmatch(response.headers.get("content-range", ""))
        if found is None and self._wanted.sha256:
            self._total = self._sums.count  # the checksum decides
            return False
        if found is not None and int(found[1]) == self._sums.count:
            self._total = self._sums.count
            return False
        self._restart("it changed at the source; begun again")
        raise _Broken("the file became shorter")

    def _judge_part(self, response: httpx.Response) -> None:
        found = _RANGE.fullmatch(response.headers.get("content-range", ""))
        total = int(found[3]) if found and found[3] != "*" else None
        if found is None or int(found[1]) != self._sums.count:
            self._restart("the server gave another part than was asked for; begun again")
            raise _Broken("it gave another part than was asked for")
        if self._changed(response, total):
            self._restart("it changed at the source; begun again")
            raise _Broken("it changed at the source")
        self._expect(response, total)

    def _changed(self, response: httpx.Response, total: int | None) -> bool:
        if total is not None and self._total is not None and total != self._total:
            return True
        etag = response.headers.get("etag", "")
        return bool(not self._wanted.sha256 and etag and etag != self._note.etag)

    def _restart(self, why: str) -> None:
        self._hear.noted(why)
        self._sums = Sums(self._by.piece_bytes)
        self._total = self._wanted.size
        self._note = Note()

    def _expect(self, response: httpx.Response, total: int | None) -> None:
        """Take over the size that the server says, where it is no other than the promised one."""
        if total is None:
            return
        wanted, etag = self._wanted, response.headers.get("etag", "")
        if wanted.size is not None and total != wanted.size:
            changed = wanted.sha256 is None and wanted.mark and etag not in ("", wanted.mark)
            if changed:
                self._hear.noted("it changed at the source; begun again")
                self._total = total
                return
            raise WrongContent(
                f"{shown(self._wanted.url)} has {total} bytes and should have {self._wanted.size}; "
                "it may have changed just now, try again"
            )
        self._total = total

    def _refuse(self, response: httpx.Response) -> NoReturn:
        status = response.status_code
        if response.history and status == HTTPStatus.FORBIDDEN:
            # a signed address that ran out: the next attempt is given a new one
            raise _Broken(f"the server that it sends to answers {status}")
        explain = self._wanted.explain
        better = explain(status, response.headers) if explain else None
        if better is not None:
            raise better
        if status in _AGAIN or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise _Broken(f"it answers {status}", wait_s=retry_after(response.headers))
        raise Interrupted(f"{shown(self._wanted.url)} cannot be fetched: it answers {status}")

    async def _receive(self, response: httpx.Response) -> None:
        """Write the body behind what is there."""
        headers = response.headers
        self._note = Note(
            url=shown(self._wanted.url),
            etag=headers.get("etag", ""),
            modified=headers.get("last-modified", ""),
            size=self._total,
            sha256=self._wanted.sha256,
        )
        self._hear.moved(self._sums.count, self._total)
        # before the first byte: what a kill leaves then says what it is a half of
        await asyncio.to_thread(write_note, self._half, self._note)
        with _open_at(self._half.data, self._sums.count) as file:
            await self._pour(response, file)

    async def _pour(self, response: httpx.Response, file: BinaryIO) -> None:
        loop = asyncio.get_running_loop()
        held = bytearray()
        due = loop.time() + FLUSH_S
        try:
            async for chunk in response.aiter_raw():
                held += chunk
                if self._total is not None and self._sums.count + len(held) > self._total:
                    raise WrongContent(
                        f"{shown(self._wanted.url)} gives more than {self._total} bytes"
                    )
                if len(held) >= FLUSH_BYTES or loop.time() >= due:
                    whole, held = held, bytearray()
                    await finish(self._put, file, bytes(whole))
                    self._hear.moved(self._sums.count, self._total)
                    due = loop.time() + FLUSH_S
                await self._by.toll.pay(len(chunk))
        finally:
            # not in a thread: a cancelled task must not wait again, and it is little
            if held and (self._total is None or self._sums.count + len(held) <= self._total):
                self._put(file, bytes(held))
            self._hear.moved(self._sums.count, self._total)

    def _put(self, file: BinaryIO, content: bytes) -> None:
        write_all(file, content)
        self._sums.update(content)


def _open_at(path: Path, done: int) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("r+b" if done else "wb", buffering=0)
    file.truncate(done)
    file.seek(done)
    return file


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that a server asks to wait, within bounds; 0 where it says none in seconds."""
    said = headers.get("retry-after", "")
    return min(float(said), RETRY_AFTER_MOST_S) if said.isdigit() else 0.0
