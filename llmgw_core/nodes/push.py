"""``python -m llmgw_core.nodes.push``: sends weights to a node over an SSH connection of its own.

Reads one ``PushOrder`` as a line of JSON, writes ``PushSaid`` lines. What the node has already is
not sent again; nothing is checked or renamed here, which the node's own fetch does afterwards.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import BinaryIO

import asyncssh
import msgspec

from llmgw_core.errors import LlmgwError, NodeLost, RemoteFailed
from llmgw_core.gateway.table import Tunnel
from llmgw_core.nodes.dial import CIPHERS, CONNECT_TIMEOUT_S, KEEPALIVE_S, KEEPALIVES_MISSED
from llmgw_core.nodes.held import held_script
from llmgw_core.nodes.pushing import PushFile, PushOrder, PushSaid
from llmgw_core.nodes.script import optional_word, word
from llmgw_core.nodes.ssh_exec import SshExec
from llmgw_core.nodes.trouble import words

BLOCK = 64 << 10
"""One write; larger ones hold up the keepalives for long."""
SAY_INTERVAL_S = 1.0
ANSWER_TIMEOUT_S = 60.0
"""For the node to say how much it has, and at the end that all has come."""


async def push(
    order: PushOrder,
    say: Callable[[PushSaid], None],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Send every file that is not there yet.

    Raises:
        NodeLost: the node cannot be reached, or the connection broke; what came is kept.
        RemoteFailed: the node does not take it, or a file cannot be read here.
    """
    async with _connected(order.tunnel, order.label) as ssh:
        exec_ = SshExec(ssh, order.label)
        before = 0
        for file in order.files:
            await _send(exec_, order, file, _Teller(say, clock, before, file.path))
            before += file.size
        say(PushSaid(done=before))
        exec_.close()


class _Teller:
    """Says how far a file is, about once a second."""

    def __init__(
        self, say: Callable[[PushSaid], None], clock: Callable[[], float], before: int, file: str
    ) -> None:
        self._say, self._clock = say, clock
        self._before, self._file = before, file
        self._next = clock()

    def at(self, done: int) -> None:
        """So many bytes of the file are on their way."""
        if self._clock() >= self._next:
            self._next = self._clock() + SAY_INTERVAL_S
            self._say(PushSaid(done=self._before + done, file=self._file))


async def _send(exec_: SshExec, order: PushOrder, file: PushFile, teller: _Teller) -> None:
    args = (
        *("receive", optional_word(order.state_dir), order.key),
        *(word(file.path), str(file.size), file.sha256),
    )
    async with exec_.conversation(held_script(), *args) as channel:
        line = await _next_line(channel.next_line(), order)
        if line is not None and line.startswith(b"@@at ") and line[5:].isdigit():
            offset = int(line[5:])
            teller.at(offset)
            with _opened(file, order) as source:
                source.seek(offset)
                while offset < file.size:
                    block = source.read(min(BLOCK, file.size - offset))
                    if not block:
                        msg = f"{file.source} is shorter than it has to be; check the mirror"
                        raise RemoteFailed(msg, exit_status=-1)
                    if not await channel.write(block):
                        break
                    offset += len(block)
                    teller.at(offset)
            await channel.write_end()
        while await _next_line(channel.next_line(), order) is not None:
            pass
        status = exec_.check(channel, *args)
    if status:
        said = bytes(channel.err).decode(errors="replace").strip()
        last = said.splitlines()[-1] if said else f"it ended with status {status}"
        msg = f"{order.key} could not be pushed to {order.label}: {last}"
        raise RemoteFailed(msg, exit_status=status)


async def _next_line(line: Awaitable[bytes | None], order: PushOrder) -> bytes | None:
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            return await line
    except TimeoutError:
        raise NodeLost(f"{order.label} did not answer while {order.key} was pushed") from None


def _opened(file: PushFile, order: PushOrder) -> BinaryIO:
    try:
        return open(file.source, "rb", buffering=0)
    except OSError as error:
        msg = f"{file.source} of {order.key} cannot be read: {error.strerror or error}"
        raise RemoteFailed(msg, exit_status=-1) from error


@asynccontextmanager
async def _connected(tunnel: Tunnel, label: str) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """A connection over its jumps, each ended with the block."""
    if tunnel.jump is None:
        async with _hop(tunnel, label, None) as connection:
            yield connection
    else:
        async with (
            _connected(tunnel.jump, label) as through,
            _hop(tunnel, label, through) as connection,
        ):
            yield connection


@asynccontextmanager
async def _hop(
    tunnel: Tunnel, label: str, through: asyncssh.SSHClientConnection | None
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    keys = {"client_keys": list(tunnel.identity_files)} if tunnel.identity_files else {}
    try:
        connection = await asyncssh.connect(
            tunnel.host,
            tunnel.port,
            tunnel=through if through is not None else (),
            username=tunnel.user if tunnel.user is not None else (),
            known_hosts=tunnel.known_hosts,
            host_key_alias=tunnel.host_key_alias,
            config=None,
            connect_timeout=CONNECT_TIMEOUT_S,
            login_timeout=CONNECT_TIMEOUT_S,
            keepalive_interval=KEEPALIVE_S,
            keepalive_count_max=KEEPALIVES_MISSED,
            encryption_algs=list(CIPHERS),
            compression_algs=None,
            gss_auth=False,
            gss_kex=False,
            utf8_decode_errors="replace",
            **keys,
        )
    except (asyncssh.Error, OSError) as error:
        msg = f"{label} cannot be reached to push to at {tunnel.host}: {words(error)}"
        raise NodeLost(msg) from error
    try:
        yield connection
    finally:
        connection.abort()


def _say(said: PushSaid) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
    sys.stdout.buffer.flush()


def main() -> int:
    """Do what stdin says; 0 where all of it was sent."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=PushOrder)
    try:
        asyncio.run(push(order, _say))
    except BrokenPipeError:  # whoever asked is gone
        os._exit(1)
    except RemoteFailed as error:
        _say(PushSaid(error=str(error), status=error.exit_status))
        return 1
    except LlmgwError as error:
        _say(PushSaid(error=str(error), lost=True))
        return 1
    except Exception as error:  # noqa: BLE001 - the process's boundary: told to whoever asked
        told = f"{order.key} could not be pushed to {order.label}: {type(error).__name__}: {error}"
        _say(PushSaid(error=told))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
