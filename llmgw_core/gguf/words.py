"""Sizes as a person reads them: GB in texts are GiB. Pure."""

from __future__ import annotations

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


def size(count: int) -> str:
    """A number of bytes in GB with one decimal, or in whole MB or KB where that is 0.0 GB."""
    if count == 0 or count >= GIB / 10:
        return f"{count / GIB:.1f} GB"
    if count >= MIB:
        return f"{count / MIB:.0f} MB"
    return f"{count / KIB:.0f} KB"


def plural(count: int, noun: str) -> str:
    """A number with its noun: ``1 slot``, ``4 slots``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
