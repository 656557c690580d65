"""The controller's side: finds the mirror's process or starts one, and asks it how it is."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import msgspec

from llmgw_core.errors import InvalidInput, LlmgwError
from llmgw_core.mirror.settings import (
    LOG_NAME,
    MAX_LINE,
    SOCKET_NAME,
    MirrorSettings,
    MirrorStatus,
    ToMirror,
    decode_status,
    encode,
)
from llmgw_core.mirror.tokens import read_secret, secret_id
from llmgw_core.paths import make_private, socket_path
from llmgw_core.plain_text import sanitise

ANSWER_MOST_S = 5.0
START_MOST_S = 15.0
POLL_S = 0.03
_CREDENTIALS = struct.Struct("3i")
RETRY_FIRST_S = 0.5
RETRY_MOST_S = 30.0
ROUNDS_MOST = 3
LOG_MOST = 8 * 1024 * 1024
"""Bytes of log from which on the next start keeps it as the previous log and begins a new one."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where the mirror listens."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """``http://HOST:PORT``, IPv6 in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


class MirrorHandle(Protocol):
    """A mirror process that is found or started."""

    async def ensure(self, settings: MirrorSettings) -> Address:
        """See that one serves with these settings; where."""
        ...

    async def status(self) -> MirrorStatus | None:
        """How it is; None where none runs."""
        ...

    async def stop(self, *, drain_s: float) -> None:
        """Let running downloads finish for so long, then end it."""
        ...


class _Unreadable(Exception):
    """It runs, and speaks another release's language."""


class MirrorLink:
    """Satisfies ``MirrorHandle``. The process outlives it, and is found by the next one.

    Args:
        state_dir: the cluster's state directory.
        clock: seconds that only grow, for the pauses between failing starts.
    """

    def __init__(self, state_dir: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        # the process's working directory is another one
        self._state = state_dir.absolute()
        self._clock = clock
        self._one = asyncio.Lock()
        self._children: list[subprocess.Popen[bytes]] = []
        self._failed: LlmgwError | None = None
        self._retry_at = 0.0
        self._pause_s = RETRY_FIRST_S

    async def ensure(self, settings: MirrorSettings) -> Address:
        """See that one serves with these settings; where.

        One question over a local socket where all is well, so that it may be called each tick. A
        changed rate limit is put in force at once; with other changed settings, or another secret,
        the old process lets its downloads finish while a new one serves. After a failed start the
        next is made only after a pause that grows; until then the same error is raised again.

        Raises:
            LlmgwError: none could be started, with what it said, or it does not answer.
        """
        async with self._one:
            self._reap()
            for _ in range(ROUNDS_MOST):
                secret = await asyncio.to_thread(read_secret, settings.secret_file)
                try:
                    status = await self._ask(ToMirror())
                except _Unreadable:
                    status = None
                    await self._ask_to_leave(settings.drain_timeout_s)
                if status is not None and not status.draining:
                    if await self._agrees(status, settings, secret):
                        self._failed, self._pause_s = None, RETRY_FIRST_S
                        return Address(status.host, status.port)
                    await self._ask_to_leave(settings.drain_timeout_s)
                await self._start(settings)
            raise LlmgwError(
                f"Another controller keeps changing the mirror of {self._state}",
                hint="stop one of the two",
            )

    async def _agrees(self, status: MirrorStatus, settings: MirrorSettings, secret: str) -> bool:
        """Whether what runs is what is wanted; where only its rate limit is not, that is set."""
        wanted = replace(settings, rate_limit=status.settings.rate_limit)
        if status.settings != wanted or status.secret_id != secret_id(secret):
            return False
        if status.settings.rate_limit != settings.rate_limit:
            now = await self._ask(ToMirror(rate_limit=settings.rate_limit or 0.0))
            return now is not None and now.settings == settings
        return True

    async def status(self) -> MirrorStatus | None:
        """How it is; None where none runs.

        Raises:
            LlmgwError: it does not answer, or not in this release's words.
        """
        try:
            return await self._ask(ToMirror())
        except _Unreadable as error:
            raise LlmgwError(f"The mirror is of another release: {error}") from error

    async def stop(self, *, drain_s: float) -> None:
        """Let running downloads finish for so long, then end it; nothing happens where none runs.

        Raises:
            LlmgwError: it is still there some seconds after the bound.
        """
        async with self._one:
            try:
                async with (
                    asyncio.timeout(drain_s + 2 * ANSWER_MOST_S),
                    self._connect() as (reader, writer),
                ):
                    watched = _end_of_peer(writer)
                    try:
                        writer.write(encode(ToMirror(drain=drain_s)) + b"\n")
                        while await reader.read(MAX_LINE):
                            pass
                        await _ended(watched)
                    finally:
                        os.close(watched)
            except TimeoutError:
                raise LlmgwError(
                    f"The mirror of {self._state} does not end",
                    hint=f"see {self._state / LOG_NAME}, and kill its process",
                ) from None
            except OSError:
                pass  # none runs, or it ended under our hands
            for child in self._children:
                await asyncio.to_thread(_wait, child)
            self._reap()

    async def _ask(self, message: ToMirror) -> MirrorStatus | None:
        """Say one thing and hear the answer; None where none runs.

        Raises:
            LlmgwError: it does not answer.
            _Unreadable: it answers in words that are not this release's.
        """
        try:
            async with asyncio.timeout(ANSWER_MOST_S), self._connect() as (reader, writer):
                writer.write(encode(message) + b"\n")
                line = await reader.readuntil(b"\n")
        except TimeoutError as error:
            raise LlmgwError(
                f"The mirror of {self._state} has not answered for {ANSWER_MOST_S:g} s",
                hint=f"see whether its disk hangs, and {self._state / LOG_NAME}",
            ) from error
        except (OSError, asyncio.IncompleteReadError):
            return None  # nothing listens, or it ended under our hands
        except asyncio.LimitOverrunError as error:
            raise _Unreadable("a line without end") from error
        try:
            return decode_status(line)
        except (msgspec.MsgspecError, InvalidInput, UnicodeDecodeError) as error:
            raise _Unreadable(str(error)) from error

    async def _ask_to_leave(self, drain_s: float) -> None:
        try:
            await self._ask(ToMirror(drain=drain_s))
        except _Unreadable:
            return  # it has answered, and so has left

    @asynccontextmanager
    async def _connect(
        self,
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_unix_connection(
            socket_path(self._state, SOCKET_NAME), limit=MAX_LINE
        )
        try:
            yield reader, writer
        finally:
            writer.close()

    async def _start(self, settings: MirrorSettings) -> None:
        """Start one and wait until it answers, or until another one does.

        Raises:
            LlmgwError: it ended again, with what it said.
        """
        if self._failed is not None and self._clock() < self._retry_at:
            raise self._failed
        try:
            child = await asyncio.to_thread(spawn, self._state, settings)
            self._children.append(child)
            await self._answers(child)
        except (OSError, LlmgwError) as error:
            self._failed = (
                error
                if isinstance(error, LlmgwError)
                else LlmgwError(f"The mirror of {self._state} cannot be started: {error}")
            )
            self._retry_at = self._clock() + self._pause_s
            self._pause_s = min(self._pause_s * 2, RETRY_MOST_S)
            raise self._failed from error

    async def _answers(self, child: subprocess.Popen[bytes]) -> None:
        for _ in range(int(START_MOST_S / POLL_S)):
            ended = child.poll()
            try:
                if await self._ask(ToMirror()) is not None:
                    return
            except _Unreadable:
                return
            if ended is not None:
                said = await asyncio.to_thread(last_log_line, self._state)
                raise LlmgwError(f"The mirror ended with status {ended}: {said.rstrip('.')}")
            await asyncio.sleep(POLL_S)
        raise LlmgwError(f"The mirror (pid {child.pid}) does not answer")

    def _reap(self) -> None:
        """Forget children that have ended; polling them is what leaves no zombie."""
        self._children = [child for child in self._children if child.poll() is None]


def spawn(state_dir: Path, settings: MirrorSettings) -> subprocess.Popen[bytes]:
    """Start a mirror in a session of its own, logging to the state directory.

    It outlives this process. The caller keeps what is returned and polls it, so that it leaves no
    zombie when it ends first.

    Raises:
        OSError: the directory cannot be written.
    """
    state_dir = make_private(state_dir).absolute()
    path = state_dir / LOG_NAME
    if path.exists() and path.stat().st_size > LOG_MOST:
        path.replace(path.with_suffix(".log.1"))
    # os.open's mode holds for a new log only; what it holds of others' logs is theirs
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "llmgw_core.mirror.process", "--state", str(state_dir)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    finally:
        os.close(log)
    assert child.stdin is not None  # noqa: S101 - asked for above
    try:
        # less than a pipe holds: this does not wait for the child
        child.stdin.write(encode(settings))
        child.stdin.close()
    except BrokenPipeError:
        pass  # it has ended already: its log says why
    return child


def last_log_line(state_dir: Path) -> str:
    """The last thing that a mirror logged, or nothing."""
    try:
        with (state_dir / LOG_NAME).open("rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - 2000, 0))
            lines = log.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return sanitise(lines[-1], most=300) if lines else ""


def _end_of_peer(writer: asyncio.StreamWriter) -> int:
    """A descriptor that can be read once the process at the other end has ended."""
    sock = writer.get_extra_info("socket")
    raw: bytes = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return os.pidfd_open(_CREDENTIALS.unpack(raw)[0])


async def _ended(watched: int) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(watched, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(watched)


def _wait(child: subprocess.Popen[bytes]) -> None:
    try:
        child.wait(ANSWER_MOST_S)
    except subprocess.TimeoutExpired:
        return  # an older one that still drains; it is reaped later
