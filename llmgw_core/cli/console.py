"""Opening the console: over an engine of its own, or attached to a running controller."""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llmgw_core.cli.place import Place

if TYPE_CHECKING:
    from llmgw_core.api.client import Client
    from llmgw_core.controller.engine import EngineRun

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Look:
    """How the console is to look and behave."""

    theme: str | None = None
    read_only: bool = False
    fps: int | None = None
    ascii_only: bool = False
    mouse: bool = True


class Connection:
    """How the console gets its engine: the one that runs, else one in this process."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.engine: EngineRun | None = None
        self._opened = asyncio.Event()

    async def open(self, progress: Callable[[str], None]) -> Client:
        """Called after the first paint, and again when an attached controller went away."""
        from llmgw_core.controller.state_lock import describe, is_held, read_holder

        state = self.place.state
        if self.engine is None and is_held(state):
            progress("attaching to the controller")
            client = await asyncio.to_thread(self._attach, describe(read_holder(state)))
            await client.snapshot()
            return client
        progress("loading the engine")
        make = await asyncio.to_thread(self._make_engine)
        self.engine = make
        client = await make.start(progress)
        self._opened.set()
        return client

    async def ended(self) -> str:
        """Wait until this console's own engine ends, whoever ended it; says so in a sentence."""
        await self._opened.wait()
        if self.engine is None:
            return ""
        try:
            await self.engine.wait()
        except Exception:
            # the boundary of the engine: what broke it is in the log, and the person is told
            log.exception("console.engine_broke")
            return f"the engine broke; see {self.place.state / 'llmgw.log'}"
        return "" if self.engine.handed_over else "the controller of this console was ended"

    def _attach(self, holder: str) -> Client:
        from llmgw_core.api.attached import AttachedClient

        return AttachedClient(self.place.socket, f"attached to {holder}")

    def _make_engine(self) -> EngineRun:
        """Import the engine, which takes most of a second, off the loop."""
        from llmgw_core.controller.engine import EngineRun

        return EngineRun(self.place.state, self.place.config_file, "console")


def console(place: Place, look: Look) -> int:
    """Run the console; returns the exit code.

    The console's package is found by name, so that nothing in the core depends on it.
    """
    from llmgw_core.cli.logs import to_file
    from llmgw_core.config_file import load_config
    from llmgw_core.errors import Refused

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Refused(
            "the console needs a terminal", hint="use `llmgw --headless` or `llmgw run …`"
        )
    config = load_config(place.config_file)
    to_file(place.state / "llmgw.log")
    launch = importlib.import_module("llmgw_tui.launch")
    connection = Connection(place)
    options = launch.LaunchOptions(
        connect=connection.open,
        ended=connection.ended,
        cluster=config.cluster,
        theme=look.theme or config.console.theme,
        read_only=look.read_only,
        keys=config.console.keys,
        mouse=look.mouse,
        ascii=look.ascii_only,
        fps=look.fps,
    )
    status = int(launch.launch(options))
    engine = connection.engine
    if engine is not None and engine.handed_over:
        from llmgw_core.cli.daemon import spawn_daemon

        pid = spawn_daemon(place.state, place.config_file)
        sys.stdout.write(f"serving goes on in the background, by a daemon with pid {pid}\n")
    return status
