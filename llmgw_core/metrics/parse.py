"""The part of Prometheus' text format that engines' numbers need. Pure; never raises."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

LINES_MOST = 50_000
"""An engine prints a few thousand; what comes after is not read."""

Samples = Mapping[str, tuple[float, ...]]
"""Values by metric name: one for each set of labels."""


def parse(text: str, wanted: Collection[str]) -> Samples:
    """The finite values of the metrics asked for; lines that are not such samples are skipped.

    NaN and infinities are left out: they say that nothing was measured.
    """
    found: dict[str, tuple[float, ...]] = {}
    for line in text.split("\n", LINES_MOST)[:LINES_MOST]:
        name, value = _sample(line)
        if name in wanted and value is not None and math.isfinite(value):
            found[name] = (*found.get(name, ()), value)
    return found


def _sample(line: str) -> tuple[str, float | None]:
    """Name and value of ``name{labels} value [timestamp]``; an empty name for anything else."""
    line = line.strip()
    brace = line.find("{")
    # a label's value may hold spaces and braces, but nothing after the last brace does
    end = line.rfind("}") if brace >= 0 else -1
    head, rest = (line[:brace], line[end + 1 :]) if end > brace else _split(line)
    words = rest.split()
    name = head.strip()
    if not words or len(words) > 2 or not name or name.startswith("#"):
        return "", None
    try:
        return name, float(words[0])
    except ValueError:
        return "", None


def _split(line: str) -> tuple[str, str]:
    name, _, rest = line.partition(" ")
    return name, rest


def total(samples: Samples, spellings: tuple[str, ...]) -> float | None:
    """The sum over labels of the first of these names that there is a value for, or None."""
    values = _first(samples, spellings)
    return sum(values) if values else None


def mean(samples: Samples, spellings: tuple[str, ...]) -> float | None:
    """As ``total``, for shares: several of an engine's parts do not add up to more than one."""
    values = _first(samples, spellings)
    return sum(values) / len(values) if values else None


def _first(samples: Samples, spellings: tuple[str, ...]) -> tuple[float, ...]:
    return next((samples[name] for name in spellings if name in samples), ())
