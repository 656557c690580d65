"""What a request's exchange is given: the gateway's parts, and how the request was let in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from llmgw_core.gateway.keys import Key
from llmgw_core.gateway.limits import Limiter, Ticket
from llmgw_core.gateway.metrics import Metrics, RequestRecord
from llmgw_core.gateway.policy import RoutingPolicy
from llmgw_core.gateway.pool import Pool
from llmgw_core.gateway.settings import GatewaySettings
from llmgw_core.gateway.state import GatewayState


class Services(Protocol):
    """What an exchange uses of the gateway."""

    settings: GatewaySettings
    state: GatewayState
    metrics: Metrics
    pool: Pool
    policy: RoutingPolicy
    limiter: Limiter
    observers: list[Callable[[RequestRecord], None]]
    """Each is told of every request that is over: the place for usage accounting."""
    loop: asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True)
class Entry:
    """How a request was let in."""

    key: Key | None
    owner: str | None
    """Whom it is charged to."""
    ticket: Ticket
