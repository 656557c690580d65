"""Ports that replicas had, which rest for a while, and ranges that collide with others'. Pure."""

from __future__ import annotations

PORT_REST_S = 60.0
"""A port that a replica had is given to no other for so long: requests to the one before may still
be on their way there."""


class RestingPorts:
    """When ports were let go, by node. Times are monotonic."""

    def __init__(self) -> None:
        self._let_go: dict[tuple[str, int], float] = {}

    def let_go(self, node: str, port: int, at: float) -> None:
        """A replica there no longer has it."""
        self._let_go = {k: then for k, then in self._let_go.items() if at - then < PORT_REST_S}
        self._let_go[node, port] = at

    def at(self, node: str, now: float) -> frozenset[int]:
        """Those of a node that rest now."""
        return frozenset(
            port for (where, port), then in self._let_go.items()
            if where == node and now - then < PORT_REST_S
        )  # fmt: skip


def overlap(node: str, chosen: tuple[int, int], ephemeral: tuple[int, int] | None) -> str:
    """What is wrong with a node's port range; empty where nothing is, or it is not known.

    ``ephemeral`` is the range from which the kernel there takes ports for outgoing connections.
    """
    if ephemeral is None or chosen[1] < ephemeral[0] or ephemeral[1] < chosen[0]:
        return ""
    mine, theirs = (f"{low}-{high}" for low, high in (chosen, ephemeral))
    return (
        f"port_range {mine} of {node} lies in the range from which its kernel takes ports for "
        f"outgoing connections ({theirs}), so a replica's port may be taken now and then; choose "
        "one below"
    )
