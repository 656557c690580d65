"""The mirror over HTTP: files of checked versions, whole or in part, to those who hold a token.

``GET|HEAD /v1/files/MODEL/VERSION/FILE…``  the file; ``Authorization: Bearer TOKEN``
``GET|HEAD /v1/status``                     a ``MirrorStatus``; the cluster's secret alone opens it
``GET|HEAD /health``                        200 while it serves, 503 while it drains

A file has the strong ETag ``"SHA256"``, so that a fetch that was cut resumes (``Range`` with
``If-Range``) only what is still the same. Semantics are RFC 9110's, the digest header RFC 9530's.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import os
import re
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Protocol

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from llmgw_core.errors import InvalidInput, LlmgwError, NotFound, Refused
from llmgw_core.mirror.limit import Outlet, SharedLimit
from llmgw_core.mirror.requested import Answer, lists, open_below, parse_range, split_path
from llmgw_core.mirror.settings import MirrorSettings, MirrorStatus, VersionTraffic, encode
from llmgw_core.mirror.tokens import Verdict, judge, secret_id
from llmgw_core.mirror.versions import FileState, MirrorVersion

log = logging.getLogger(__name__)

FILES = "/v1/files/"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RETRY_S = 10


class Shelf(Protocol):
    """The store, as far as the server needs it. Its methods are called off the loop."""

    @property
    def root(self) -> Path:
        """The folder that holds everything; may be reached over a link itself."""
        ...

    def path(self, model: str, version: str, file: str) -> Path:
        """Where a file of a version lies, below the root."""
        ...

    def version(self, model: str, version: str) -> MirrorVersion | None:
        """What the manifest says; None where there is none."""
        ...


@dataclass(slots=True)
class _Traffic:
    active: int = 0
    bytes_sent: int = 0


@dataclass(frozen=True, slots=True)
class _Found:
    """An open file that may be served."""

    file: io.FileIO
    size: int
    sha256: str


class MirrorServer:
    """Answers requests; ``make_protocol`` is what a listening socket needs.

    Args:
        shelf: the store.
        settings: how to serve it.
        secret: the cluster's.
        now: Unix time, for tokens.
    """

    def __init__(
        self,
        shelf: Shelf,
        settings: MirrorSettings,
        secret: str,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._shelf = shelf
        self._settings = settings
        self._secret = secret
        self._now = now
        self._started = now()
        self._traffic: dict[tuple[str, str], _Traffic] = {}
        self._downloads_total = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        # one thread: several would take turns for the interpreter's lock at each system call, which
        # on a busy machine costs a crowd of nodes that begin together more than it gains
        self._finder = ThreadPoolExecutor(1, "mirror find")
        self.limit = SharedLimit(settings.rate_limit, asyncio.get_running_loop().time)
        self.draining = False
        self.address = (settings.host, settings.port)
        """As listened on; set by whoever listens."""
        self._server = web.Server(
            self._handle,
            handler_cancellation=True,
            keepalive_timeout=settings.keepalive_timeout_s,
            access_log=None,
        )

    def make_protocol(self) -> asyncio.BaseProtocol:
        """For a new connection."""
        if len(self._server.connections) >= self._settings.max_connections:
            log.warning("mirror.full connections=%d", self._settings.max_connections)
            return _HangUp()
        return self._server()

    def status(self) -> MirrorStatus:
        """How it is now."""
        host, port = self.address
        versions = [
            VersionTraffic(model, version, traffic.active, traffic.bytes_sent)
            for (model, version), traffic in sorted(self._traffic.items())
        ]
        return MirrorStatus(
            pid=os.getpid(),
            host=host,
            port=port,
            started=self._started,
            settings=self._settings,
            secret_id=secret_id(self._secret),
            draining=self.draining,
            connections=len(self._server.connections),
            active=self._active,
            bytes_sent=sum(version.bytes_sent for version in versions),
            downloads_total=self._downloads_total,
            versions=tuple(versions),
        )

    def set_settings(self, settings: MirrorSettings) -> None:
        """Put another rate limit in force; the rest is what it was started with."""
        self._settings = settings
        self.limit.set_rate(settings.rate_limit)

    async def drain(self, timeout_s: float) -> None:
        """Let running downloads finish for so long, then end every connection."""
        self.draining = True
        self._server.pre_shutdown()
        try:
            async with asyncio.timeout(timeout_s):
                await self._quiet.wait()
        except TimeoutError:
            log.warning("mirror.cut downloads=%d", self._active)
        await self._server.shutdown(1.0 if self._quiet.is_set() else 0.05)
        self._finder.shutdown(wait=False)

    @property
    def _active(self) -> int:
        return sum(traffic.active for traffic in self._traffic.values())

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._route(request)
        except Answer as answer:
            return _json(answer.status, {"error": str(answer)}, answer.headers)

    async def _route(self, request: web.BaseRequest) -> web.StreamResponse:
        # as sent: nothing has been decoded or made shorter
        path = request.raw_path.partition("?")[0]
        if request.method not in ("GET", "HEAD"):
            raise Answer(
                HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD.", {"Allow": "GET, HEAD"}
            )
        if path.startswith(FILES):
            return await self._file(request, *split_path(path.removeprefix(FILES)))
        if path == "/health":
            code = HTTPStatus.SERVICE_UNAVAILABLE if self.draining else HTTPStatus.OK
            return _json(code, {"status": "draining" if self.draining else "ok"})
        if path == "/v1/status":
            self._admit(request, None)
            return web.Response(body=encode(self.status()), content_type="application/json")
        raise Answer(HTTPStatus.NOT_FOUND, "There is nothing here.")

    def _admit(self, request: web.BaseRequest, version: tuple[str, str] | None) -> None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        given = token.strip() if scheme.lower() == "bearer" else ""
        verdict = judge(self._secret, given, version=version, now=self._now())
        if verdict in (Verdict.ALL, Verdict.VERSION):
            return
        message = "A token for this is needed."
        if verdict is Verdict.EXPIRED:
            message = "The token has expired: ask llmgw for another."
        raise Answer(HTTPStatus.UNAUTHORIZED, message, {"WWW-Authenticate": "Bearer"})

    async def _file(
        self, request: web.BaseRequest, model: str, version: str, file: str
    ) -> web.StreamResponse:
        self._admit(request, (model, version))
        if self._active >= self._settings.max_downloads:
            raise Answer(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{self._active} downloads run already.",
                {"Retry-After": str(_RETRY_S)},
            )
        found = await asyncio.get_running_loop().run_in_executor(
            self._finder, self._find, model, version, file
        )
        with closing(found.file):
            headers = _file_headers(found)
            etag = headers["ETag"]
            if (wanted := request.headers.get("If-Match")) and not lists(wanted, etag):
                raise Answer(HTTPStatus.PRECONDITION_FAILED, "The file is another one now.")
            if (known := request.headers.get("If-None-Match")) and lists(known, etag):
                return web.Response(status=HTTPStatus.NOT_MODIFIED, headers={"ETag": etag})
            start, stop, code = 0, found.size, HTTPStatus.OK
            wanted_range = request.headers.get("Range") if request.method == "GET" else None
            # what resumes another file's beginning gets the whole of this one
            if wanted_range and request.headers.get("If-Range", etag).strip() == etag:
                part = parse_range(wanted_range, found.size)
                if part is not None:
                    (start, stop), code = part, HTTPStatus.PARTIAL_CONTENT
                    headers["Content-Range"] = f"bytes {start}-{stop - 1}/{found.size}"
            response = web.StreamResponse(status=code, headers=headers)
            response.content_type = "application/octet-stream"
            response.content_length = stop - start
            if self.draining:
                response.force_close()
            writer = await response.prepare(request)
            if request.method == "HEAD" or stop == start or writer is None:
                return response
            traffic = self._begin(model, version)
            try:
                await self._send(request, writer, traffic, found, start, stop)
            finally:
                self._end(traffic)
            return response

    def _begin(self, model: str, version: str) -> _Traffic:
        traffic = self._traffic.setdefault((model, version), _Traffic())
        traffic.active += 1
        self._downloads_total += 1
        self._quiet.clear()
        return traffic

    def _end(self, traffic: _Traffic) -> None:
        traffic.active -= 1
        if self._active == 0:
            self._quiet.set()

    async def _send(
        self,
        request: web.BaseRequest,
        writer: AbstractStreamWriter,
        traffic: _Traffic,
        found: _Found,
        start: int,
        stop: int,
    ) -> None:
        def sent(size: int) -> None:
            traffic.bytes_sent += size

        transport = request.transport
        if transport is None:
            return  # the client has gone
        sock: socket.socket = transport.get_extra_info("socket")
        fd = found.file.fileno()
        os.posix_fadvise(fd, start, stop - start, os.POSIX_FADV_SEQUENTIAL)
        stall_s = self._settings.stall_timeout_s
        try:
            # the head must be out before anything goes past the transport
            transport.set_write_buffer_limits(high=0)
            async with asyncio.timeout(stall_s):
                await writer.drain()
            with closing(Outlet(sock, stall_s=stall_s)) as outlet:
                await outlet.send(fd, start, stop - start, limit=self.limit, sent=sent)
        except OSError as error:
            # the status is long out: a body that ends early is the only way to say it
            log.warning("mirror.broke path=%s error=%s", request.raw_path, error)
            transport.abort()

    def _find(self, model: str, version: str, name: str) -> _Found:
        """Open a file that the manifest lists as done, and that is as long as it says.

        Raises:
            Answer: it may not be served.
        """
        try:
            known = self._shelf.version(model, version)
            path = self._shelf.path(model, version, name)
        except InvalidInput as error:
            raise Answer(HTTPStatus.BAD_REQUEST, f"{error}.") from error
        except (NotFound, Refused) as error:
            log.warning("mirror.refused version=%s/%s error=%s", model, version, error)
            raise Answer(HTTPStatus.NOT_FOUND, "The file is not in the store.") from error
        except (LlmgwError, OSError) as error:
            log.warning("mirror.unreadable version=%s/%s error=%s", model, version, error)
            raise Answer(
                HTTPStatus.INTERNAL_SERVER_ERROR, "The version's manifest cannot be read."
            ) from error
        if known is None:
            raise Answer(HTTPStatus.NOT_FOUND, "The mirror has no such version.")
        file = next((file for file in known.files if file.file == name), None)
        if file is None:
            raise Answer(HTTPStatus.NOT_FOUND, "The version has no such file.")
        if file.state is not FileState.DONE:
            raise Answer(HTTPStatus.CONFLICT, f"The file is not there yet: {file.state}.")
        if file.sha256 is None or not _SHA256.fullmatch(file.sha256):
            raise Answer(HTTPStatus.CONFLICT, "The file was never checked.")
        opened = open_below(self._shelf.root, path)
        size = os.fstat(opened.fileno()).st_size
        if size != file.bytes_total:
            opened.close()
            log.warning("mirror.damaged path=%s bytes=%d of=%s", path, size, file.bytes_total)
            raise Answer(HTTPStatus.CONFLICT, "The file is damaged: its size is another one.")
        return _Found(opened, size, file.sha256)


class _HangUp(asyncio.Protocol):
    """For a connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _file_headers(found: _Found) -> dict[str, str]:
    digest = base64.b64encode(bytes.fromhex(found.sha256)).decode()
    return {
        "ETag": f'"{found.sha256}"',
        "X-Checksum-SHA256": found.sha256,
        "Repr-Digest": f"sha-256=:{digest}:",
        "Accept-Ranges": "bytes",
    }


def _json(
    code: HTTPStatus, body: dict[str, str], headers: dict[str, str] | None = None
) -> web.Response:
    return web.Response(
        status=code,
        body=json.dumps(body).encode() + b"\n",
        content_type="application/json",
        headers=headers,
    )
