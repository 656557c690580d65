"""One command of the local SSH server: a process in a session of its own, on three pipes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import cast

import asyncssh

log = logging.getLogger(__name__)

TERM_GRACE_S = 2.0
LINGER_S = 1.0
"""How long output may still come after a command has ended, counted from its last byte."""
STDIN_QUEUE = 1 << 20
"""Bytes that wait for the command to read them; then the client waits."""


class CommandSession(asyncssh.SSHServerSession[bytes]):
    """Runs what the client asks for. ``spawn`` owns the task that looks after the process."""

    def __init__(
        self,
        home: Path,
        env: Mapping[str, str],
        spawn: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._home = home
        self._env = env
        self._spawn = spawn
        self._command = ""
        self._chan: asyncssh.SSHServerChannel[bytes] | None = None
        self._closed = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._stdin = _Stdin(self)
        self._outputs: list[_Output] = []

    # --- callbacks of the library

    def connection_made(self, chan: asyncssh.SSHServerChannel[bytes]) -> None:
        """The channel is open."""
        self._chan = chan

    def exec_requested(self, command: str) -> bool:
        """Every command is welcome."""
        self._command = command
        return True

    def session_started(self) -> None:
        """The client waits for output."""
        self._spawn(self._run())

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """For the command's stdin."""
        self._stdin.add(data)

    def eof_received(self) -> bool:
        """No more for stdin; output goes on."""
        self._stdin.add(None)
        return True

    def signal_received(self, signal: str) -> None:
        """Pass a signal on to the command's process group."""
        self._signal(signal)

    def pause_writing(self) -> None:
        """The client does not read on: let the command wait."""
        for output in self._outputs:
            output.pause()

    def resume_writing(self) -> None:
        """The client reads again."""
        for output in self._outputs:
            output.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """The channel is closed."""
        self._closed.set()

    # --- pipes

    def hold(self, full: bool) -> None:
        """Let the client wait while stdin is full."""
        if self._chan is not None and not self._closed.is_set():
            if full:
                self._chan.pause_reading()
            else:
                self._chan.resume_reading()

    def write(self, data: bytes, datatype: int | None) -> None:
        """Output of the command."""
        if self._chan is not None and not self._closed.is_set():
            try:
                self._chan.write(data, datatype)
            except OSError as error:
                log.debug("output for a channel that closes: %s", error)

    # --- the process

    async def _run(self) -> None:
        try:
            await self._start()
        except OSError as error:
            log.warning("a local command cannot be started: %s", error)
            self.write(f"{error}\n".encode(), asyncssh.EXTENDED_DATA_STDERR)
            self._exit(127)
            return
        try:
            status = await self._until_ended()
        finally:
            self._stdin.close()
            for output in self._outputs:
                output.close()
        self._exit(status)

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        pipes = [os.pipe() for _ in range(3)]
        (stdin, feed), (out, stdout), (err, stderr) = pipes
        child, ours = (stdin, stdout, stderr), (feed, out, err)
        try:
            self._process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                self._command,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=self._home,
                env=dict(self._env),
                start_new_session=True,
            )
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            for fd in child:
                os.close(fd)
        self._stdin.open(feed)
        for fd, datatype in ((out, None), (err, asyncssh.EXTENDED_DATA_STDERR)):
            output = _Output(self, datatype)
            self._outputs.append(output)
            await loop.connect_read_pipe(lambda o=output: o, os.fdopen(fd, "rb", 0))  # type: ignore[misc]

    async def _until_ended(self) -> int:
        """The exit status; a closed channel ends the command."""
        process = cast(asyncio.subprocess.Process, self._process)
        async with asyncio.TaskGroup() as group:
            ended = group.create_task(process.wait())
            closed = group.create_task(self._closed.wait())
            try:
                await asyncio.wait((ended, closed), return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    await self._end(ended)
                else:
                    await self._drain()
            except asyncio.CancelledError:
                self._signal("KILL")
                raise
            finally:
                closed.cancel()
        return ended.result()

    async def _end(self, ended: asyncio.Task[int]) -> None:
        self._signal("TERM")
        await asyncio.wait((ended,), timeout=TERM_GRACE_S)
        # what is left of the group, the leader among it or not; at once, since a group's number
        # is only given out anew when its last member is gone
        self._signal("KILL", even_after_end=True)

    async def _drain(self) -> None:
        """Let the last output arrive; a background child that holds the pipes is not waited for."""
        while not self._closed.is_set() and any(not o.ended.is_set() for o in self._outputs):
            before = sum(o.received for o in self._outputs)
            for output in self._outputs:
                try:
                    async with asyncio.timeout(LINGER_S):
                        await output.ended.wait()
                except TimeoutError:
                    log.debug("output after the end of a command")
            paused = any(o.paused for o in self._outputs)
            if not paused and sum(o.received for o in self._outputs) == before:
                return

    def _signal(self, name: str, *, even_after_end: bool = False) -> None:
        process = self._process
        number = signal.Signals.__members__.get(f"SIG{name}")
        if process is None or number is None:
            return
        if process.returncode is not None and not even_after_end:
            return
        try:
            # its own session, so its group: what left it by setsid is an engine and stays
            os.killpg(process.pid, number)
        except ProcessLookupError:
            log.debug("a command ended before its signal")

    def _exit(self, status: int) -> None:
        if self._chan is None or self._closed.is_set():
            return
        if status >= 0:
            self._chan.exit(status)
        else:
            self._chan.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))


class _Stdin:
    """Writes to the command as fast as it reads.

    The event loop's own transport for pipes stumbles where the reader leaves while it closes.
    """

    def __init__(self, session: CommandSession) -> None:
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._fd: int | None = None
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._ending = False
        self._gone = False
        self._full = False

    def open(self, fd: int) -> None:
        """Write to this descriptor from now on; it is closed at the end."""
        os.set_blocking(fd, False)
        self._fd = fd
        self._flush()

    def add(self, data: bytes | None) -> None:
        """Something for stdin; None is its end."""
        if self._gone:
            return
        if data is None:
            self._ending = True
        else:
            self._queue.append(data)
            self._queued += len(data)
        if self._queued > STDIN_QUEUE and not self._full:
            self._full = True
            self._session.hold(True)
        if self._fd is not None:
            self._flush()

    def _flush(self) -> None:
        fd = self._fd
        if fd is None:
            return
        try:
            while self._queue:
                written = os.write(fd, self._queue[0])
                self._queued -= written
                if written < len(self._queue[0]):
                    self._queue[0] = self._queue[0][written:]
                else:
                    self._queue.popleft()
        except BlockingIOError:
            self._loop.add_writer(fd, self._flush)
        except OSError:
            # the command reads no more; whatever still comes must not block the channel
            self.close()
        else:
            self._loop.remove_writer(fd)
            if self._ending:
                self.close()
        if self._full and self._queued < STDIN_QUEUE // 2:
            self._full = False
            self._session.hold(False)

    def close(self) -> None:
        """Nothing more goes in."""
        fd, self._fd = self._fd, None
        self._gone = True
        self._queue.clear()
        self._queued = 0
        if fd is not None:
            self._loop.remove_writer(fd)
            os.close(fd)


class _Output(asyncio.Protocol):
    """Reads stdout or stderr as fast as the client takes it."""

    def __init__(self, session: CommandSession, datatype: int | None) -> None:
        self._session = session
        self._datatype = datatype
        self._transport: asyncio.ReadTransport | None = None
        self.received = 0
        self.paused = False
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.ReadTransport, transport)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self._session.write(data, self._datatype)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.ended.set()

    def pause(self) -> None:
        """Read no more for now."""
        if self._transport is not None and not self.paused:
            self.paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        if self._transport is not None and self.paused:
            self.paused = False
            self._transport.resume_reading()

    def close(self) -> None:
        """Read no more at all."""
        if self._transport is not None:
            self._transport.close()
