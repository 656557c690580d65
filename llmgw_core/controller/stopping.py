"""A stop that did not succeed, and when it is tried again. Pure."""

from __future__ import annotations

from dataclasses import replace

from llmgw_core.controller.replica import Phase, Replica, backoff_s

STOP_AGAIN_MOST_S = 60.0
"""Longest pause between two tries of a stop: until one succeeds its memory stays booked."""


def stop_failed(replica: Replica, error: str, *, now: float) -> Replica:
    """A replica whose stop failed: it goes on stopping, and never goes back to serving."""
    count = replica.stop_failures + 1
    pause = min(backoff_s(count), STOP_AGAIN_MOST_S)
    return replace(
        replica,
        phase=Phase.STOPPING,
        reason=f"{replica.stop_why}; this failed: {error}" if replica.stop_why else error,
        stop_failures=count,
        retry_at=now + pause,
    )
