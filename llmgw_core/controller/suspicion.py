"""Whether it is this machine that is cut off, rather than the nodes. Pure.

Nodes fail one by one; many that go away together have one thing in common, and that is us. While
that is likely nothing is moved away from them: their replicas go on, and would be doubled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

TOGETHER_S = 60.0
"""Nodes whose losses lie this close together went away together: a link is noticed within 10 s,
and more once the machine has slept."""
LEAST = 2


@dataclass(frozen=True, slots=True)
class Standing:
    """One node that was reached at some time since the start."""

    name: str
    lost_at: float | None = None
    """Unix seconds at which it went away; None while it is reached."""
    given_up: bool = False
    """A person has cordoned or drained it: its absence is no surprise."""


def suspicion(nodes: Iterable[Standing]) -> str:
    """One sentence on why this machine is suspected; empty where it is not.

    It is suspected where at least two nodes, and more than half of all, went away together. A node
    that is drained or cordoned counts neither way, which is how a person ends it.
    """
    counted = [node for node in nodes if not node.given_up]
    lost = sorted(node.lost_at for node in counted if node.lost_at is not None)
    together = _together(lost)
    if together < LEAST or 2 * together <= len(counted):
        return ""
    return (
        f"{together} of {len(counted)} nodes went away together, so this machine's own network is "
        "suspected and no replica is replaced; drain the nodes that are really gone"
    )


def _together(times: list[float]) -> int:
    """The most losses that lie within ``TOGETHER_S``; ``times`` is sorted."""
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] > TOGETHER_S:
            first += 1
        most = max(most, last - first + 1)
    return most
