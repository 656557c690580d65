"""A file on a web server, of which parts are read with range requests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

import httpx

from llmgw_core.gguf.errors import SourceError
from llmgw_core.plain_text import sanitise

REDIRECTS_MOST = 5
_RANGE = re.compile(r"bytes ([0-9]{1,19})-([0-9]{1,19})/([0-9]{1,19})")
_NO_RANGE = re.compile(r"bytes \*/([0-9]{1,19})")
_SENT_TO = frozenset(("http", "https"))


class HttpSource:
    """A file behind a URL.

    Every answer must be exactly the part that was asked for: 206 with a ``Content-Range`` that
    says so. A server that ignores ranges is refused before its body is read.

    Args:
        client: used for the connections; what it sends by itself goes to every host.
        url: of the file. Its query and its user are never shown.
        headers: such as ``Authorization``; sent to the URL's own origin only, and never shown.
        timeout_s: that one read may take, redirects included.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        try:
            self._url = httpx.URL(url)
        except httpx.InvalidURL:
            raise SourceError("the address of the file is not a URL") from None
        if self._url.scheme not in _SENT_TO or not self._url.host:
            raise SourceError("the address of the file must begin with http:// or https://")
        self._client = client
        self._headers = dict(headers or {})
        self._timeout_s = timeout_s
        self._final = self._url  # where redirects led the last time
        self._mark: str | None = None
        self.name = sanitise(f"{self._url.host}{self._url.path}", most=300)
        self.size: int | None = None
        self.requests = 0
        self.bytes_read = 0

    async def read(self, offset: int, length: int) -> bytes:
        """See ``ByteSource``."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._read(offset, length)
        except TimeoutError:
            raise self._error(f"no answer within {self._timeout_s:g} s") from None
        except httpx.TimeoutException:
            raise self._error("no answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            # the texts of these name no headers, but may name the URL with its query
            raise self._error(f"the connection failed ({type(error).__name__})") from None

    async def _read(self, offset: int, length: int) -> bytes:
        url = self._final
        for _ in range(REDIRECTS_MOST + 1):
            response = await self._ask(url, offset, length)
            try:
                if response.is_redirect:
                    url = self._target(url, response)
                    continue
                if response.is_client_error and url == self._final != self._url:
                    # a signed address may have run out
                    self._final = url = self._url
                    if response.status_code != httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
                        continue
                self._final = url
                return await self._part(response, offset, length)
            finally:
                await response.aclose()
        raise self._error(f"it leads on more than {REDIRECTS_MOST} times")

    async def _ask(self, url: httpx.URL, offset: int, length: int) -> httpx.Response:
        self.requests += 1
        ours = _origin(url) == _origin(self._url)
        headers = self._headers if ours else {}
        request = self._client.build_request(
            "GET",
            url,
            headers={
                **headers,
                "Range": f"bytes={offset}-{offset + length - 1}",
                "Accept-Encoding": "identity",
            },
        )
        # no `auth`: the URL's own user is put there by httpx, and only for its own host
        return await self._client.send(request, stream=True, follow_redirects=False)

    def _target(self, url: httpx.URL, response: httpx.Response) -> httpx.URL:
        target = url.join(response.headers.get("location", ""))
        if target.scheme not in _SENT_TO or not target.host:
            raise self._error("it leads on to something that is not on the web")
        return target

    async def _part(self, response: httpx.Response, offset: int, length: int) -> bytes:
        status = response.status_code
        said = response.headers.get("content-range", "")
        if status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            beyond = _NO_RANGE.fullmatch(said)
            if beyond is not None and int(beyond[1]) <= offset:
                self._same(int(beyond[1]), response)
                return b""
        if status == httpx.codes.OK:
            raise self._error("the server ignores ranges, and would send the whole file")
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise self._error(f"the server wants a token, or another one ({status})")
        if status != httpx.codes.PARTIAL_CONTENT:
            raise self._error(f"the server answers {status}")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise self._error("the server compresses what should be sent as it is")
        found = _RANGE.fullmatch(said.strip())
        if found is None:
            raise self._error("the server does not say which part it sends")
        first, last, total = (int(number) for number in found.groups())
        if first != offset or last != min(offset + length, total) - 1 or last < first:
            raise self._error(
                f"the server sends bytes {first} to {last} of {total}, and {offset} to "
                f"{offset + length - 1} were asked for"
            )
        self._same(total, response)
        return await self._body(response, last - first + 1)

    def _same(self, total: int, response: httpx.Response) -> None:
        """Whether it is still the file that it was."""
        mark = response.headers.get("etag")
        changed = self._mark is not None and mark is not None and mark != self._mark
        if changed or self.size not in (None, total):
            raise self._error("the file changed while it was being read; try again")
        self.size, self._mark = total, mark or self._mark

    async def _body(self, response: httpx.Response, length: int) -> bytes:
        pieces: list[bytes] = []
        have = 0
        async for piece in response.aiter_raw():
            have += len(piece)
            self.bytes_read += len(piece)
            if have > length:
                raise self._error("the server sends more than it says")
            pieces.append(piece)
        if have < length:
            raise self._error("the server sends less than it says")
        return b"".join(pieces)

    def _error(self, why: str) -> SourceError:
        return SourceError(f"{self.name} cannot be read: {why}")


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    return url.scheme, url.host, port
