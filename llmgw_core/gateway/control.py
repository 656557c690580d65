"""The control line's server: controllers put tables in force here and read reports."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from llmgw_core.gateway.table import Report, Table
from llmgw_core.gateway.unixpath import short_path
from llmgw_core.gateway.wire import MAX_LINE, SOCKET_NAME, FromGateway, ToGateway

log = logging.getLogger(__name__)

REPORT_S = 1.0
MAX_CONTROLLERS = 32
MAX_UNSENT = 4 * 1024 * 1024
"""Bytes that a controller may leave unread before it is hung up on."""

_decode = msgspec.json.Decoder(ToGateway).decode
_encode = msgspec.json.Encoder().encode


class Control:
    """Listens on the state directory's socket.

    Args:
        state_dir: where the socket is made.
        set_table: called with each table that comes.
        report: makes a report.
        drain: called with the bound in seconds; the process ends after it.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        set_table: Callable[[Table], None],
        report: Callable[[], Report],
        drain: Callable[[float], None],
    ) -> None:
        self._path = state_dir / SOCKET_NAME
        self._set_table = set_table
        self._report = report
        self._drain = drain
        self._writers: set[asyncio.StreamWriter] = set()
        self._readers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._announce = False

    async def open(self) -> None:
        """Begin to listen. The caller holds the directory's lock, so an old socket is stale.

        Raises:
            OSError: the socket cannot be made.
        """
        self._path.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            with short_path(self._path) as path:
                sock.bind(path)
        finally:
            os.umask(mask)
        self._server = await asyncio.start_unix_server(self._accepted, sock=sock, limit=MAX_LINE)

    def leave(self) -> None:
        """Stop listening, so that another gateway may; connected controllers stay."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._path.unlink(missing_ok=True)

    async def close(self) -> None:
        """Send the last report and hang up on everyone."""
        self.leave()
        self.push()
        for writer in list(self._writers):
            writer.close()
        for task in list(self._readers):
            task.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def run(self) -> None:
        """Report to every controller each second, until cancelled."""
        while True:
            await asyncio.sleep(REPORT_S)
            self.push()

    def push_soon(self) -> None:
        """Report once when the events at hand are dealt with."""
        if not self._announce:
            self._announce = True
            asyncio.get_running_loop().call_soon(self.push)

    def push(self) -> None:
        """Report to every controller now."""
        self._announce = False
        if not self._writers:
            return
        line = _encode(FromGateway(report=self._report())) + b"\n"
        for writer in list(self._writers):
            if writer.transport.get_write_buffer_size() > MAX_UNSENT:
                log.warning("a controller does not read its reports: hung up on it")
                writer.transport.abort()
                self._writers.discard(writer)
            else:
                writer.write(line)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._writers) >= MAX_CONTROLLERS:
            writer.write(_encode(FromGateway(error="Too many controllers are connected.")) + b"\n")
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                try:
                    line = await reader.readuntil(b"\n")
                except asyncio.LimitOverrunError:
                    self._say(writer, f"A line is longer than {MAX_LINE} bytes; hanging up.")
                    break
                self._obey(writer, line)
        except (asyncio.IncompleteReadError, OSError):
            pass  # the controller has gone, which it may at any time
        finally:
            self._writers.discard(writer)
            writer.close()

    def _say(self, writer: asyncio.StreamWriter, error: str) -> None:
        writer.write(_encode(FromGateway(error=error)) + b"\n")

    def _obey(self, writer: asyncio.StreamWriter, line: bytes) -> None:
        try:
            message = _decode(line)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            # the message names a position and a type, never a value: tables hold keys
            self._say(writer, f"This line cannot be read: {error}")
            return
        if message.table is not None:
            self._set_table(message.table)
            self.push_soon()
        if message.report:
            writer.write(_encode(FromGateway(report=self._report())) + b"\n")
        if message.drain is not None:
            self._drain(message.drain)
