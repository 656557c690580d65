"""The gateway's process: lock, sockets, signals, and a clean end."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import gc
import ipaddress
import logging
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path

from llmgw_core.errors import InvalidInput, LlmgwError, Refused
from llmgw_core.gateway.accounts import Accounts, day_of
from llmgw_core.gateway.app import Gateway
from llmgw_core.gateway.control import Control
from llmgw_core.gateway.key_store import KeyStore, Stamp
from llmgw_core.gateway.keys import Gate
from llmgw_core.gateway.limits import Limiter, Now
from llmgw_core.gateway.settings import GatewaySettings
from llmgw_core.ledger.usage import FILE as USAGE_FILE
from llmgw_core.ledger.usage import UsageStore

log = logging.getLogger(__name__)

LOCK_NAME = "gateway.lock"
BACKLOG = 1024
KEYS_S = 0.25
"""How often the file of keys is looked at: a revoked one opens nothing after that."""


class AddressTaken(LlmgwError):
    """The address cannot be listened on."""

    exit_code = 3
    code = "address_taken"


class AlreadyRunning(Refused):
    """Another gateway holds this state directory."""

    code = "gateway_running"


def take_lock(state_dir: Path) -> int:
    """Hold the directory for this process; returns the descriptor that does.

    Raises:
        AlreadyRunning: another gateway holds it.
        InvalidInput: the directory cannot be used.
    """
    path = state_dir / LOCK_NAME
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidInput(
            f"The gateway cannot use the state directory {state_dir}: {error.strerror}",
            hint="name one that can be written with --state",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(lock)
        raise AlreadyRunning(
            f"A gateway (pid {holder}) runs for {state_dir} already",
            hint="stop it first, or use another state directory",
        ) from error
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return lock


def listen(settings: GatewaySettings, *, has_keys: bool = False) -> socket.socket:
    """The listening socket.

    Raises:
        Refused: others reach the address, and there are no keys to check.
        InvalidInput: the host is not an address of this machine.
        AddressTaken: something listens there.
    """
    host = "127.0.0.1" if settings.host == "localhost" else settings.host
    shown = f"{host}:{settings.port}"
    try:
        family, kind, proto, _, where = socket.getaddrinfo(
            host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidInput(
            f"The gateway cannot listen on {shown}: the host does not resolve",
            hint="name an address of this machine with --host",
        ) from error
    address = ipaddress.ip_address(str(where[0]).partition("%")[0])
    if not (address.is_loopback or has_keys or settings.insecure_no_keys):
        raise Refused(
            f"The gateway does not listen on {shown}, which other machines reach, "
            "because it checks no keys yet, as none was made",
            hint="make one with `llmgw run keys add NAME`, listen on 127.0.0.1, "
            "or allow it with --insecure-no-keys",
        )
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressTaken(
                f"The gateway cannot listen on {shown}: another program does already",
                hint="stop it, or choose another port",
            ) from error
        raise AddressTaken(
            f"The gateway cannot listen on {shown}: {error.strerror}",
            hint="choose another address or port",
        ) from error
    sock.setblocking(False)
    return sock


def shown_address(sock: socket.socket) -> str:
    """``host:port`` as listened on, IPv6 in brackets."""
    host, port = sock.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class KeyWatch:
    """Puts changed keys in force: at most ``KEYS_S`` after the file was replaced."""

    def __init__(self, store: KeyStore, gate: Gate, stamp: Stamp | None) -> None:
        self._store = store
        self._gate = gate
        self._stamp = stamp

    async def run(self) -> None:
        """Look at the file until cancelled; what cannot be read changes nothing."""
        while True:
            await asyncio.sleep(KEYS_S)
            try:
                stamp = await asyncio.to_thread(self._store.stamp)
                if stamp == self._stamp:
                    continue
                self._stamp = stamp
                ring = await asyncio.to_thread(self._store.load)
            except (OSError, LlmgwError) as error:
                log.warning("the keys of before stay in force: %s", error)
                continue
            self._gate.set_ring(ring)
            log.info("%d keys are in force", len(ring.keys))


class _Stop:
    """Why and how the process is to end."""

    def __init__(self, timeout_s: float) -> None:
        self.asked = asyncio.Event()
        self.timeout_s = timeout_s

    def drain(self, timeout_s: float) -> None:
        """End after the running requests, within this bound. Asked again, the last bound counts."""
        self.timeout_s = max(timeout_s, 0.0)
        self.asked.set()

    def signalled(self) -> None:
        """The first signal drains, the second ends at once."""
        if self.asked.is_set():
            sys.stderr.flush()
            os._exit(128 + signal.SIGTERM)
        self.asked.set()


async def serve(state_dir: Path, settings: GatewaySettings) -> None:
    """Run a gateway until it is told to end.

    Raises:
        LlmgwError: it cannot start; see ``take_lock`` and ``listen``.
    """
    lock = take_lock(state_dir)
    store = KeyStore(state_dir)
    stamp, ring = store.stamp(), store.load()
    sock = listen(settings, has_keys=bool(ring.keys))
    loop = asyncio.get_running_loop()
    gateway = Gateway(settings, gate=Gate(ring, must=bool(ring.keys)))
    gateway.address = shown_address(sock)
    stop = _Stop(settings.drain_timeout_s)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.signalled)
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    control = Control(
        state_dir, set_table=gateway.set_table, report=gateway.report, drain=stop.drain
    )
    gateway.state.on_freed = control.push_soon
    gateway.state.lines.on_wait = control.push_soon
    server = await loop.create_server(gateway.make_client, sock=sock, backlog=BACKLOG)
    await control.open()
    _settle()
    log.info("listening on %s", gateway.address)
    keys = KeyWatch(store, gateway.gate, stamp)
    ledger = UsageStore(state_dir / USAGE_FILE)
    _remember_today(gateway.limiter, ledger, Now(loop.time(), time.time()))
    accounts = Accounts(ledger)
    gateway.observers.append(accounts.book)
    work = (gateway.watch(), control.run(), keys.run(), accounts.run())
    tasks = [loop.create_task(one) for one in work]
    try:
        await _until(stop.asked, tasks)
        log.info("draining for at most %g s", stop.timeout_s)
        server.close()
        # from here on another gateway may take the directory and the address
        gateway.draining = True
        control.leave()
        os.close(lock)
        control.push()
        await gateway.drain(stop.timeout_s)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await gateway.close()
        await accounts.close()
        await control.close()
    log.info("ended")


def _remember_today(limiter: Limiter, ledger: UsageStore, now: Now) -> None:
    """Daily limits go on over a restart; without the ledger they begin anew, and that is logged."""
    today = day_of(now.wall)
    try:
        keys = ledger.read(["key"], since=today)
        owners = ledger.read(["owner"], since=today)
    except LlmgwError as error:
        log.warning("today's use is not known: %s", error)
        return
    for kind, rows in (("key", keys), ("owner", owners)):
        used = [
            (kind, row.by[kind], row.sums.requests,
             row.sums.prompt_tokens + row.sums.completion_tokens)
            for row in rows if row.by[kind]
        ]  # fmt: skip
        limiter.begin_day(used, now)


async def _until(event: asyncio.Event, tasks: list[asyncio.Task[None]]) -> None:
    """Wait for the event; a task that ends before is an error, and raised."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    for task in tasks:
        if task in done:
            task.result()


def _settle() -> None:
    """Room for connections, and no collector pauses over what lives as long as the process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.collect()
    gc.freeze()
