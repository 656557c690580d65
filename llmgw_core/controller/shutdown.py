"""Stopping everything that a controller runs, with bounded waits."""

from __future__ import annotations

import asyncio

from llmgw_core.controller.core import Controller
from llmgw_core.controller.replica import Phase
from llmgw_core.errors import LlmgwError

STOP_MOST_S = 90.0


async def stop_replicas(controller: Controller, why: str, *, within_s: float = STOP_MOST_S) -> None:
    """Stop every replica on a node that answers, and wait until they are gone.

    Raises:
        LlmgwError: some did not end in time; they are named.
    """
    controller.halted = True
    try:
        async with asyncio.timeout(within_s):
            while left := _within_reach(controller):
                for replica_id in left:
                    controller.executor.stop(replica_id, why)
                await asyncio.sleep(0.1)
    except TimeoutError:
        names = ", ".join(_within_reach(controller))
        controller.halted = False
        raise LlmgwError(f"these replicas did not end within {within_s:.0f} s: {names}") from None


def _within_reach(controller: Controller) -> list[str]:
    return [r.id for r in controller.roster if r.phase is not Phase.UNKNOWN]
