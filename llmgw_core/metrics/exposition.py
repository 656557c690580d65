"""The part of Prometheus' text format that engines' numbers need. Pure; never raises."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

LINES_MOST = 50_000

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{.*\})?\s+(\S+)")


def parse_samples(text: str) -> dict[str, float]:
    """Values by metric name, summed over labels; lines that are not samples are skipped.

    NaN and infinities are left out: they say that nothing was measured.
    """
    found: dict[str, float] = {}
    for line in text.splitlines()[:LINES_MOST]:
        match = _SAMPLE.match(line)
        if match is None:
            continue
        try:
            value = float(match[2])
        except ValueError:
            continue
        if math.isfinite(value):
            found[match[1]] = found.get(match[1], 0.0) + value
    return found


def pick(samples: Mapping[str, float], spellings: tuple[str, ...]) -> float | None:
    """The first of these names that there is a value for, or None."""
    return next((samples[name] for name in spellings if name in samples), None)
