"""Finds the cluster's gateway or starts one, keeps it informed, and listens to it."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from llmgw_core.api.views import GatewayView
from llmgw_core.config import OwnerConfig
from llmgw_core.controller.keeper import Keeper
from llmgw_core.errors import LlmgwError
from llmgw_core.gateway.link import GatewayLink, last_log_line, spawn
from llmgw_core.gateway.settings import GatewaySettings
from llmgw_core.gateway.table import UNLIMITED, KeyLimits, Report, RouteModel, Table, Tunnel

log = logging.getLogger(__name__)

RETRY_FIRST_S = 0.5
RETRY_MOST_S = 30.0
START_MOST_S = 15.0
SILENCE_MOST_S = 10.0
"""It reports each second."""
POLL_S = 0.05


class GatewayKeeper:
    """Satisfies ``GatewayHandle``. The process outlives it, and is found by the next one."""

    def __init__(self, state: Path, keeper: Keeper) -> None:
        self._state = state
        self._keeper = keeper
        self._link: GatewayLink | None = None
        self._report: Report | None = None
        self._table = Table(version=int(time.time() * 1000))
        self._sent: Table | None = None
        self._published = False
        """Until then a gateway that was found keeps the table of the controller before."""
        self._changed = asyncio.Event()
        self._reported = asyncio.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._reason = ""
        self._stopping = False
        self._gone = asyncio.Event()

    @property
    def report(self) -> Report | None:
        """Its newest report; None while it is not heard from."""
        return self._report

    def view(self) -> GatewayView:
        """How it is, for people."""
        report = self._report
        if report is None:
            state = "down" if self._reason or self._stopping else "starting"
            return GatewayView(state=state, reason=self._reason)
        return GatewayView(
            state="draining" if report.draining else "serving",
            address=report.address,
            pid=report.pid,
            requests_per_s=report.requests_per_s,
            requests_total=report.requests_total,
            open_connections=report.open_connections,
        )

    def publish(
        self,
        models: tuple[RouteModel, ...],
        tunnels: Mapping[str, Tunnel],
        lost: tuple[str, ...] = (),
    ) -> None:
        """Make this its table, now or when it is next heard from."""
        owners = {
            owner.name: limits
            for owner in self._keeper.config.owners
            if (limits := limits_of(owner)) != UNLIMITED
        }
        ranks = {known.name: known.rank for known in self._keeper.config.classes}
        table = Table(self._table.version, models, dict(tunnels), lost, ranks, owners)
        if self._published and table == self._table:
            return
        self._published = True
        self._table = msgspec.structs.replace(table, version=table.version + 1)
        self._changed.set()

    async def drained(self, replica_id: str, *, timeout_s: float) -> bool:
        """Wait until nothing is in flight to a replica that is no longer in the table."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._is_free(replica_id):
                    self._reported.clear()
                    await self._reported.wait()
        except TimeoutError:
            return False
        return True

    def _is_free(self, replica_id: str) -> bool:
        if self._report is None and self._link is None:
            return True  # no gateway, no requests
        table, report = self._table, self._report
        if any(target.id == replica_id for model in table.models for target in model.targets):
            return False
        if report is None or report.table_version < table.version:
            return False
        return all(load.outstanding == 0 for load in report.targets if load.id == replica_id)

    async def run(self) -> None:
        """Keep a gateway running and informed until cancelled; cancelling leaves it running."""
        pause = RETRY_FIRST_S
        while True:
            began = time.monotonic()
            try:
                self._link = await self._find_or_start()
                self._gone.clear()
                await self._talk(self._link)
            except (OSError, LlmgwError, TimeoutError, msgspec.MsgspecError) as error:
                self._reason = str(error) or type(error).__name__
                log.warning("gateway.lost error=%s", self._reason)
            finally:
                if self._link is not None:
                    await self._link.close()
                self._link, self._report, self._sent = None, None, None
                self._gone.set()
                self._reported.set()
            if self._stopping:
                await asyncio.Event().wait()
            pause = RETRY_FIRST_S if time.monotonic() - began > RETRY_MOST_S else pause
            await asyncio.sleep(pause)
            pause = min(pause * 2, RETRY_MOST_S)

    async def _find_or_start(self) -> GatewayLink:
        """Connect to the gateway that runs, else to one that this starts.

        Raises:
            LlmgwError: it ended again, with what it said.
        """
        try:
            return await GatewayLink.connect(self._state)
        except OSError:
            pass  # none runs: the usual case at a first start
        self._process = await asyncio.to_thread(spawn, self._state, self._settings())
        deadline = time.monotonic() + START_MOST_S
        while time.monotonic() < deadline:
            status = self._process.poll()
            if status is not None:
                said = await asyncio.to_thread(last_log_line, self._state)
                raise LlmgwError(f"the gateway ended with status {status}: {said}")
            try:
                return await GatewayLink.connect(self._state)
            except OSError:
                await asyncio.sleep(POLL_S)
        raise LlmgwError(f"the gateway (pid {self._process.pid}) does not answer")

    def _settings(self) -> GatewaySettings:
        config = self._keeper.config.gateway
        return GatewaySettings(
            host=config.host,
            port=config.port,
            connect_timeout_s=config.connect_timeout_s,
            first_byte_timeout_s=config.first_byte_timeout_s,
            gap_timeout_s=config.idle_timeout_s,
            drain_timeout_s=config.drain_timeout_s,
            max_body_mb=config.max_body_mb,
        )

    async def _talk(self, link: GatewayLink) -> None:
        """Send tables as they change and keep what comes, until it hangs up."""
        sender = asyncio.create_task(self._send_tables(link), name="gateway tables")
        try:
            await self._listen(link)
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def _send_tables(self, link: GatewayLink) -> None:
        while True:
            self._changed.clear()
            if self._published and self._sent is not self._table:
                self._sent = self._table
                await link.send_table(self._table)
                await link.ask_report()
            await self._changed.wait()

    async def _listen(self, link: GatewayLink) -> None:
        messages = link.messages()
        while True:
            async with asyncio.timeout(SILENCE_MOST_S):
                message = await anext(messages, None)
            if message is None:
                return
            if message.error:
                log.warning("gateway.complained error=%s", message.error)
            if message.report is not None:
                self._report, self._reason = message.report, ""
                self._reported.set()
                await self._move(link, message.report)
                if message.report.draining and not self._stopping:
                    return  # it has given up its address: a successor may start at once

    async def _move(self, link: GatewayLink, report: Report) -> None:
        """Drain a gateway that listens elsewhere than configured; another is started then."""
        config = self._keeper.config.gateway
        host = f"[{config.host}]" if ":" in config.host else config.host
        elsewhere = config.port != 0 and report.address != f"{host}:{config.port}"
        if elsewhere and not report.draining and _is_number(config.host):
            log.warning("gateway.moves from=%s to=%s:%d", report.address, host, config.port)
            await link.drain(config.drain_timeout_s)

    async def stop(self, *, drain_s: float) -> None:
        """Let running requests finish for so long, then end it.

        Raises:
            LlmgwError: it is still there some seconds after the bound.
        """
        self._stopping = True
        link, report = self._link, self._report
        if link is None:
            return
        await link.drain(drain_s)
        try:
            async with asyncio.timeout(drain_s + 10.0):
                await self._gone.wait()
        except TimeoutError:
            pid = report.pid if report else "unknown"
            raise LlmgwError(f"the gateway (pid {pid}) does not end") from None
        if self._process is not None:
            await asyncio.to_thread(self._process.wait, 10.0)


def limits_of(owner: OwnerConfig) -> KeyLimits:
    """What an owner's requests may use together."""
    return KeyLimits(
        requests_per_minute=owner.requests_per_minute,
        requests_per_day=owner.requests_per_day,
        tokens_per_minute=owner.tokens_per_minute,
        tokens_per_day=owner.tokens_per_day,
    )


def _is_number(host: str) -> bool:
    """Whether a host is an address, which can be compared with the one listened on."""
    return bool(host) and (":" in host or host.replace(".", "").isdigit())
