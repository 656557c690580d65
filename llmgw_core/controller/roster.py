"""All replicas that the controller knows, and what became of them, told as events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from llmgw_core.controller.ports import RestingPorts
from llmgw_core.controller.replica import Phase, Replica
from llmgw_core.ledger.events import EventLog

_TOLD = {
    Phase.STARTING: ("replica.starting", "info"),
    Phase.FETCHING: ("replica.fetching", "info"),
    Phase.LOADING: ("replica.loading", "info"),
    Phase.READY: ("replica.ready", "info"),
    Phase.DRAINING: ("replica.draining", "info"),
    Phase.STOPPING: ("replica.stopping", "info"),
    Phase.FAILED: ("replica.failed", "error"),
    Phase.UNKNOWN: ("replica.unknown", "warning"),
}


class Roster:
    """Replicas by id. ``busy`` ones belong to an action under way and are not planned for."""

    def __init__(self, events: EventLog, clock: Callable[[], float] = time.time) -> None:
        self._events = events
        self._clock = clock
        self._replicas: dict[str, Replica] = {}
        self._acted: dict[str, float] = {}
        self._removed: dict[tuple[str, str], float] = {}
        self._resting = RestingPorts()
        self.busy: set[str] = set()

    def __iter__(self) -> Iterator[Replica]:
        return iter(list(self._replicas.values()))

    def __len__(self) -> int:
        return len(self._replicas)

    def get(self, replica_id: str) -> Replica | None:
        """The replica of that id, or None."""
        return self._replicas.get(replica_id)

    def find_instance(self, node: str, instance: str) -> Replica | None:
        """The replica whose record on that node has this name, or None."""
        return next((r for r in self if r.node == node and r.instance == instance), None)

    def ports_on(self, node: str) -> frozenset[int]:
        """Ports that replicas on a node have or had."""
        return frozenset(r.port for r in self if r.node == node and r.port is not None)

    def resting_ports_on(self, node: str) -> frozenset[int]:
        """Ports that replicas on a node had a moment ago."""
        return self._resting.at(node, time.monotonic())

    def put(self, replica: Replica, *, tell: bool = True) -> None:
        """Keep this version of a replica; a change of phase becomes an event, unless it is to be
        told later."""
        before = self._replicas.get(replica.id)
        self._replicas[replica.id] = replica
        if before is not None and before.port is not None and before.port != replica.port:
            self._resting.let_go(before.node, before.port, time.monotonic())
        if tell and (before is None or before.phase is not replica.phase):
            self.tell(replica)

    def tell(self, replica: Replica) -> None:
        """Make an event of the phase that a replica is in."""
        told = _TOLD.get(replica.phase)
        if told is None:
            return
        kind, severity = told
        self._events.add(
            kind,
            _sentence(replica),
            severity=severity,
            node=replica.node,
            model=replica.model,
            replica=replica.id,
        )

    def tell_stop_failed(self, replica: Replica) -> None:
        """Make an event of a stop that did not succeed and is tried again."""
        self._events.add(
            "replica.stop_failed",
            f"{replica.id} on {replica.node} still stops: {replica.reason}",
            severity="error",
            node=replica.node,
            model=replica.model,
            replica=replica.id,
        )

    def tell_memory_held(self, replica: Replica, other: str) -> None:
        """Make an event of GPU memory that did not come back before a start goes on."""
        self._events.add(
            "node.memory_held",
            f"{replica.id} starts on {replica.node} although the GPU memory of {other}, which was "
            "stopped there, is not seen to be back",
            severity="warning",
            node=replica.node,
            model=replica.model,
            replica=replica.id,
        )

    def remove(self, replica: Replica, why: str) -> None:
        """Forget a replica that has ended, and say why it did."""
        self._forget(replica)
        self._events.add(
            "replica.stopped",
            f"{replica.id} on {replica.node} stopped: {why}",
            node=replica.node,
            model=replica.model,
            replica=replica.id,
        )

    def leave(self, replica: Replica) -> None:
        """Forget a replica whose node belongs to nobody's configuration any more."""
        self._forget(replica)
        self._events.add(
            "replica.left",
            f"{replica.id} was left on {replica.node}, which is no longer configured: what runs "
            "there goes on, and is found again once the node is configured",
            severity="warning",
            node=replica.node,
            model=replica.model,
            replica=replica.id,
        )

    def _forget(self, replica: Replica) -> None:
        self._replicas.pop(replica.id, None)
        if replica.port is not None:
            self._resting.let_go(replica.node, replica.port, time.monotonic())
        self._acted.pop(replica.id, None)
        self._removed[replica.node, replica.instance] = time.monotonic()

    def removed_at(self, node: str, instance: str) -> float | None:
        """Monotonic time at which that record was removed from its node, or None."""
        return self._removed.get((node, instance))

    def acted(self, replica_id: str) -> None:
        """Note that something was just done to it: older readings of its node do not count."""
        self._acted[replica_id] = time.monotonic()

    def is_fresh(self, replica_id: str, read_at: float | None) -> bool:
        """Whether a node's list read at that monotonic time is newer than the last act."""
        return read_at is not None and read_at > self._acted.get(replica_id, 0.0)


def _sentence(replica: Replica) -> str:
    where = f"{replica.id} on {replica.node}"
    reason = replica.reason
    match replica.phase:
        case Phase.READY:
            took = f" in {replica.load_time_s:.1f} s" if replica.load_time_s else ""
            return f"{where} is ready{took}"
        case Phase.FAILED:
            return f"{where} failed: {reason}"
        case Phase.STARTING:
            return f"{where} starts" + (f" ({reason})" if reason else "")
        case Phase.LOADING:
            pid = f", pid {replica.pid}" if replica.pid else ""
            return f"{where} loads its model{pid}" + (f" ({reason})" if reason else "")
        case _:
            return f"{where} is {replica.phase}" + (f": {reason}" if reason else "")
