"""The control socket: HTTP and JSON over a Unix socket that only its owner may use."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
from aiohttp import web

from llmgw_core.api.service import Service
from llmgw_core.api.views import Command, ErrorBody
from llmgw_core.errors import InvalidInput, LlmgwError

log = logging.getLogger(__name__)

SOCKET_NAME = "control.sock"
BODY_MOST = 4 * 1024 * 1024
HEARTBEAT_S = 15.0


class ControlServer:
    """Serves an engine on a Unix socket from ``start`` to ``aclose``."""

    def __init__(self, service: Service, path: Path) -> None:
        self._service = service
        self._path = path
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. A socket left by a controller that died is replaced: the state lock is ours."""
        app = web.Application(middlewares=[_errors], client_max_size=BODY_MOST)
        app.add_routes(
            [
                web.get("/v1/snapshot", self._snapshot),
                web.get("/v1/snapshots", self._snapshots),
                web.get("/v1/events", self._events),
                web.get("/v1/logs", self._logs),
                web.post("/v1/commands/{name}", self._command),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        old_umask = os.umask(0o177)
        try:
            await web.UnixSite(self._runner, str(self._path)).start()
        finally:
            os.umask(old_umask)

    async def aclose(self) -> None:
        """Stop listening, and remove the socket."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    async def _snapshot(self, request: web.Request) -> web.StreamResponse:
        snapshot = await self._service.snapshot()
        return _json(msgspec.json.encode(snapshot))

    async def _snapshots(self, request: web.Request) -> web.StreamResponse:
        return await _lines(request, self._service.snapshots())

    async def _events(self, request: web.Request) -> web.StreamResponse:
        after = _whole(request, "after", 0)
        follow = request.query.get("follow", "1") != "0"
        return await _lines(request, self._service.events(after=after, follow=follow))

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        source = self._service.logs(
            request.query.get("replica", ""),
            lines=_whole(request, "lines", 200),
            follow=request.query.get("follow", "1") != "0",
            previous=request.query.get("previous", "0") == "1",
        )
        return await _lines(request, source)

    async def _command(self, request: web.Request) -> web.StreamResponse:
        try:
            body = json.loads(await request.read() or b"{}")
            args, actor = dict(body.get("args") or {}), str(body.get("actor") or "somebody")
        except (ValueError, TypeError, AttributeError):
            raise InvalidInput("the body must be a JSON object with args and actor") from None
        command = Command(request.match_info["name"], args, actor)
        # A client that leaves must not cancel half a change.
        result = await asyncio.shield(self._service.command(command))
        return _json(msgspec.json.encode(result))


def _whole(request: web.Request, key: str, default: int) -> int:
    value = request.query.get(key, str(default))
    if not value.isdigit():
        raise InvalidInput(f"{key} must be a whole number, not {value!r}")
    return int(value)


def _json(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


async def _lines(request: web.Request, source: AsyncIterator[msgspec.Struct]) -> web.StreamResponse:
    """One JSON document a line, as they come; the first decides whether it is an error.

    An empty line now and then tells the client that all is well, and us when it has gone.
    """
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    pending: asyncio.Future[msgspec.Struct] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(source))
            done, _ = await asyncio.wait({pending}, timeout=HEARTBEAT_S)
            if done:
                try:
                    line = msgspec.json.encode(pending.result()) + b"\n"
                except StopAsyncIteration:
                    break
                finally:
                    pending = None
            else:
                line = b"\n"
            if not response.prepared:
                await response.prepare(request)
            await response.write(line)
    except ConnectionResetError:
        return response
    finally:
        if pending is not None:
            pending.cancel()
    if not response.prepared:
        await response.prepare(request)
    await response.write_eof()
    return response


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_STATUS = {"invalid": 400, "not_found": 404, "refused": 409, "node_refused": 409}


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn our errors into their JSON; a bug is logged and told without a traceback."""
    try:
        return await handler(request)
    except LlmgwError as error:
        body = msgspec.json.encode(ErrorBody(error.code, str(error)))
        return _json(body, _STATUS.get(error.code, 500))
    except web.HTTPException:
        raise
    except Exception as error:
        log.exception("socket.request_broke path=%s", request.path)
        text = f"internal error {type(error).__name__}; see the controller's log"
        return _json(msgspec.json.encode(ErrorBody("failed", text)), 500)
