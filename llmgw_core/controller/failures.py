"""Where models have failed lately, so that another node is tried before the same again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llmgw_core.controller.replica import Phase, Replica

TRIES = 3
"""Failures in a row on one node before another is tried."""
AVOIDED_S = 600.0


class FailureBook:
    """By model: nodes to avoid, with the reason. Kept up to date by reading the replicas."""

    def __init__(self) -> None:
        self._noted: dict[tuple[str, str, str], tuple[float, str]] = {}

    def read(self, replicas: Iterable[Replica], now: float) -> dict[str, Mapping[str, str]]:
        """Note what has failed ``TRIES`` times; what is to be avoided now.

        A changed profile or source is another revision, and starts with a clean slate.
        """
        revisions: dict[str, set[str]] = {}
        for replica in replicas:
            revisions.setdefault(replica.model, set()).add(replica.revision)
            if replica.phase is Phase.FAILED and replica.failures >= TRIES:
                key = (replica.model, replica.revision, replica.node)
                why = f"failed there {replica.failures} times: {replica.reason}"
                self._noted[key] = (now, why)
        found: dict[str, dict[str, str]] = {}
        for (model, revision, node), (at, why) in list(self._noted.items()):
            other = revisions.get(model, set())
            if now - at > AVOIDED_S or (other and revision not in other):
                del self._noted[model, revision, node]
            else:
                found.setdefault(model, {})[node] = why
        return dict(found)
