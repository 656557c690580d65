"""One pull as a process of its own: a request on stdin, progress on stdout as JSON lines.

The request is ``{"root", "source", "model", "version", "endpoint", "limit"}``, the last in bytes a
second; all but the first two may be missing. Each line is a version (``versions.to_wire``); after a
failure the last one is ``{"error": {"code", "message"}}`` and the exit status is the error's.
SIGTERM, SIGINT and a closed stdout end it, and what has come is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from llmgw_core.errors import InvalidInput, LlmgwError
from llmgw_core.mirror.pull import PullRequest, pull
from llmgw_core.mirror.store import Store
from llmgw_core.mirror.versions import MirrorVersion, to_wire

REQUEST_MOST = 64 * 1024
CANCELLED = 130


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    root: str
    source: str
    model: str | None = None
    version: str | None = None
    endpoint: str | None = None
    limit: float | None = None


class _Cancelled(LlmgwError):
    """It was told to end."""

    exit_code = CANCELLED
    code = "cancelled"


class _NobodyListens(Exception):
    """Whoever started it is gone."""


def main() -> int:
    """Run the pull that stdin asks for; the exit status."""
    # its lines would hold signed addresses
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        request = _read()
        with contextlib.suppress(_NobodyListens):
            asyncio.run(_run(request))
            return 0
    except LlmgwError as error:
        with contextlib.suppress(_NobodyListens):
            _say({"error": {"code": error.code, "message": str(error)}})
        return error.exit_code
    except Exception as error:
        # the process's own end: whoever started it hears of it, and stderr has all of it
        message = f"internal error {type(error).__name__} in the pull"
        with contextlib.suppress(_NobodyListens):
            _say({"error": {"code": LlmgwError.code, "message": message}})
        raise
    # nobody reads stdout: its end must not be flushed into a broken pipe either
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return CANCELLED


def _read() -> _Request:
    text = sys.stdin.buffer.read(REQUEST_MOST + 1)
    try:
        return msgspec.json.decode(text, type=_Request)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the request of a pull cannot be understood: {error}") from error


async def _run(request: _Request) -> MirrorVersion:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  asyncio.run makes one
    asked_to_end = False

    def end() -> None:
        nonlocal asked_to_end
        asked_to_end = True
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, end)
    try:
        return await pull(
            Store(Path(request.root)),
            PullRequest(
                request.source,
                request.model or "",
                request.version or "",
                endpoint=request.endpoint,
                rate=request.limit,
            ),
            lambda version: _say(to_wire(version)),
        )
    except asyncio.CancelledError:
        if not asked_to_end:
            raise
        raise _Cancelled("the pull was cancelled; what has come is kept") from None
    except BaseExceptionGroup as group:
        gone, other = group.split(_NobodyListens)
        if gone is not None and other is None:
            raise _NobodyListens from group
        raise


def _say(line: Mapping[str, object]) -> None:
    try:
        sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
        sys.stdout.buffer.flush()
    except (BrokenPipeError, ValueError) as error:
        raise _NobodyListens from error
