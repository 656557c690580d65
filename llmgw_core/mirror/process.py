"""``python -m llmgw_core.mirror.process --state DIR < SETTINGS``: one mirror process.

Exits 0 after a drain, 2 for settings that cannot be used, 3 where the address is taken, 4 where
another mirror holds the state directory.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import fcntl
import json
import logging
import os
import resource
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from llmgw_core.errors import InvalidInput, LlmgwError, Refused
from llmgw_core.log_lines import log_to_stderr
from llmgw_core.mirror.server import MirrorServer, Shelf
from llmgw_core.mirror.settings import (
    LOCK_NAME,
    MAX_LINE,
    SOCKET_NAME,
    STATE_NAME,
    MirrorSettings,
    ToMirror,
    decode_settings,
    encode,
)
from llmgw_core.mirror.store import Store
from llmgw_core.mirror.tokens import read_secret
from llmgw_core.paths import make_private, socket_path

log = logging.getLogger(__name__)

BACKLOG = 1024
MAX_CONTROLLERS = 32
SILENCE_MOST_S = 30.0
"""How long a controller may be connected without asking anything."""


class AddressTaken(LlmgwError):
    """The address cannot be listened on."""

    exit_code = 3
    code = "address_taken"


class AlreadyRunning(Refused):
    """Another mirror holds this state directory."""

    code = "mirror_running"


def take_lock(state_dir: Path) -> int:
    """Hold the directory for this process; returns the descriptor that does.

    Raises:
        AlreadyRunning: another mirror holds it.
        InvalidInput: the directory cannot be used.
    """
    try:
        make_private(state_dir)
        lock = os.open(state_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidInput(
            f"The mirror cannot use the state directory {state_dir}: {error.strerror}",
            hint="name one that can be written with --state",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise AlreadyRunning(
            f"A mirror runs for {state_dir} already",
            hint="stop it first, or use another state directory",
        ) from error
    return lock


def listen(settings: MirrorSettings, last_port: int) -> socket.socket:
    """The listening socket; where any port will do, preferably on the last one.

    Raises:
        InvalidInput: the host is not an address of this machine.
        AddressTaken: something listens there.
    """
    if settings.port == 0 and last_port:
        # nodes that were cut off know this one
        with suppress(AddressTaken):
            return _bind(settings.host, last_port)
    return _bind(settings.host, settings.port)


def _bind(host: str, port: int) -> socket.socket:
    host = "127.0.0.1" if host == "localhost" else host
    try:
        family, kind, proto, _, where = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidInput(
            f"The mirror cannot listen on {host}:{port}: the host does not resolve",
            hint="name an address of this machine",
        ) from error
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        taken = error.errno == errno.EADDRINUSE
        why = "another program does already" if taken else error.strerror
        raise AddressTaken(
            f"The mirror cannot listen on {host}:{port}: {why}",
            hint="choose another address or port",
        ) from error
    sock.setblocking(False)
    return sock


class Leaving:
    """Why and how the process is to end."""

    def __init__(self, timeout_s: float) -> None:
        self.asked = asyncio.Event()
        self.left = asyncio.Event()
        """Set when another mirror may take the address and the directory."""
        self.timeout_s = timeout_s

    def drain(self, timeout_s: float) -> None:
        """End after the running downloads, within this bound."""
        self.timeout_s = max(timeout_s, 0.0)
        self.asked.set()

    def signalled(self) -> None:
        """The first signal drains, the second ends at once."""
        if self.asked.is_set():
            sys.stderr.flush()
            os._exit(128 + signal.SIGTERM)
        self.asked.set()


class Control:
    """Answers controllers on the state directory's socket, which only its owner can open."""

    def __init__(self, state_dir: Path, server: MirrorServer, leaving: Leaving) -> None:
        self._path = socket_path(state_dir, SOCKET_NAME)
        self._server = server
        self._leaving = leaving
        self._listener: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Begin to listen. The caller holds the directory's lock, so an old socket is stale.

        Raises:
            OSError: the socket cannot be made.
        """
        self._path.unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            self._listener = await asyncio.start_unix_server(
                self._accepted, self._path, limit=MAX_LINE
            )
        finally:
            os.umask(mask)

    def leave(self) -> None:
        """Stop listening, so that another mirror may; connected controllers stay."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            self._path.unlink(missing_ok=True)

    async def close(self) -> None:
        """Hang up on everyone."""
        self.leave()
        for task in self._talks:
            task.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._talks) >= MAX_CONTROLLERS:
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._talks.add(task)
        task.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                # one who waits for the end after a drain has nothing more to say
                bound = None if self._leaving.asked.is_set() else SILENCE_MOST_S
                async with asyncio.timeout(bound):
                    line = await reader.readuntil(b"\n")
                await self._obey(msgspec.json.decode(line, type=ToMirror))
                writer.write(encode(self._server.status()) + b"\n")
                async with asyncio.timeout(SILENCE_MOST_S):
                    await writer.drain()
        except (asyncio.IncompleteReadError, OSError, TimeoutError):
            pass  # the controller has gone, which it may at any time
        except (asyncio.LimitOverrunError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("mirror.misunderstood error=%s", error)
        finally:
            writer.close()

    async def _obey(self, message: ToMirror) -> None:
        if message.rate_limit is not None:
            settings = self._server.status().settings
            rate = message.rate_limit or None
            try:
                self._server.set_settings(replace(settings, rate_limit=rate))
            except InvalidInput as error:
                log.warning("mirror.refused error=%s", error)
        if message.drain is not None:
            self._leaving.drain(message.drain)
            await self._leaving.left.wait()


async def serve(state_dir: Path, settings: MirrorSettings, shelf: Shelf) -> None:
    """Serve a store until told to end.

    Raises:
        LlmgwError: it cannot start; see ``take_lock``, ``listen`` and ``read_secret``.
    """
    lock = take_lock(state_dir)
    secret = read_secret(settings.secret_file)
    sock = listen(settings, read_last_port(state_dir))
    loop = asyncio.get_running_loop()
    leaving = Leaving(settings.drain_timeout_s)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leaving.signalled)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    server = MirrorServer(shelf, settings, secret)
    server.address = sock.getsockname()[:2]
    control = Control(state_dir, server, leaving)
    listener = await loop.create_server(server.make_protocol, sock=sock, backlog=BACKLOG)
    _write_state(state_dir, *server.address)
    await control.open()
    log.info("mirror.listens host=%s port=%d root=%s", *server.address, settings.root)
    try:
        await leaving.asked.wait()
        log.info("mirror.drains downloads=%d bound_s=%g", server.status().active, leaving.timeout_s)
        # from here on another mirror may take the directory and the address
        listener.close()
        control.leave()
        os.close(lock)
        server.draining = True
        leaving.left.set()
        await server.drain(leaving.timeout_s)
    finally:
        await control.close()
    log.info("mirror.ended bytes=%d", server.status().bytes_sent)


def read_last_port(state_dir: Path) -> int:
    """The port that was listened on last for this directory; 0 where it cannot be told."""
    try:
        port = int(json.loads((state_dir / STATE_NAME).read_text(encoding="utf-8"))["port"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return port if 0 < port < 65536 else 0


def _write_state(state_dir: Path, host: str, port: int) -> None:
    """Who serves, for people and for the next one; it says nothing about who is alive."""
    state = {"pid": os.getpid(), "started": time.time(), "host": host, "port": port}
    part = state_dir / f"{STATE_NAME}.part"
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        json.dump(state, file)
    part.replace(state_dir / STATE_NAME)


def main() -> int:
    """Run; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m llmgw_core.mirror.process", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--state", type=Path, required=True, help="the state directory")
    state_dir: Path = parser.parse_args().state
    log_to_stderr()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        settings = decode_settings(sys.stdin.buffer.read(MAX_LINE))
        asyncio.run(serve(state_dir, settings, Store(settings.root)))
    except LlmgwError as error:
        sys.stderr.write(f"{error}.\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
