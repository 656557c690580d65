"""What runs on nodes and belongs to nobody: found, ended, and told.

The node's mark says which directory a process belongs to, and the record there which cluster: what
carries neither is never looked at.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from llmgw_core.controller.observer import FETCH_PREFIX
from llmgw_core.controller.replica import Phase, adopted
from llmgw_core.controller.roster import Roster
from llmgw_core.errors import LlmgwError
from llmgw_core.ledger.events import EventLog
from llmgw_core.nodes.api import FleetHandle, NodeHandle
from llmgw_core.nodes.facts import NodeState
from llmgw_core.nodes.instance import InstanceState, InstanceStatus

log = logging.getLogger(__name__)

SETTLE_S = 10.0
"""What belongs to nobody for so long is ended: a start that is under way may look like that."""
AGAIN_S = 60.0
"""Pause before what could not be ended, or not be asked, is tried again."""
SCAN_S = 300.0
"""Between two looks for processes without a living engine; each new connection has one too, and
each engine that ended unseen."""
GRACE_S = 10.0


def unclaimed(
    instances: Mapping[str, InstanceStatus],
    *,
    known: AbstractSet[str],
    cluster: str,
    needed: AbstractSet[str],
) -> dict[str, str]:
    """Instances of this cluster that no replica and no fetch needs, with the reason. Pure.

    Args:
        instances: of one node, by name.
        known: names of those that the roster knows.
        cluster: this cluster's name.
        needed: versions of weights that somebody waits for or that the catalog needs.
    """
    found = {name: _why(status, cluster, needed) for name, status in instances.items()
             if name not in known}  # fmt: skip
    return {name: why for name, why in found.items() if why}


def _why(status: InstanceStatus, cluster: str, needed: AbstractSet[str]) -> str:
    if not status.record:  # a folder in which nothing was ever started is nobody's
        return "its record cannot be read" if status.token is not None else ""
    if status.record.get("cluster") != cluster:
        return ""
    if status.name.startswith(FETCH_PREFIX):
        weights = str(status.record.get("weights"))
        return "" if weights in needed else f"nobody needs {weights} here any more"
    return "" if adopted("", status, now=0.0) is not None else "its record names no replica"


class Reaper:
    """One task at a time for each node that has something to end."""

    def __init__(
        self,
        *,
        fleet: FleetHandle,
        roster: Roster,
        events: EventLog,
        cluster: str,
        needed: Callable[[], AbstractSet[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fleet = fleet
        self._roster = roster
        self._events = events
        self._cluster = cluster
        self._needed = needed
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._due: dict[tuple[str, str, str | None], float] = {}
        """When what belongs to nobody is ended, by node, name and start."""
        self._scans: dict[str, tuple[float, float]] = {}
        """By node: since when it was ready, and when its next look is due."""
        self._orphaned: dict[str, frozenset[tuple[str, str | None]]] = {}

    def sweep(self) -> None:
        """Begin what is due; called with every tick, after what runs was adopted."""
        needed = self._needed()
        seen: set[tuple[str, str, str | None]] = set()
        for name, node in self._fleet.nodes.items():
            if node.status.state is not NodeState.READY or node.instances is None:
                continue
            ours = frozenset(r.instance for r in self._roster if r.node == name)
            found = unclaimed(
                node.instances, known=ours, cluster=self._cluster, needed=needed
            )  # fmt: skip
            keys = {(name, one, node.instances[one].token): why for one, why in found.items()}
            seen |= keys.keys()
            ripe = {key[1]: why for key, why in keys.items() if self._is_ripe(key)}
            scan = self._is_scan_due(name, node)
            if (ripe or scan) and name not in self._tasks:
                self._begin(name, node, ripe, scan=scan)
        for gone in self._due.keys() - seen:
            del self._due[gone]

    async def aclose(self) -> None:
        """Cancel what is under way; it is found again."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._tasks

    def _is_ripe(self, key: tuple[str, str, str | None]) -> bool:
        return self._clock() >= self._due.setdefault(key, self._clock() + SETTLE_S)

    def _is_scan_due(self, name: str, node: NodeHandle) -> bool:
        since, due = self._scans.get(name, (None, 0.0))
        orphaned = self._unwatched(name, node.instances or {})
        new = orphaned - self._orphaned.get(name, frozenset())
        self._orphaned[name] = orphaned
        return bool(new) or since != node.status.since or self._clock() >= due

    def _unwatched(
        self, name: str, instances: Mapping[str, InstanceStatus]
    ) -> frozenset[tuple[str, str | None]]:
        """Runs whose engine or record went away with nobody there to end what they left."""
        lost = {(n, s.token) for n, s in instances.items() if s.state is InstanceState.LOST}
        failed = (r for r in self._roster if r.node == name and r.phase is Phase.FAILED)
        gone = {(r.instance, r.token) for r in failed if r.instance not in instances}
        return frozenset(lost | gone)

    def _begin(self, name: str, node: NodeHandle, ripe: Mapping[str, str], *, scan: bool) -> None:
        now = self._clock()
        for key in [key for key in self._due if key[0] == name and key[1] in ripe]:
            self._due[key] = now + AGAIN_S
        if scan:
            self._scans[name] = (node.status.since, now + SCAN_S)
        task = asyncio.create_task(self._work(node, ripe, scan=scan), name=f"reap {name}")
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def _work(self, node: NodeHandle, ripe: Mapping[str, str], *, scan: bool) -> None:
        try:
            for name, why in ripe.items():
                await self._stop(node, name, why)
            if scan:
                for name, pids in (await node.strays()).items():
                    await self._reap(node, name, pids)
        except LlmgwError as error:
            log.info("reap.put_off node=%s error=%s", node.config.name, error)
        except Exception:
            # the boundary of this task: the next sweep begins anew from what is there
            log.exception("reap.broke node=%s", node.config.name)

    async def _stop(self, node: NodeHandle, name: str, why: str) -> None:
        result = await node.stop_instance(name, grace_s=GRACE_S)
        if result.left:
            self._tell_left(node, name, result.left)
            return
        await node.forget_instance(name)
        kind = "weights.fetch_stopped" if name.startswith(FETCH_PREFIX) else "replica.reaped"
        where = node.config.name
        self._events.add(
            kind, f"{name} on {where} was stopped and removed: {why}", severity="warning",
            node=where,
        )  # fmt: skip

    async def _reap(self, node: NodeHandle, name: str, pids: tuple[int, ...]) -> None:
        where = node.config.name
        replica = self._roster.find_instance(where, name)
        if replica is not None and replica.id in self._roster.busy:
            return  # whoever acts on it ends them
        result = await node.reap(name, grace_s=GRACE_S)
        if result.left:
            self._tell_left(node, name, result.left)
        elif result.found:
            self._events.add(
                "replica.reaped",
                f"processes {_list(result.found)} on {where} were ended: they outlived {name}, "
                "whose engine or record is gone",
                severity="warning",
                node=where,
            )

    def _tell_left(self, node: NodeHandle, name: str, left: tuple[int, ...]) -> None:
        where = node.config.name
        self._events.add(
            "replica.reap_failed",
            f"processes {_list(left)} of {name} on {where} belong to nobody and do not end, even "
            "when killed; look at them there",
            severity="error",
            node=where,
        )


def _list(pids: tuple[int, ...]) -> str:
    return ", ".join(map(str, pids))
