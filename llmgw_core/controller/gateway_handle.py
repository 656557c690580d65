"""What the controller asks of its gateway; the real one is in ``gateway_keeper``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from llmgw_core.api.views import GatewayView
from llmgw_core.gateway.table import Report, RouteModel, Tunnel


class GatewayHandle(Protocol):
    """A gateway process that is found or started, and told what to serve."""

    @property
    def report(self) -> Report | None:
        """Its newest report; None while it is not heard from."""
        ...

    def view(self) -> GatewayView:
        """How it is, for people."""
        ...

    async def run(self) -> None:
        """Keep it running and informed until cancelled; cancelling leaves it running."""
        ...

    def publish(
        self,
        models: tuple[RouteModel, ...],
        tunnels: Mapping[str, Tunnel],
        lost: tuple[str, ...] = (),
    ) -> None:
        """Make this its table, now or when it is next heard from."""
        ...

    async def drained(self, replica_id: str, *, timeout_s: float) -> bool:
        """Wait until it has nothing in flight to a replica that is no longer in the table."""
        ...

    async def stop(self, *, drain_s: float) -> None:
        """Let running requests finish for so long, then end it."""
        ...
