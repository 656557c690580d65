"""``llmgw --headless``: the engine as a daemon."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket

from llmgw_core.cli.logs import to_stderr
from llmgw_core.cli.place import Place
from llmgw_core.controller.engine import EngineRun
from llmgw_core.errors import InvalidInput

log = logging.getLogger(__name__)


def headless(place: Place, log_format: str) -> int:
    """Run until SIGTERM, SIGINT or a shutdown command; returns the exit code.

    SIGTERM drains the gateway and leaves the replicas running; SIGHUP reloads the configuration.
    """
    if log_format not in ("text", "json"):
        raise InvalidInput(f"--log-format is text or json, not {log_format!r}")
    to_stderr(log_format)
    return asyncio.run(_serve(EngineRun(place.state, place.config_file, "daemon")))


async def _serve(engine: EngineRun) -> int:
    loop = asyncio.get_running_loop()
    terminated = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, terminated.set)
    hangup = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, hangup.set)
    client = await engine.start()
    notify("READY=1")
    log.info("daemon.ready state=%s pid=%d", engine.state, os.getpid())
    try:
        async with asyncio.TaskGroup() as group:
            reloader = group.create_task(_reload_on(hangup, engine))
            ended = group.create_task(engine.wait())
            told = group.create_task(terminated.wait())
            await asyncio.wait({ended, told}, return_when=asyncio.FIRST_COMPLETED)
            notify("STOPPING=1")
            if told.done():
                drain = engine.controller.config.gateway.drain_timeout_s
                await engine.controller.gateway.stop(drain_s=drain)
                await engine.controller.mirror.stop()
            for task in (reloader, ended, told):
                task.cancel()
    finally:
        await client.aclose()
    return 0


async def _reload_on(hangup: asyncio.Event, engine: EngineRun) -> None:
    from llmgw_core.api.views import Command
    from llmgw_core.controller.service import ControllerService
    from llmgw_core.errors import LlmgwError

    while True:
        await hangup.wait()
        hangup.clear()
        notify("RELOADING=1")
        try:
            await ControllerService(engine.controller).command(Command("reload", {}, "SIGHUP"))
        except LlmgwError as error:
            log.warning("config.refused %s", error)
        notify("READY=1")


def notify(state: str) -> None:
    """Tell systemd, where it asked to be told (sd_notify's datagram)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.connect(address)
            sock.sendall(state.encode())
    except OSError as error:
        log.warning("notify.failed error=%s", error)
