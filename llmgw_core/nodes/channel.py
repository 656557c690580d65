"""One command on a node as a channel session: callbacks only, so that output costs little.

``Channel`` knows the marker, the bounds, and how a command ended. ``ssh_exec`` decides what that
means.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import deque
from collections.abc import Callable

import asyncssh

log = logging.getLogger(__name__)

OUTPUT_LIMIT = 16 << 20
ERROR_LIMIT = 64 << 10
NOISE_LIMIT = 256 << 10
LINE_LIMIT = 1 << 20
"""Longer lines of a stream are cut off."""
QUEUE_LIMIT = 256 << 10
"""Unread bytes of a stream after which the node is told to wait."""
WRITE_STEP = 64 << 10
LINGER_S = 2.0
"""Silence after the exit status after which a channel held by some background child is closed."""


class Channel(asyncssh.SSHClientSession[bytes]):
    """Receives what a command says; output counts from the line that ``marker`` begins on.

    The rest of that line is the stat line of the remote shell, where the node has ``/proc``.
    """

    def __init__(self, marker: bytes) -> None:
        self._marker = marker + b" "
        self._chan: asyncssh.SSHClientChannel[bytes] | None = None
        self._noise = bytearray()
        self._received = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self.begun = False
        self.process: tuple[int, int] | None = None
        """Pid and start time of the remote shell."""
        self.out = bytearray()
        self.err = bytearray()
        self.too_much = False
        self.exit_status: int | None = None
        self.started = asyncio.Event()
        """The marker came, or it never will."""
        self.ended = asyncio.Event()
        """The exit status came, or it never will."""
        self.closed = asyncio.Event()

    # --- callbacks of the library

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        """The channel is being opened."""
        self._chan = chan

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Output came."""
        self._received += len(data)
        if datatype == asyncssh.EXTENDED_DATA_STDERR:
            self.err += data
            del self.err[:-ERROR_LIMIT]
        elif self.begun:
            self.take(data)
        else:
            self._look_for_marker(data)

    def _look_for_marker(self, data: bytes) -> None:
        self._noise += data
        at = self._noise.find(self._marker)
        end = self._noise.find(b"\n", at) if at >= 0 else -1
        if end >= 0:
            self.process = _identity(bytes(self._noise[at + len(self._marker) : end]))
            rest = bytes(self._noise[end + 1 :])
            self.begun = True
            self.started.set()
            if rest:
                self.take(rest)
        elif len(self._noise) > NOISE_LIMIT:
            self._overflow()

    def take(self, data: bytes) -> None:
        """Output after the marker."""
        self.out += data
        if len(self.out) > OUTPUT_LIMIT:
            self._overflow()

    def _overflow(self) -> None:
        self.too_much = True
        self.started.set()
        self.ended.set()
        if self._chan is not None:
            self._chan.pause_reading()

    def exit_status_received(self, status: int) -> None:
        """The command ended by itself."""
        self.exit_status = status
        self.ended.set()

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        """The command was killed; given on as a shell says it."""
        self.exit_status = 128 + _number(signal)
        self.ended.set()

    def pause_writing(self) -> None:
        """The node does not read on."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The node reads again."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The channel is closed, in whatever way."""
        for event in (self._writable, self.started, self.ended, self.closed):
            event.set()

    # --- for ssh_exec

    @property
    def first_words(self) -> str:
        """The first line of what came instead of a marker."""
        text = (bytes(self._noise) or bytes(self.err)).decode("utf-8", errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[0][:200] if lines else ""

    async def feed(self, text: bytes) -> None:
        """Write a script to the command's stdin, and its end."""
        if await self.write(text):
            await self.write_end()

    async def write(self, data: bytes) -> bool:
        """Write to the command's stdin; False where it reads no more."""
        if self._chan is None:
            return False
        try:
            for start in range(0, len(data), WRITE_STEP):
                await self._writable.wait()
                self._chan.write(data[start : start + WRITE_STEP])
            await self._writable.wait()
        except OSError as error:
            # the command ended without reading on; how it ended tells the rest
            log.debug("a command did not read what it was given: %s", error)
            return False
        return True

    async def write_end(self) -> None:
        """Nothing more comes on the command's stdin."""
        self._try(lambda chan: chan.write_eof())

    async def finish(self) -> None:
        """Wait until the command has ended and its output is here."""
        await self.ended.wait()
        while not self.closed.is_set():
            before = self._received
            try:
                async with asyncio.timeout(LINGER_S):
                    await self.closed.wait()
            except TimeoutError:
                if self._received == before:
                    return

    @property
    def is_running(self) -> bool:
        """Whether a command was started, and nothing says that it has ended."""
        return self._chan is not None and self.exit_status is None and not self.closed.is_set()

    def kill(self) -> None:
        """Ask the node's SSH server to kill the command; not every server does so."""
        self._try(lambda chan: chan.kill())

    def close(self) -> None:
        """Close the channel."""
        self._try(lambda chan: chan.close())

    def _try(self, act: Callable[[asyncssh.SSHClientChannel[bytes]], None]) -> None:
        if self._chan is None or self.closed.is_set():
            return
        try:
            act(self._chan)
        except OSError as error:
            log.debug("a channel was closed already: %s", error)

    async def closes_within(self, seconds: float) -> bool:
        """Wait for the other side to close the channel."""
        try:
            async with asyncio.timeout(seconds):
                await self.closed.wait()
        except TimeoutError:
            return False
        return True


class LineChannel(Channel):
    """The same, with output as lines; the node waits while nobody reads them."""

    def __init__(self, marker: bytes) -> None:
        super().__init__(marker)
        self._lines: deque[bytes] = deque()
        self._queued = 0
        self._cut = False
        self._more = asyncio.Event()
        self._paused = False

    def take(self, data: bytes) -> None:
        """Split into lines."""
        *whole, rest = data.split(b"\n")
        for piece in whole:
            line = bytes(self.out) + piece
            self.out.clear()
            if not self._cut:
                self._put(line[:LINE_LIMIT])
            self._cut = False
        if not self._cut:
            self.out += rest
            if len(self.out) > LINE_LIMIT:
                self._put(bytes(self.out[:LINE_LIMIT]))
                self.out.clear()
                self._cut = True
        if self._queued > QUEUE_LIMIT and not self._paused and self._chan is not None:
            self._paused = True
            self._chan.pause_reading()

    def _put(self, line: bytes) -> None:
        self._lines.append(line)
        self._queued += len(line) + 1
        self._more.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """The channel is closed: what is queued can still be read."""
        super().connection_lost(exc)
        self._more.set()

    async def next_line(self) -> bytes | None:
        """The next line, or None at the end."""
        while not self._lines:
            if self.closed.is_set() or self.too_much:
                rest, self.out = bytes(self.out), bytearray()
                return rest or None
            self._more.clear()
            await self._more.wait()
        line = self._lines.popleft()
        self._queued -= len(line) + 1
        if self._paused and self._queued < QUEUE_LIMIT // 4 and self._chan is not None:
            self._paused = False
            if not self.closed.is_set():
                self._chan.resume_reading()
        return line


def _identity(line: bytes) -> tuple[int, int] | None:
    """Pid and start time (fields 1 and 22) of a line of /proc/PID/stat."""
    pid, rest = line.split(b" ", 1)[0], line.rpartition(b")")[2].split()
    if pid.isdigit() and len(rest) > 19 and rest[19].isdigit():
        return int(pid), int(rest[19])
    return None


def _number(name: str) -> int:
    found = signal.Signals.__members__.get(f"SIG{name}")
    return found.value if found is not None else 127
