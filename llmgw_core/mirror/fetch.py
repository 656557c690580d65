"""One file over HTTP: gone on with after any break, its checksums taken as it comes.

A half file may be gone on with where its SHA-256 is known (it decides in the end) or where the
server gave a strong ETag or a date, which then guards the range (RFC 9110, section 13.1.5).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import BinaryIO

import httpx

from llmgw_core.errors import LlmgwError
from llmgw_core.mirror.answer import Broken, Standing
from llmgw_core.mirror.disk import finish, read_sums, write_all
from llmgw_core.mirror.halves import Half, Note, drop, read_note, why_stale, write_note
from llmgw_core.mirror.manifest import unwritable
from llmgw_core.mirror.names import shown
from llmgw_core.mirror.toll import Toll
from llmgw_core.mirror.tree import size_of
from llmgw_core.mirror.wanted import Fetched, Interrupted, Listener, Wanted, WrongContent
from llmgw_core.plain_text import sanitise

ATTEMPTS = 5
"""Breaks in a row that are gone on from; one that brought nothing counts, others begin anew."""
BACKOFF_FIRST_S, BACKOFF_MOST_S = 0.5, 30.0
FLUSH_BYTES = 1024 * 1024
FLUSH_S = 0.2
TIMEOUT = httpx.Timeout(60.0, connect=20.0)


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
        self._standing = Standing(wanted, hear, by.piece_bytes)

    async def whole(self) -> Fetched:
        """Fetch until nothing is missing, through breaks."""
        try:
            await self._take_up()
            await self._through_breaks()
        except OSError as error:
            raise self._by.disk_error(self._half.data.parent, error) from error
        return Fetched(
            size=self._standing.sums.count,
            sha256=self._standing.sums.sha256(),
            etag=self._standing.note.etag,
            piece_bytes=self._by.piece_bytes,
            pieces=self._standing.sums.pieces(),
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
        self._standing.note = note or Note()
        if self._standing.total is None:
            self._standing.total = self._standing.note.size
        await read_sums(
            self._half.data,
            self._standing.sums,
            lambda done: self._hear.checking(done, self._standing.total),
        )

    async def _through_breaks(self) -> None:
        failures = 0
        furthest = self._standing.sums.count
        while True:
            try:
                await self._attempt()
                return
            except (Broken, httpx.HTTPError, httpx.InvalidURL) as error:
                failures = 1 if self._standing.sums.count > furthest else failures + 1
                furthest = max(furthest, self._standing.sums.count)
                final = isinstance(
                    error, (httpx.UnsupportedProtocol, httpx.TooManyRedirects, httpx.InvalidURL)
                )
                if final or failures >= self._by.attempts:
                    raise self._gave_up(error) from error
                wait_s = error.wait_s if isinstance(error, Broken) else 0.0
            backoff = min(BACKOFF_FIRST_S * 2 ** (failures - 1), BACKOFF_MOST_S)
            await self._by.pause(max(backoff, wait_s))

    def _gave_up(self, error: Exception) -> Interrupted:
        # a server chooses where it leads, and its words are quoted
        said = sanitise(str(error).partition("\n")[0], most=200) or type(error).__name__
        return Interrupted(
            f"{shown(self._wanted.url)} could not be fetched ({said}); "
            "what has come is kept, try again"
        )

    async def _attempt(self) -> None:
        done = self._standing.sums.count
        if 0 < done == self._standing.total:
            return
        headers = self._standing.headers()
        request = self._by.http.build_request("GET", self._wanted.url, headers=headers)
        response = await self._by.http.send(request, stream=True, follow_redirects=True)
        try:
            if self._standing.judge(response):
                await self._receive(response)
        finally:
            await response.aclose()
        if self._standing.total is not None and self._standing.sums.count < self._standing.total:
            raise Broken(
                f"it ended after {self._standing.sums.count} of {self._standing.total} bytes"
            )

    async def _receive(self, response: httpx.Response) -> None:
        """Write the body behind what is there."""
        headers = response.headers
        self._standing.note = Note(
            url=shown(self._wanted.url),
            etag=headers.get("etag", ""),
            modified=headers.get("last-modified", ""),
            size=self._standing.total,
            sha256=self._wanted.sha256,
        )
        self._moved()
        # before the first byte: what a kill leaves then says what it is a half of
        await asyncio.to_thread(write_note, self._half, self._standing.note)
        with _open_at(self._half.data, self._standing.sums.count) as file:
            await self._pour(response, file)

    async def _pour(self, response: httpx.Response, file: BinaryIO) -> None:
        loop = asyncio.get_running_loop()
        held = bytearray()
        due = loop.time() + FLUSH_S
        try:
            async for chunk in response.aiter_raw():
                held += chunk
                if self._standing.is_more(len(held)):
                    raise WrongContent(
                        f"{shown(self._wanted.url)} gives more than {self._standing.total} bytes"
                    )
                if len(held) >= FLUSH_BYTES or loop.time() >= due:
                    whole, held = held, bytearray()
                    await finish(self._put, file, bytes(whole))
                    self._moved()
                    due = loop.time() + FLUSH_S
                await self._by.toll.pay(len(chunk))
        finally:
            # not in a thread: a cancelled task must not wait again, and it is little
            if held and not self._standing.is_more(len(held)):
                self._put(file, bytes(held))
            self._moved()

    def _moved(self) -> None:
        self._hear.moved(self._standing.sums.count, self._standing.total)

    def _put(self, file: BinaryIO, content: bytes) -> None:
        write_all(file, content)
        self._standing.sums.update(content)


def _open_at(path: Path, done: int) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("r+b" if done else "wb", buffering=0)
    file.truncate(done)
    file.seek(done)
    return file
