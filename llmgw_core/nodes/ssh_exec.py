"""``Exec`` over asyncssh: the one way in which llmgw runs anything on a node.

Whatever the login shell is and prints, the script runs in ``/bin/sh`` and its output begins after a
marker that no other program knows. A link that dies in the middle is an error and never a result.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import asyncssh

from llmgw_core.errors import NodeLost, NodeRefused, RefusedBecause, RemoteFailed
from llmgw_core.nodes.channel import OUTPUT_LIMIT, Channel, LineChannel
from llmgw_core.nodes.exec import ExecResult
from llmgw_core.plain_text import sanitise

log = logging.getLogger(__name__)

SCRIPTS_AT_ONCE = 4
STREAMS_AT_ONCE = 5
"""Of the ten sessions that a server gives to a connection, these two leave some for its delays."""
SLOT_WAIT_S = 60.0
OPEN_TIMEOUT_S = 20.0
NOLOGIN_STATUS = 254
"""Of OpenSSH in place of any command, while /etc/nologin is there."""
PAYLOAD_LIMIT = 4 << 20
RETRY_AFTER_S = (0.05, 0.2, 0.8)

_ARGUMENT = re.compile(r"[A-Za-z0-9_./:@%+=,-]+")
_PREAMBLE = """\
set -u
umask 077
LC_ALL=C
export LC_ALL
PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}:/usr/local/cuda/bin:/opt/rocm/bin:/usr/sbin:/sbin"
PATH="$PATH:${HOME:-}/.local/bin"
export PATH
llmgw_stat=
{ read -r llmgw_stat </proc/$$/stat; } 2>/dev/null || llmgw_stat=
"""
# the process is looked at again before it is killed: pids are given out anew
_REAP = """\
read -r stat <"/proc/$1/stat" || exit 0
stat=${stat##*) }
field=3
while [ $field -lt 22 ]; do stat=${stat#* }; field=$((field + 1)); done
[ "${stat%% *}" = "$2" ] || exit 0
kill -s KILL -- "-$1" || kill -s KILL "$1"
"""
KILL_GRACE_S = 1.0
REAP_TIMEOUT_S = 10.0


class SshExec:
    """Scripts over one connection. ``label`` names the node in errors."""

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        label: str,
        *,
        lost_because: Callable[[], str] = lambda: "it was closed",
        nonce: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        self._connection = connection
        self._label = label
        self._lost_because = lost_because
        self._nonce = nonce
        self._scripts = asyncio.Semaphore(SCRIPTS_AT_ONCE)
        self._streams = asyncio.Semaphore(STREAMS_AT_ONCE)
        self._background: set[asyncio.Task[None]] = set()

    async def script(self, script: str, *args: str, timeout_s: float = 20.0) -> ExecResult:
        """See ``Exec.script``."""
        return await self._run("", script, args, timeout_s)

    async def feed(
        self, script: str, *args: str, payload: bytes, timeout_s: float = 60.0
    ) -> ExecResult:
        """See ``Exec.feed``."""
        if len(payload) > PAYLOAD_LIMIT:
            raise ValueError(f"a payload of {len(payload)} bytes is above {PAYLOAD_LIMIT}")
        end = f"@@PAYLOAD-{self._nonce()}"
        text = await asyncio.to_thread(base64.encodebytes, payload)
        function = f"payload() {{\nbase64 -d <<'{end}'\n{text.decode('ascii')}{end}\n}}\n"
        return await self._run(function, script, args, timeout_s)

    async def stream(
        self, script: str, *args: str, answer: bytes | None = None
    ) -> AsyncIterator[bytes]:
        """See ``Exec.stream``."""
        command = _command(args)
        await self._acquire(self._streams)
        nonce = self._nonce()
        channel = LineChannel(_marker(nonce))
        try:
            async with self._deadline(OPEN_TIMEOUT_S, channel, args):
                await self._open(channel, command)
                await self._say(channel, nonce, script, more=answer is not None)
                await channel.started.wait()
            while (line := await channel.next_line()) is not None:
                yield line
                if line == answer:
                    await channel.write(line + b"\n")
            self._check(channel, args)
        finally:
            self._retire(channel, self._streams)

    @asynccontextmanager
    async def conversation(self, script: str, *args: str) -> AsyncIterator[LineChannel]:
        """A script that reads on from stdin, once it has said a line, what is written to it.

        Its last line must end it: what comes after that line is its input. Within the block,
        ``check`` tells how it ended.
        """
        command = _command(args)
        await self._acquire(self._scripts)
        nonce = self._nonce()
        channel = LineChannel(_marker(nonce))
        try:
            async with self._deadline(OPEN_TIMEOUT_S, channel, args):
                await self._open(channel, command)
                await self._say(channel, nonce, script, more=True)
                await channel.started.wait()
            yield channel
        finally:
            self._retire(channel, self._scripts)

    def check(self, channel: LineChannel, *args: str) -> int:
        """The exit status of a conversation whose channel has ended.

        Raises:
            NodeLost: the link went away before its end.
            NodeRefused: the login has no usable shell.
        """
        return self._check(channel, args)

    def close(self) -> None:
        """Look after nothing any more; the connection is about to end."""
        for task in self._background:
            task.cancel()

    # --- how

    async def _run(
        self, prefix: str, script: str, args: tuple[str, ...], timeout_s: float
    ) -> ExecResult:
        command = _command(args)
        await self._acquire(self._scripts)
        nonce = self._nonce()
        channel = Channel(_marker(nonce))
        try:
            async with self._deadline(timeout_s, channel, args):
                await self._open(channel, command)
                await channel.feed(_text(nonce, prefix, script))
                await channel.finish()
        finally:
            self._retire(channel, self._scripts)
        status = self._check(channel, args)
        return ExecResult(bytes(channel.out), bytes(channel.err), status)

    async def _say(self, channel: Channel, nonce: str, script: str, *, more: bool) -> None:
        """Write a script; with ``more``, stdin stays open for what it reads."""
        text = _text(nonce, "", script)
        if more:
            # no byte more than the script: a shell that reads byte by byte would leave it
            await channel.write(text.rstrip(b"\n") + b"\n")
        else:
            await channel.feed(text)

    async def _acquire(self, slots: asyncio.Semaphore) -> None:
        try:
            async with asyncio.timeout(SLOT_WAIT_S):
                await slots.acquire()
        except TimeoutError:
            raise NodeLost(
                f"{self._label} is busy: its sessions were all in use for {SLOT_WAIT_S:.0f} s"
            ) from None

    def _retire(self, channel: Channel, slots: asyncio.Semaphore) -> None:
        """Give a slot back; where a command still runs, when it has been ended."""
        if channel.is_running and not self._connection.is_closed():
            self._own(asyncio.create_task(self._reap(channel, slots)))
        else:
            channel.close()
            slots.release()

    async def _reap(self, channel: Channel, slots: asyncio.Semaphore) -> None:
        """End a command that nobody waits for: else it keeps its session, one of ten."""
        try:
            channel.kill()
            # sshd passes no signals on to logins as root and under ForceCommand
            if not await channel.closes_within(KILL_GRACE_S) and channel.process is not None:
                await self._kill_remote(*channel.process)
        finally:
            channel.close()
            slots.release()

    async def _kill_remote(self, pid: int, start: int) -> None:
        nonce = self._nonce()
        reaper = Channel(_marker(nonce))
        try:
            async with asyncio.timeout(REAP_TIMEOUT_S):
                await self._open(reaper, _command((str(pid), str(start))))
                await reaper.feed(_text(nonce, "", _REAP))
                await reaper.finish()
        except (NodeLost, NodeRefused, TimeoutError) as error:
            log.info("%s: a command that was given up may still run: %s", self._label, error)
        finally:
            reaper.close()

    def _own(self, task: asyncio.Task[None]) -> None:
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    @asynccontextmanager
    async def _deadline(
        self, seconds: float, channel: Channel, args: tuple[str, ...]
    ) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            if channel.is_running and not channel.begun:
                raise NodeLost(
                    f"The login shell of {self._label} did not come to run a script within "
                    f"{seconds:.0f} s; look at its start-up files"
                ) from None
            raise NodeLost(
                f"{self._label} did not finish {_what(args)} within {seconds:.0f} s"
            ) from None

    async def _open(self, channel: Channel, command: str) -> None:
        """Start the command; a session that is not free yet is asked for again."""
        for delay in (*RETRY_AFTER_S, None):
            try:
                await self._open_once(channel, command)
                return
            except asyncssh.ChannelOpenError as error:
                # a refused session was not started, so that asking again is safe
                if self._connection.is_closed():
                    raise self._lost() from error
                if error.code == asyncssh.OPEN_REQUEST_SESSION_FAILED:
                    raise NodeRefused(
                        RefusedBecause.SHELL,
                        f"{self._label} does not let this login run commands",
                    ) from error
                if delay is None:
                    raise NodeLost(
                        f"{self._label} gives no further session on its connection "
                        f"({error.reason}); see MaxSessions of its SSH server"
                    ) from error
            except (asyncssh.Error, OSError) as error:
                raise self._lost() from error
            await asyncio.sleep(delay)

    async def _open_once(self, channel: Channel, command: str) -> None:
        task = asyncio.create_task(self._create(channel, command))
        self._own(task)
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            # given up in the middle, the open channel would stay with the node: close it then
            task.add_done_callback(lambda done: _close_late(done, channel))
            raise

    async def _create(self, channel: Channel, command: str) -> None:
        await self._connection.create_session(
            lambda: channel, command, encoding=None, request_pty=False, env=None, send_env=None
        )

    def _check(self, channel: Channel, args: tuple[str, ...]) -> int:
        """The exit status of a command that ended in an orderly way."""
        if channel.too_much and channel.begun:
            raise RemoteFailed(
                f"{self._label}: the answer to {_what(args)} is above {OUTPUT_LIMIT >> 20} MiB",
                exit_status=-1,
            )
        if channel.exit_status is None and not channel.too_much:
            raise self._lost()
        if not channel.begun or channel.exit_status is None:
            raise _no_shell(self._label, channel)
        if channel.exit_status and channel.err:
            log.debug("%s: %s", self._label, channel.err[-500:])
        return channel.exit_status

    def _lost(self) -> NodeLost:
        if self._connection.is_closed():
            return NodeLost(f"The connection to {self._label} is gone: {self._lost_because()}")
        return NodeLost(f"{self._label} cut a command off before its end")


def _no_shell(label: str, channel: Channel) -> NodeRefused | NodeLost:
    words = sanitise(channel.first_words, most=200)
    said = f": {words}" if words else f" (it ended with {channel.exit_status})"
    if channel.exit_status == NOLOGIN_STATUS:
        # as while a host comes up or goes down
        return NodeLost(f"{label} lets nobody but root in at present (/etc/nologin there){said}")
    return NodeRefused(
        RefusedBecause.SHELL,
        f"{label} has no usable shell for this login{said}",
        hint="give it an ordinary one (chsh -s /bin/sh), and no ForceCommand or command=",
    )


def _what(args: tuple[str, ...]) -> str:
    return repr(args[0]) if args and args[0].isalpha() else "a script"


def _close_late(task: asyncio.Task[None], channel: Channel) -> None:
    if not task.cancelled() and task.exception() is None:
        channel.close()


def _command(args: tuple[str, ...]) -> str:
    for arg in args:
        if not _ARGUMENT.fullmatch(arg):
            raise ValueError(f"{arg!r} cannot be an argument of a remote script: encode it")
    return " ".join(["exec /bin/sh -s", "--", *args]) if args else "exec /bin/sh -s"


def _marker(nonce: str) -> bytes:
    return f"@@BEGIN {nonce}".encode("ascii")


def _text(nonce: str, prefix: str, script: str) -> bytes:
    return f'{_PREAMBLE}echo "@@BEGIN {nonce} $llmgw_stat"\n{prefix}{script}\n'.encode()
