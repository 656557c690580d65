"""A damaged file made sound again: only the pieces that are bad are fetched."""

from __future__ import annotations

import asyncio
import os
from http import HTTPStatus
from pathlib import Path

import httpx

from llmgw_core.mirror.disk import finish, read_sums
from llmgw_core.mirror.fetch import Fetcher
from llmgw_core.mirror.halves import Half, drop
from llmgw_core.mirror.manifest import Entry, unwritable
from llmgw_core.mirror.names import shown
from llmgw_core.mirror.sums import Sums, bad_pieces
from llmgw_core.mirror.wanted import Fetched, Interrupted, Listener, Wanted
from llmgw_core.plain_text import sanitise


async def mend(
    by: Fetcher, wanted: Wanted, half: Half, known: Entry, hear: Listener
) -> Fetched | None:
    """Make ``half.data`` what it once was.

    Returns:
        What it is, or None where it has to be fetched as any half file: what is left of it may be
        gone on with.

    Raises:
        Interrupted: the connection broke too often; another call mends the rest.
        LlmgwError: the disk does not do its part.
    """
    try:
        return await _mend(by, wanted, half, known, hear)
    except OSError as error:
        raise unwritable(half.data.parent, error) from error


async def _mend(
    by: Fetcher, wanted: Wanted, half: Half, known: Entry, hear: Listener
) -> Fetched | None:
    sums = await _sums(half.data, known, hear)
    if sums.sha256() == known.sha256:
        return _fetched(sums, known)
    if sums.count != known.size:
        await asyncio.to_thread(_keep_good, half, sums, known)
        return None
    bad = bad_pieces(sums.pieces(), known.pieces)
    if not bad or not await _fetch_pieces(by, wanted, half, known, bad):
        await asyncio.to_thread(drop, half)
        return None
    hear.noted(f"{len(bad)} of its {len(known.pieces)} pieces were damaged; fetched again")
    sums = await _sums(half.data, known, hear)
    if sums.sha256() == known.sha256:
        return _fetched(sums, known)
    await asyncio.to_thread(drop, half)
    return None


async def _sums(path: Path, known: Entry, hear: Listener) -> Sums:
    sums = Sums(known.piece_bytes)
    await read_sums(path, sums, lambda done: hear.checking(done, known.size))
    return sums


def _fetched(sums: Sums, known: Entry) -> Fetched:
    return Fetched(sums.count, sums.sha256(), known.etag, known.piece_bytes, sums.pieces())


def _keep_good(half: Half, sums: Sums, known: Entry) -> None:
    """Cut a file of another length to the pieces at its beginning that are sound."""
    whole = sums.count // known.piece_bytes if known.piece_bytes else 0
    pairs = zip(sums.pieces()[:whole], known.pieces, strict=False)
    good = next((n for n, (a, b) in enumerate(pairs) if a != b), min(whole, len(known.pieces)))
    half.note.unlink(missing_ok=True)
    os.truncate(half.data, good * known.piece_bytes)


async def _fetch_pieces(
    by: Fetcher, wanted: Wanted, half: Half, known: Entry, bad: tuple[int, ...]
) -> bool:
    """Fetch the bad pieces into their places; False where the server gives no parts."""
    for number in bad:
        start = number * known.piece_bytes
        length = min(known.piece_bytes, (known.size or 0) - start)
        content = await _piece(by, wanted, start, length)
        if content is None:
            return False
        await finish(_put_at, half.data, start, content)
    return True


async def _piece(by: Fetcher, wanted: Wanted, start: int, length: int) -> bytes | None:
    headers = {
        **wanted.headers,
        "Accept-Encoding": "identity",
        "Range": f"bytes={start}-{start + length - 1}",
    }
    for attempt in range(by.attempts):
        try:
            async with by.http.stream(
                "GET", wanted.url, headers=headers, follow_redirects=True
            ) as answer:
                if answer.status_code != HTTPStatus.PARTIAL_CONTENT:
                    return None  # the fetch of all of it says what is wrong
                content = bytearray()
                async for chunk in answer.aiter_raw():
                    content += chunk
                    if len(content) > length:
                        return None
                    await by.toll.pay(len(chunk))
                if len(content) == length:
                    return bytes(content)
                return None
        except httpx.TransportError as error:
            if attempt == by.attempts - 1:
                said = sanitise(str(error), most=200) or type(error).__name__
                raise Interrupted(
                    f"{shown(wanted.url)} could not be fetched ({said}); try again to mend it"
                ) from error
        await by.pause(0.5 * 2**attempt)
    return None


def _put_at(path: Path, start: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(content)
