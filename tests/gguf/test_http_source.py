"""Headers read over HTTP: what is sent, what is believed, and what is said."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from aiohttp import web

from llmgw_core.gguf.errors import HeaderError, SourceError
from llmgw_core.gguf.http_source import HttpSource
from llmgw_core.gguf.reader import FIRST_BYTES, read_header
from tests.gguf.reading import Bytes
from tests.gguf.web import Asked, Web, serving
from tests.gguf.writer import good, vocabulary

SECRET = "hf_verysecret"
AUTH = {"Authorization": f"Bearer {SECRET}", "X-Token": SECRET}


@pytest.fixture
async def server() -> AsyncIterator[Web]:
    async with serving(bytes(good())) as it:
        yield it


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False) as it:
        yield it


def source(client: httpx.AsyncClient, server: Web, path: str = "/m.gguf") -> HttpSource:
    return HttpSource(client, server.base + path, headers=AUTH)


async def refused(source: HttpSource, length: int = 1000) -> str:
    """The sentence with which a read is refused."""
    with pytest.raises(SourceError) as caught:
        await source.read(0, length)
    said = str(caught.value)
    assert SECRET not in said
    assert caught.value.__cause__ is None
    return said


async def test_a_header_takes_few_requests_and_hardly_more_than_itself(
    server: Web, client: httpx.AsyncClient
) -> None:
    server.data = vocabulary(262_144, merges=100_000, tensors=300)
    from_web = source(client, server)
    header = await read_header(from_web)
    assert header == await read_header(Bytes(server.data))
    assert header.header_bytes is not None
    assert from_web.size == len(server.data)
    assert from_web.requests == len(server.asked) <= 8
    assert from_web.bytes_read <= 1.1 * header.header_bytes
    for asked in server.asked:
        assert asked.headers["Accept-Encoding"] == "identity"
        assert asked.headers["Authorization"] == AUTH["Authorization"]


async def test_a_prefix_is_one_request(server: Web, client: httpx.AsyncClient) -> None:
    server.data = vocabulary(262_144)
    from_web = source(client, server)
    header = await read_header(from_web, whole=False)
    assert header.file_bytes == len(server.data)
    assert not header.complete
    assert [(asked.start, asked.end) for asked in server.asked] == [(0, FIRST_BYTES)]
    assert from_web.bytes_read == FIRST_BYTES


async def test_an_empty_file_is_said_to_be_one(server: Web, client: httpx.AsyncClient) -> None:
    server.data = b""
    with pytest.raises(HeaderError, match="it is empty"):
        await read_header(source(client, server))


async def test_a_page_instead_of_a_file_is_said(server: Web, client: httpx.AsyncClient) -> None:
    server.data = b"<html>please log in</html>"
    with pytest.raises(HeaderError, match="HTML page"):
        await read_header(source(client, server))


async def test_a_server_that_ignores_ranges_is_refused_unread(
    server: Web, client: httpx.AsyncClient
) -> None:
    server.data = bytes(32 << 20)
    server.special["/m.gguf"] = lambda _: web.Response(body=server.data)
    from_web = source(client, server)
    assert "ignores ranges" in await refused(from_web)
    assert from_web.bytes_read == 0


@pytest.mark.parametrize(
    "said",
    [
        "bytes 1-1000/5000",
        "bytes 0-1000/5000",
        "bytes 0-998/5000",
        "bytes 0-999/500",
        "bytes 0-999/*",
        "bytes */5000",
        "bytes 0-999",
        "items 0-999/5000",
        "bytes 999-0/5000",
        "bytes 0-999/99999999999999999999999",
        "",
    ],
)
async def test_a_server_that_lies_about_the_part_is_refused(
    server: Web, client: httpx.AsyncClient, said: str
) -> None:
    server.special["/m.gguf"] = lambda _: web.Response(
        status=206, body=bytes(1000), headers={"Content-Range": said}
    )
    assert "asked for" in (found := await refused(source(client, server))) or "which part" in found


async def test_more_or_less_than_was_said_is_refused(
    server: Web, client: httpx.AsyncClient
) -> None:
    headers = {"Content-Range": "bytes 0-999/5000"}
    for size, words in ((1001, "more"), (999, "less"), (0, "less")):
        server.special["/m.gguf"] = lambda _, size=size: web.Response(  # type: ignore[misc]
            status=206, body=bytes(size), headers=headers
        )
        assert words in await refused(source(client, server))


async def test_compressed_answers_are_refused(server: Web, client: httpx.AsyncClient) -> None:
    def packed(asked: Asked) -> web.Response:
        answer = server.part(asked)
        answer.headers["Content-Encoding"] = "gzip"
        return answer

    server.special["/m.gguf"] = packed
    assert "compresses" in await refused(source(client, server))


@pytest.mark.parametrize(
    ("status", "words"), [(401, "token"), (403, "token"), (404, "404"), (500, "500"), (416, "416")]
)
async def test_errors_of_the_server_are_named(
    server: Web, client: httpx.AsyncClient, status: int, words: str
) -> None:
    server.special["/m.gguf"] = lambda _: web.Response(status=status, text=SECRET)
    assert words in await refused(source(client, server))


async def test_a_file_that_changes_meanwhile_is_refused(
    server: Web, client: httpx.AsyncClient
) -> None:
    server.data = vocabulary(50_000)
    from_web = source(client, server)
    await from_web.read(0, 100)
    server.etag = '"2"'
    assert "changed" in await refused(from_web)
    server.etag = None
    server.data += b"x"
    assert "changed" in await refused(from_web)


async def test_a_server_that_hangs_is_left_in_bounded_time(
    server: Web, client: httpx.AsyncClient
) -> None:
    server.hangs.add("/m.gguf")
    from_web = HttpSource(client, f"{server.base}/m.gguf", headers=AUTH, timeout_s=0.05)
    assert "no answer" in await refused(from_web)
    assert from_web.requests == 1


async def test_redirects_are_followed_once_and_remembered(
    server: Web, client: httpx.AsyncClient
) -> None:
    server.data = vocabulary(50_000)
    server.special["/a"] = lambda _: web.Response(status=302, headers={"Location": "/b?sig=1"})
    from_web = source(client, server, "/a")
    header = await read_header(from_web)
    assert header.vocabulary == 50_000
    assert [asked.path for asked in server.asked].count("/a") == 1
    assert all(asked.headers["X-Token"] == SECRET for asked in server.asked)


async def test_headers_are_not_sent_to_other_hosts(client: httpx.AsyncClient, server: Web) -> None:
    async with serving(server.data) as other:
        # another port is another origin
        to = f"{other.base}/b?sig=1"
        server.special["/a"] = lambda _: web.Response(status=307, headers={"Location": to})
        assert (await read_header(source(client, server, "/a"))).complete
        assert "Authorization" in server.asked[0].headers
        (asked,) = other.asked
        assert not {"Authorization", "X-Token"} & set(asked.headers)


async def test_an_address_that_has_run_out_is_asked_for_again(
    client: httpx.AsyncClient, server: Web
) -> None:
    signed = iter(("/one", "/two"))
    server.special["/a"] = lambda _: web.Response(status=302, headers={"Location": next(signed)})
    from_web = source(client, server, "/a")
    assert await from_web.read(0, 4) == b"GGUF"
    server.special["/one"] = lambda _: web.Response(status=403)
    assert await from_web.read(4, 4) == b"\3\0\0\0"
    assert [asked.path for asked in server.asked] == ["/a", "/one", "/one", "/a", "/two"]


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://x/y", "http://", "//[", ""])
async def test_strange_redirects_are_refused(
    client: httpx.AsyncClient, server: Web, to: str
) -> None:
    server.special["/a"] = lambda _: web.Response(status=302, headers={"Location": to})
    await refused(source(client, server, "/a"))
    assert len(server.asked) < 8


async def test_redirects_in_a_circle_end(client: httpx.AsyncClient, server: Web) -> None:
    server.special["/a"] = lambda _: web.Response(status=302, headers={"Location": "/a"})
    assert "times" in await refused(source(client, server, "/a"))


@pytest.mark.parametrize("url", ["", "m.gguf", "file:///m.gguf", "http://", "\0"])
async def test_addresses_that_are_none_are_refused(client: httpx.AsyncClient, url: str) -> None:
    with pytest.raises(SourceError, match="address"):
        HttpSource(client, url)


async def test_nobody_there_is_said_without_the_secrets_of_the_address(
    client: httpx.AsyncClient,
) -> None:
    async with serving() as gone:
        base = gone.base
    url = base.replace("http://", f"http://me:{SECRET}@") + f"/m.gguf?sig={SECRET}"
    said = await refused(HttpSource(client, url))
    assert "127.0.0.1/m.gguf cannot be read" in said
