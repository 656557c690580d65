"""The controller's side of the control line: one connection to a gateway, and starting one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from llmgw_core.gateway.settings import GatewaySettings
from llmgw_core.gateway.table import Table
from llmgw_core.gateway.unixpath import short_path
from llmgw_core.gateway.wire import MAX_LINE, SOCKET_NAME, FromGateway, ToGateway

LOG_NAME = "gateway.log"
SEND_MOST_S = 10.0
LOG_MOST = 8 * 1024 * 1024
"""Bytes of log from which on the next start keeps it as the previous log and begins a new one."""


class GatewayLink:
    """One connection to a running gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, state_dir: Path) -> GatewayLink:
        """Connect to the gateway of a state directory.

        Raises:
            OSError: there is none.
        """
        with short_path(state_dir / SOCKET_NAME) as path:
            reader, writer = await asyncio.open_unix_connection(path, limit=MAX_LINE)
        return cls(reader, writer)

    async def send_table(self, table: Table) -> None:
        """Put a table in force."""
        await self._send(ToGateway(table=table))

    async def ask_report(self) -> None:
        """Have it report now."""
        await self._send(ToGateway(report=True))

    async def drain(self, seconds: float) -> None:
        """Have it end once its requests are done, or the time is up."""
        await self._send(ToGateway(drain=seconds))

    async def _send(self, message: ToGateway) -> None:
        self._writer.write(msgspec.json.encode(message) + b"\n")
        async with asyncio.timeout(SEND_MOST_S):
            await self._writer.drain()

    async def messages(self) -> AsyncIterator[FromGateway]:
        """What it says, until it hangs up.

        Raises:
            OSError: the connection broke.
            msgspec.MsgspecError: it said something that is not the control line's.
        """
        decoder = msgspec.json.Decoder(FromGateway)
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                return  # killed in the middle of a line, or simply done
            except asyncio.LimitOverrunError as error:
                raise ConnectionError("the gateway sent a line without end") from error
            yield decoder.decode(line)

    async def close(self) -> None:
        """Hang up; the gateway goes on."""
        self._writer.close()


def spawn(state_dir: Path, settings: GatewaySettings) -> subprocess.Popen[bytes]:
    """Start a gateway in a session of its own, logging to the state directory.

    It outlives this process. The caller keeps what is returned and polls it, so that the gateway
    leaves no zombie when it ends first.

    Raises:
        OSError: the directory cannot be written.
    """
    # the gateway's working directory is another one
    state_dir = state_dir.absolute()
    path = state_dir / LOG_NAME
    if path.exists() and path.stat().st_size > LOG_MOST:
        path.replace(path.with_suffix(".log.1"))
    argv = [sys.executable, "-m", "llmgw_core.gateway", "--state", str(state_dir)]
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(
            [*argv, *settings.arguments()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )
    finally:
        os.close(log)


def last_log_line(state_dir: Path) -> str:
    """The last thing that a gateway logged, or nothing."""
    try:
        with (state_dir / LOG_NAME).open("rb") as log:
            log.seek(max(log.seek(0, os.SEEK_END) - 2000, 0))
            lines = log.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
