"""Time and chance as parameters, so that back-off can be tested without waiting."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

FIRST_S = 1.0
LAST_S = 60.0
REFUSED_FIRST_S = 60.0
REFUSED_LAST_S = 600.0
LEAST_S = 0.2


@dataclass(frozen=True, slots=True)
class Clock:
    """Wall clock for people, monotonic clock for everything else; both in seconds."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


SYSTEM_CLOCK = Clock()
Rng = Callable[[], float]
"""A number from 0 up to 1."""
SYSTEM_RNG: Rng = random.SystemRandom().random


def retry_delay_s(failures: int, *, refused: bool, rng: Rng) -> float:
    """How long to rest after so many failures in a row (1 is the first).

    Full jitter, so that many nodes behind one broken switch do not come back in step. A node that
    refuses is asked rarely: each try is a failed login in its log, and may get this machine banned.
    """
    growth = float(1 << min(max(failures, 1) - 1, 10))
    if refused:
        rest = min(REFUSED_FIRST_S * growth, REFUSED_LAST_S)
        return rest * (1 + 0.2 * rng())
    return max(LEAST_S, rng() * min(FIRST_S * growth, LAST_S))
