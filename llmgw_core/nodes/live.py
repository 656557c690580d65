"""What is known about a node from moment to moment: facts, metrics, instances.

The live stream tells instances' states without their records; those come from the last full
reading. Where the two do not speak of the same instances, a full reading is asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from llmgw_core.nodes.facts import Facts, HostSample
from llmgw_core.nodes.instance import InstanceStatus

HISTORY = 120


class Live:
    """One node's newest values. Times are monotonic."""

    def __init__(self) -> None:
        self.facts: Facts | None = None
        self.sample: HostSample | None = None
        self.instances: Mapping[str, InstanceStatus] | None = None
        self.instances_at: float | None = None
        self._acted_at = float("-inf")
        self._cpu: deque[float | None] = deque(maxlen=HISTORY)

    @property
    def cpu_history(self) -> tuple[float | None, ...]:
        """The last samples' CPU share, oldest first; None for gaps."""
        return tuple(self._cpu)

    def sampled(self, sample: HostSample) -> None:
        """The stream brought host metrics."""
        self.sample = sample
        self._cpu.append(sample.cpu)

    def gap(self) -> None:
        """The stream is away: nothing is known, and one gap shows it."""
        if self.sample is not None:
            self._cpu.append(None)
        self.sample = None

    def away(self) -> None:
        """The link is gone. Facts are kept; what moves is not known any more."""
        self.gap()
        self.instances = None
        self.instances_at = None

    def read(self, found: Mapping[str, InstanceStatus], at: float) -> bool:
        """A full reading that began at ``at``; returns whether anything changed."""
        if self.instances_at is not None and at < self.instances_at:
            return False
        changed = _told(found) != _told(self.instances)
        self.instances, self.instances_at = dict(found), at
        return changed

    def acted(self, status: InstanceStatus, at: float) -> None:
        """An act that ended at ``at`` left an instance so; the reading keeps its age."""
        self._acted_at = max(self._acted_at, at)
        self.instances = {**(self.instances or {}), status.name: status}

    def forgot(self, name: str, at: float) -> None:
        """An instance's record was removed."""
        self._acted_at = max(self._acted_at, at)
        self.instances = {k: v for k, v in (self.instances or {}).items() if k != name}

    def same_instances(self, seen: Mapping[str, InstanceStatus]) -> bool:
        """Whether the stream speaks of exactly those instances whose records are known."""
        known = self.instances
        return known is not None and {n: s.token for n, s in seen.items()} == {
            n: s.token for n, s in known.items()
        }

    def streamed(self, seen: Mapping[str, InstanceStatus], at: float) -> bool:
        """States of known instances, read at ``at`` or later; returns whether any changed."""
        known = self.instances
        if known is None or at <= self._acted_at or at < (self.instances_at or at):
            return False
        merged = {
            name: replace(status, record=known[name].record)
            for name, status in seen.items()
            if name in known
        }
        changed = _told(merged) != _told(known)
        self.instances, self.instances_at = merged, at
        return changed


def _told(instances: Mapping[str, InstanceStatus] | None) -> object:
    """What of a list is worth telling: ages and sizes change all the time."""
    if instances is None:
        return None
    return {n: (s.state, s.token, s.pid, s.exit_status) for n, s in instances.items()}
