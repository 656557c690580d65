"""The mirror over real sockets: what is served, to whom, and what is not."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import os
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.mirror.requested import Answer, parse_range
from llmgw_core.mirror.tokens import fetch_token
from llmgw_core.mirror.versions import FileState
from tests.mirror.shelves import NOW, SECRET, TOKEN, Lab, lab, until

CONTENT = random.Random(1).randbytes(1_000_003)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
ETAG = f'"{SHA256}"'
FILE = "/v1/files/m/v1/w.gguf"


async def test_a_file_comes_whole_with_its_checksum(tmp_path: Path) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("deep/er/w x-ü.gguf", CONTENT)
        got = await mirror.ask("/v1/files/m/v1/deep/er/w%20x-%C3%BC.gguf")
        assert (got.status, got.body) == (200, CONTENT)
        assert got.headers["content-length"] == str(len(CONTENT))
        assert got.headers["etag"] == ETAG
        assert got.headers["x-checksum-sha256"] == SHA256
        digest = base64.b64encode(hashlib.sha256(CONTENT).digest()).decode()
        assert got.headers["repr-digest"] == f"sha-256=:{digest}:"
        assert got.headers["accept-ranges"] == "bytes"
        assert got.headers["content-type"] == "application/octet-stream"
        assert "content-encoding" not in got.headers


async def test_an_empty_file_is_a_file(tmp_path: Path) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", b"")
        got = await mirror.ask(FILE)
        assert (got.status, got.body, got.headers["content-length"]) == (200, b"", "0")


@pytest.mark.parametrize("suffix", [".gz", ".br"])
async def test_a_compressed_neighbour_is_not_taken_for_it(tmp_path: Path, suffix: str) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT)
        (mirror.shelf.path("m", "v1", "w.gguf" + suffix)).write_bytes(b"other")
        got = await mirror.ask(FILE, Accept_Encoding="gzip, br, deflate")
        assert got.body == CONTENT


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-", 5, len(CONTENT)),
        ("bytes=1000-1999", 1000, 2000),
        ("bytes=999000-99999999", 999_000, len(CONTENT)),
        ("bytes=-7", len(CONTENT) - 7, len(CONTENT)),
        ("bytes=-99999999", 0, len(CONTENT)),
    ],
)
async def test_a_range_comes_alone(tmp_path: Path, asked: str, start: int, stop: int) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT)
        got = await mirror.ask(FILE, Range=asked)
        assert (got.status, got.body) == (206, CONTENT[start:stop])
        assert got.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(CONTENT)}"
        assert got.headers["etag"] == ETAG


@pytest.mark.parametrize("asked", [f"bytes={len(CONTENT)}-", "bytes=-0", f"bytes={10**18}-"])
async def test_a_range_past_the_end_says_how_long_the_file_is(tmp_path: Path, asked: str) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT)
        got = await mirror.ask(FILE, Range=asked)
        assert got.status == 416
        assert got.headers["content-range"] == f"bytes */{len(CONTENT)}"


@pytest.mark.parametrize(
    "asked", ["bytes=0-1,5-6", "lines=1-2", "bytes=", "bytes=-", "bytes=9-2", "bytes=a-b", "0-1"]
)
async def test_what_is_no_single_range_is_ignored(tmp_path: Path, asked: str) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT)
        got = await mirror.ask(FILE, Range=asked)
        assert (got.status, got.body) == (200, CONTENT)


@given(st.text(max_size=30) | st.from_regex(r"bytes=\d{0,25}-\d{0,25}"), st.integers(0, 2**63))
def test_a_range_lies_in_the_file_or_is_none(header: str, size: int) -> None:
    found = None
    with contextlib.suppress(Answer):
        found = parse_range(header, size)
    if found is not None:
        assert 0 <= found[0] < found[1] <= size


@given(st.data(), st.integers(1, 300))
def test_a_good_range_means_what_a_slice_means(data: st.DataObject, size: int) -> None:
    start = data.draw(st.integers(0, size - 1))
    last = data.draw(st.integers(start, 2 * size))
    whole = list(range(size))
    for header, wanted in (
        (f"bytes={start}-{last}", whole[start : last + 1]),
        (f"bytes={start}-", whole[start:]),
        (f"bytes=-{start + 1}", whole[-start - 1 :]),
    ):
        found = parse_range(header, size)
        assert found is not None
        assert whole[slice(*found)] == wanted


async def test_a_fetch_that_was_cut_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT)
        have = b""
        for part in (1, 70_000, 400_000):
            client = await mirror.client()
            headers = {"Authorization": f"Bearer {TOKEN}"}
            if have:
                headers |= {"Range": f"bytes={len(have)}-", "If-Range": ETAG}
            await client.send(FILE, headers)
            assert (await client.head()).status == (206 if have else 200)
            have += await client.reader.readexactly(part)
            client.leave()
        got = await mirror.ask(FILE, Range=f"bytes={len(have)}-", If_Range=ETAG)
        assert have + got.body == CONTENT


@pytest.mark.parametrize("known", ['"other"', f"W/{ETAG}", "Tue, 01 Dec 2026 00:00:00 GMT"])
async def test_another_files_beginning_is_not_continued(tmp_path: Path, known: str) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT)
        got = await mirror.ask(FILE, Range="bytes=500-", If_Range=known)
        assert (got.status, got.body) == (200, CONTENT)


async def test_conditions_on_the_etag(tmp_path: Path) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT)
        assert (await mirror.ask(FILE, method="HEAD", If_None_Match=ETAG)).status == 304
        assert (await mirror.ask(FILE, If_None_Match='"x"')).status == 200
        assert (await mirror.ask(FILE, If_Match='"x"')).status == 412
        assert (await mirror.ask(FILE, If_Match=f'"x", {ETAG}', Range="bytes=0-1")).status == 206


async def test_head_says_the_same_and_sends_nothing(tmp_path: Path) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT)
        client = await mirror.client()
        head = await client.ask(FILE, method="HEAD")
        part = await client.ask(FILE, method="HEAD", Range="bytes=10-19")
        got = await client.ask(FILE)
        # a range means something to GET alone
        assert (head.status, part.status) == (200, 200)
        for headers in (head.headers, part.headers, got.headers):
            headers.pop("date")
        assert head.headers == part.headers == got.headers
        assert got.body == CONTENT
        # one connection for all of them, and only one download
        assert mirror.server.status().downloads_total == 1


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("", "A token for this is needed."),
        ("nonsense", "A token for this is needed."),
        (SECRET[:-1], "A token for this is needed."),
        (fetch_token(SECRET, "m", "v2", expires=NOW + 60), "A token for this is needed."),
        (fetch_token(SECRET, "m2", "v1", expires=NOW + 60), "A token for this is needed."),
        (fetch_token("x" * 40, "m", "v1", expires=NOW + 60), "A token for this is needed."),
        (
            fetch_token(SECRET, "m", "v1", expires=NOW),
            "The token has expired: ask llmgw for another.",
        ),
    ],
)
async def test_without_a_token_for_this_version_nothing_is_told(
    tmp_path: Path, token: str, words: str
) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT)
        for target in (FILE, "/v1/files/m/v1/none.gguf"):
            got = await mirror.ask(target, token)
            assert (got.status, got.error) == (401, words)
            assert got.headers["www-authenticate"] == "Bearer"
            assert "etag" not in got.headers


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
async def test_the_secret_and_any_spelling_of_the_scheme_open(tmp_path: Path, scheme: str) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT)
        for token in (TOKEN, SECRET):
            assert (await mirror.ask(FILE, "", Authorization=f"{scheme} {token}")).status == 200
        assert (await mirror.ask(FILE, "", Authorization=f"Basic {TOKEN}")).status == 401
        assert (await mirror.ask(FILE, "", Authorization=TOKEN)).status == 401
        assert (await mirror.ask(f"{FILE}?token={TOKEN}", "")).status == 401


async def test_the_status_is_for_the_cluster_alone(tmp_path: Path) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT)
        await mirror.ask(FILE)
        await mirror.ask(FILE, Range="bytes=0-9")
        for token in ("", TOKEN):
            assert (await mirror.ask("/v1/status", token)).status == 401
        got = await mirror.ask("/v1/status", SECRET)
        found = msgspec.json.decode(got.body)
        assert found["bytes_sent"] == len(CONTENT) + 10
        assert found["downloads_total"] == 2
        (version,) = found["versions"]
        assert version == {
            "model": "m",
            "version": "v1",
            "active": 0,
            "bytes_sent": len(CONTENT) + 10,
        }
        assert SECRET.encode() not in got.body


async def test_health_is_for_everyone_and_the_rest_is_nothing(tmp_path: Path) -> None:
    async with lab(tmp_path) as mirror:
        assert (await mirror.ask("/health", "")).status == 200
        assert (await mirror.ask("/", SECRET)).status == 404
        assert (await mirror.ask("/v1/files/m/v1", SECRET)).status == 404
        got = await mirror.ask(FILE, SECRET, method="DELETE")
        assert (got.status, got.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path",
    [
        "../outside",
        "m/v1/../../../outside",
        "m/v1/..",
        "m/v1/./w.gguf",
        "m/v1//w.gguf",
        "m/v1/w.gguf/",
        "m/v1/%2e%2e/%2e%2e/%2e%2e/outside",
        "m/v1/%2E%2e/w.gguf",
        "m/v1/.%2e/w.gguf",
        "m/v1/..%2f..%2f..%2foutside",
        "m%2fv1/x/w.gguf",
        "m/v1/%252e%252e/%252e%252e/outside",
        "/etc/passwd",
        "m/v1//etc/passwd",
        "m/v1/%2fetc%2fpasswd",
        "m/v1/w.gguf%00",
        "m/v1/w.gguf%00.txt",
        "m/v1/..\\..\\outside",
        "m/v1/..%5c..%5coutside",
        "m/v1/%c0%ae%c0%ae/outside",
        "m/v1/%ff",
        "m/v1/%0d%0aX-Evil:1",
        "m/v1/%e2%80%aefugg.w",
        ".manifests/m/v1.json",
        "m/../.manifests/m/v1.json",
        "m/v1/w.gguf;/../../outside",
        "m/v1/" + "a/" * 400 + "b",
        "m/v1/" + "a" * 5000,
        "../../../../proc/self/environ",
    ],
)
async def test_nothing_but_the_versions_files_can_be_reached(tmp_path: Path, path: str) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT)
        for place in (tmp_path, mirror.shelf.root, mirror.shelf.root / "m"):
            (place / "outside").write_bytes(b"outside the version")
        manifests = mirror.shelf.root / ".manifests" / "m"
        manifests.mkdir(parents=True)
        (manifests / "v1.json").write_bytes(b"outside the version")
        got = await mirror.ask(f"/v1/files/{path}", SECRET)
        assert got.status in (400, 404)
        assert b"outside" not in got.body
        assert "etag" not in got.headers
        assert (await mirror.ask(FILE)).status == 200


async def test_an_absolute_or_broken_target_is_refused(tmp_path: Path) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT)
        for target in (f"http://mirror{FILE}/../../../x", "*", "m/v1/w.gguf", f"{FILE} x", "/\x00"):
            assert (await mirror.ask(target, SECRET)).status in (400, 404)


async def test_links_out_of_the_store_and_within_it_are_not_followed(tmp_path: Path) -> None:
    async with lab(tmp_path) as mirror:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "w.gguf").write_bytes(CONTENT)
        folder = mirror.shelf.root / "m" / "v1"
        folder.mkdir(parents=True)
        (folder / "link.gguf").symlink_to(outside / "w.gguf")
        (folder / "sub").symlink_to(outside)
        (folder / "dir.gguf").mkdir()
        os.mkfifo(folder / "pipe.gguf")
        for name in ("link.gguf", "sub/w.gguf", "dir.gguf", "pipe.gguf", "gone.gguf"):
            mirror.shelf.put(name, CONTENT, write=False)
            got = await mirror.ask(f"/v1/files/m/v1/{name}")
            assert (got.status, got.error) == (404, "The file is not in the store."), name
        (mirror.shelf.root / "m" / "v1").rename(outside / "v1")
        (mirror.shelf.root / "m" / "v1").symlink_to(outside / "v1")
        mirror.shelf.put("w.gguf", CONTENT)
        assert (await mirror.ask(FILE)).status == 404


async def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    async with lab(tmp_path) as mirror:
        mirror.shelf.root.rmdir()
        mirror.shelf.root.symlink_to(tmp_path / "disk")
        mirror.shelf.put("w.gguf", CONTENT)
        assert (await mirror.ask(FILE)).body == CONTENT


@pytest.mark.parametrize("state", [state for state in FileState if state is not FileState.DONE])
async def test_what_is_not_done_is_not_served(tmp_path: Path, state: FileState) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT, state=state)
        got = await mirror.ask(FILE)
        assert (got.status, got.error) == (409, f"The file is not there yet: {state.value}.")


async def test_what_is_not_as_the_manifest_says_is_not_served(tmp_path: Path) -> None:
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT)
        mirror.shelf.path("m", "v1", "w.gguf").write_bytes(CONTENT[:-1])
        assert (await mirror.ask(FILE)).error == "The file is damaged: its size is another one."
        mirror.shelf.put("w.gguf", CONTENT, sha256=None)
        assert (await mirror.ask(FILE)).error == "The file was never checked."
        mirror.shelf.put("w.gguf", CONTENT, bytes_total=None)
        assert (await mirror.ask(FILE)).status == 409
        mirror.shelf.path("m", "v1", "unlisted").write_bytes(b"x")
        got = await mirror.ask("/v1/files/m/v1/unlisted")
        assert (got.status, got.error) == (404, "The version has no such file.")
        got = await mirror.ask("/v1/files/m/v9/w.gguf", SECRET)
        assert (got.status, got.error) == (404, "The mirror has no such version.")


async def test_a_manifest_that_cannot_be_read_is_said_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(model: str, version: str) -> None:
        raise PermissionError(13, "denied")

    async with lab(tmp_path) as mirror:
        monkeypatch.setattr(mirror.shelf, "version", broken)
        got = await mirror.ask(FILE)
        assert (got.status, got.error) == (500, "The version's manifest cannot be read.")
        assert "mirror.unreadable version=m/v1" in caplog.text


async def test_neither_token_nor_secret_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", CONTENT)
        for token in (TOKEN, SECRET, TOKEN + "x"):
            await mirror.ask(FILE, token)
            await mirror.ask("/v1/files/m/v1/..", token)
    assert TOKEN not in caplog.text
    assert SECRET not in caplog.text


async def test_a_running_download_keeps_the_file_that_it_began(tmp_path: Path) -> None:
    content = CONTENT * 24
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", content)
        client = await mirror.client()
        await client.send(FILE, {"Authorization": f"Bearer {TOKEN}"})
        await client.head()
        await until(lambda: mirror.active == 1)
        path = mirror.shelf.path("m", "v1", "w.gguf")
        other = path.with_suffix(".other")
        other.write_bytes(b"y" * len(content))
        other.replace(path)
        assert await client.reader.readexactly(len(content)) == content


async def test_a_file_that_gets_shorter_ends_the_connection(tmp_path: Path) -> None:
    content = CONTENT * 24
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", content)
        client = await mirror.client()
        await client.send(FILE, {"Authorization": f"Bearer {TOKEN}"})
        await client.head()
        await until(lambda: mirror.active == 1)
        os.truncate(mirror.shelf.path("m", "v1", "w.gguf"), len(content) // 2)
        got = await client.rest()
        assert len(got) <= len(content) // 2
        assert content.startswith(got)
        await until(lambda: mirror.active == 0)


async def _unread(mirror: Lab, content: bytes) -> None:
    """Begin a download of which nothing is read."""
    mirror.shelf.put("w.gguf", content)
    client = await mirror.client()
    await client.send(FILE, {"Authorization": f"Bearer {TOKEN}"})
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await until(lambda: mirror.active == 1)


async def test_who_takes_nothing_is_hung_up_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with lab(tmp_path, stall_timeout_s=0.2) as mirror:
        await _unread(mirror, CONTENT * 24)
        await until(lambda: mirror.active == 0)
        assert "nothing was taken for 0.2 s" in caplog.text
        assert (await mirror.ask("/health")).status == 200


async def test_who_leaves_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    async with lab(tmp_path) as mirror:
        await mirror.ask("/health")
        open_files = len(os.listdir("/proc/self/fd"))
        await _unread(mirror, CONTENT * 24)
        mirror.clients.pop().leave()
        await until(lambda: mirror.active == 0)
        await until(lambda: len(os.listdir("/proc/self/fd")) <= open_files)


async def test_too_many_downloads_are_told_to_come_back(tmp_path: Path) -> None:
    async with lab(tmp_path, max_downloads=1) as mirror:
        await _unread(mirror, CONTENT * 24)
        got = await mirror.ask(FILE)
        assert (got.status, got.headers["retry-after"]) == (503, "10")
        mirror.clients[0].leave()
        await until(lambda: mirror.active == 0)
        assert (await mirror.ask(FILE, Range="bytes=0-1")).status == 206


async def test_a_connection_too_many_is_closed(tmp_path: Path) -> None:
    async with lab(tmp_path, max_connections=1) as mirror:
        first = await mirror.client()
        assert (await first.ask("/health")).status == 200
        second = await mirror.client()
        assert await second.rest() == b""
        assert (await first.ask("/health")).status == 200


async def test_who_says_nothing_is_hung_up_on(tmp_path: Path) -> None:
    async with lab(tmp_path, keepalive_timeout_s=0.2) as mirror:
        client = await mirror.client()
        client.writer.write(b"GET /health HTTP/1.1\r\nHos")
        assert await client.rest() == b""


async def test_draining_lets_the_running_finish_and_cuts_at_its_bound(tmp_path: Path) -> None:
    content = CONTENT * 24
    async with lab(tmp_path) as mirror:
        mirror.shelf.put("w.gguf", content)
        client = await mirror.client()
        await client.send(FILE, {"Authorization": f"Bearer {TOKEN}"})
        await client.head()
        await until(lambda: mirror.active == 1)
        drain = asyncio.create_task(mirror.server.drain(30.0))
        assert await client.reader.readexactly(len(content)) == content
        await drain
        assert await client.rest() == b""
    async with lab(tmp_path / "second") as mirror:
        await _unread(mirror, content)
        await mirror.server.drain(0.1)
        assert mirror.active == 0
