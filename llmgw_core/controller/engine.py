"""One engine of this process: lock, controller, control socket; started and ended as a whole."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

from llmgw_core.api.local import LocalClient
from llmgw_core.api.server import SOCKET_NAME, ControlServer
from llmgw_core.controller.core import Controller, Parts
from llmgw_core.controller.gateway_keeper import GatewayKeeper
from llmgw_core.controller.keeper import Keeper
from llmgw_core.controller.mirror_keeper import MirrorKeeper
from llmgw_core.controller.probing import HttpProbers
from llmgw_core.controller.service import ControllerService
from llmgw_core.controller.state_lock import StateLock
from llmgw_core.nodes.fleet import Fleet
from llmgw_core.paths import socket_path


class EngineRun:
    """The engine from ``start`` to ``aclose``; replicas and gateway outlive it."""

    def __init__(self, state: Path, config_file: Path | None, mode: str) -> None:
        self.state = state
        self.config_file = config_file
        self.mode = mode
        self._lock = StateLock(state)
        self._controller: Controller | None = None
        self._server: ControlServer | None = None
        self._probers: HttpProbers | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def controller(self) -> Controller:
        """The running controller."""
        if self._controller is None:
            raise RuntimeError("the engine was not started")
        return self._controller

    @property
    def handed_over(self) -> bool:
        """Whether a command asked for a daemon to go on in its place."""
        return self._controller is not None and self._controller.handed_over

    async def start(self, progress: Callable[[str], None] = lambda _: None) -> LocalClient:
        """Take the lock, read the configuration, and begin to run.

        Raises:
            Refused: another controller holds the state directory.
            ConfigProblems: the configuration cannot be used.
        """
        self._lock.acquire(self.mode)
        try:
            progress("reading the configuration")
            keeper = Keeper(self.state, self.config_file, time.time)
            await keeper.load()
            self._probers = HttpProbers(timeout_s=keeper.config.controller.health_timeout_s)
            progress("starting the controller")
            controller = self._controller = Controller(self._parts(keeper, self._probers))
            service = ControllerService(controller)
            self._server = ControlServer(service, socket_path(self.state, SOCKET_NAME))
            await self._server.start()
        except BaseException:
            await self.aclose()
            raise
        self._task = asyncio.create_task(controller.run(), name="engine")
        self._task.add_done_callback(lambda _: controller.stopping.set())
        return LocalClient(service, self.aclose)

    def _parts(self, keeper: Keeper, probers: HttpProbers) -> Parts:
        fleet = Fleet(
            keeper.config.nodes,
            state_dir=self.state,
            cluster=keeper.config.cluster,
            engine_pythons=(sys.executable,),
        )
        gateway = GatewayKeeper(self.state, keeper)
        mirror = MirrorKeeper(self.state, keeper)
        return Parts(self.state, keeper, fleet, gateway, mirror, probers.make, self.mode)

    async def wait(self) -> None:
        """Until a command ends the engine, or it breaks; what broke it is raised."""
        await self.controller.stopping.wait()
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self._task.result()

    async def aclose(self) -> None:
        """End the engine and give the lock back."""
        if self._server is not None:
            await self._server.aclose()
            self._server = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._probers is not None:
            await self._probers.aclose()
            self._probers = None
        self._lock.release()
