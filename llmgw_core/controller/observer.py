"""What nodes and engines say, brought into the roster: adopted, advanced, and told as events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from llmgw_core.catalog.model import DEFAULT_STARTUP_TIMEOUT_S
from llmgw_core.controller.keeper import Keeper
from llmgw_core.controller.lifecycle import Limits, Observation, advance
from llmgw_core.controller.liveness import Vital, new_vital, observed, tried
from llmgw_core.controller.ports import overlap
from llmgw_core.controller.render import NodeSeen
from llmgw_core.controller.replica import ADOPTED, Phase, Replica, adopted
from llmgw_core.controller.roster import Roster
from llmgw_core.controller.suspicion import Standing, suspicion
from llmgw_core.controller.watch import Watched, Watcher
from llmgw_core.engines.registry import ENGINES
from llmgw_core.errors import RefusedBecause
from llmgw_core.ledger.events import EventLog
from llmgw_core.nodes.api import FleetHandle, NodeHandle
from llmgw_core.nodes.cautions import cautions
from llmgw_core.nodes.facts import NodeState
from llmgw_core.nodes.instance import InstanceStatus

log = logging.getLogger(__name__)


FETCH_PREFIX = "fetch-"
"""Of the instances that bring weights to a node: no replicas."""


class Observer:
    """The first half of a tick: after ``observe`` the roster holds what the nodes say."""

    def __init__(
        self,
        *,
        keeper: Keeper,
        fleet: FleetHandle,
        roster: Roster,
        watcher: Watcher,
        events: EventLog,
        examine: Callable[[Replica], None],
        clock: Callable[[], float],
    ) -> None:
        self._keeper = keeper
        self._fleet = fleet
        self._roster = roster
        self._watcher = watcher
        self._events = events
        self._examine = examine
        self._clock = clock
        self._started = clock()
        self._node_states: dict[str, tuple[NodeState, RefusedBecause | None]] = {}
        self._told_ports: dict[str, str] = {}
        self._cautioned: dict[str, set[str]] = {}
        self._ever_read: set[str] = set()
        self._vitals: dict[str, tuple[str | None, Vital]] = {}
        """Of ready replicas, by id, with the token of the run that they are of."""

    def observe(self) -> None:
        """Tell what became of nodes, adopt what runs there, and bring each replica up to date."""
        self._tell_nodes()
        self._adopt()
        for replica in self._roster:
            self._observe(replica)

    def seen_nodes(self) -> list[NodeSeen]:
        """Every node as it is now, cordons applied."""
        return [self._seen(node) for node in self._fleet.nodes.values()]

    def unread(self) -> Iterator[str]:
        """Nodes that may hold replicas of ours and were not heard from since the start."""
        if self._clock() - self._started > self._keeper.config.controller.node_grace_s:
            return
        for name, node in self._fleet.nodes.items():
            if name in self._ever_read:
                continue
            if node.status.because is not RefusedBecause.HOST_KEY_UNKNOWN:
                yield name

    def unsettled(self) -> frozenset[str]:
        """Models of which it is not known yet, since the start, whether and where they are served:
        their node, or the engine that was found there, has not been heard."""
        if any(True for _ in self.unread()):
            return frozenset(model.name for model in self._keeper.catalog)
        return frozenset(
            replica.model
            for replica in self._roster
            if replica.phase is Phase.LOADING
            and replica.reason == ADOPTED
            and ((watched := self._watcher.of(replica)) is None or watched.health is None)
        )

    def suspicion(self) -> str:
        """Why this machine itself is suspected to be cut off; empty where it is not."""
        return suspicion(
            Standing(
                name,
                node.status.since if node.status.state is NodeState.UNREACHABLE else None,
                given_up=name in self._keeper.cordons,
            )
            for name, node in self._fleet.nodes.items()
            if name in self._ever_read
        )

    def _seen(self, node: NodeHandle) -> NodeSeen:
        state = node.status.state
        cordon = self._keeper.cordons.get(node.config.name)
        if state is NodeState.READY and cordon is not None:
            state = NodeState.DRAINING if cordon == "draining" else NodeState.CORDONED
        return NodeSeen(node.config, node.status, state, node.facts, node.sample, node.cpu_history)

    def _tell_nodes(self) -> None:
        for seen in self.seen_nodes():
            self._tell_cautions(seen)
            name, key = seen.config.name, (seen.state, seen.status.because)
            before = self._node_states.get(name)
            self._node_states[name] = key
            self._tell_ports(seen)
            if before == key:
                continue
            if seen.state is NodeState.CONNECTING:
                continue
            bad = seen.state in (NodeState.UNREACHABLE, NodeState.REFUSED)
            reason = f": {seen.status.reason}" if seen.status.reason else ""
            self._events.add(
                f"node.{seen.state}",
                f"node {name} is {seen.state}{reason}",
                severity="warning" if bad else "info",
                node=name,
            )

    def _tell_ports(self, seen: NodeSeen) -> None:
        """Warn of a range of ports that the node's kernel uses too; once for each such range."""
        name, facts = seen.config.name, seen.facts
        wrong = overlap(name, seen.config.port_range, facts.ephemeral_ports if facts else None)
        if wrong and self._told_ports.get(name) != wrong:
            self._events.add("node.ports", wrong, severity="warning", node=name)
        self._told_ports[name] = wrong

    def _tell_cautions(self, seen: NodeSeen) -> None:
        """What a person should know of a node that is connected, each once for as long as it lasts;
        the figures in it may change."""
        if seen.facts is None or seen.status.state is not NodeState.READY:
            return
        name = seen.config.name
        found = {_words(caution): caution for caution in cautions(seen.facts)}
        for words in found.keys() - self._cautioned.get(name, set()):
            self._events.add(
                "node.caution", f"node {name}: {found[words]}", severity="warning", node=name
            )
        self._cautioned[name] = set(found)

    def _adopt(self) -> None:
        """Take over what the nodes say runs there and the roster does not know."""
        for name, node in self._fleet.nodes.items():
            if node.instances is None:
                continue
            self._ever_read.add(name)
            for status in node.instances.values():
                known = self._roster.find_instance(name, status.name)
                foreign = status.record.get("cluster") != self._keeper.config.cluster
                foreign = foreign or status.name.startswith(FETCH_PREFIX)
                if known is None and not foreign and not self._just_removed(name, status):
                    self._take_over(name, status)

    def _just_removed(self, node: str, status: InstanceStatus) -> bool:
        """Whether a list that is about to be read anew still shows what was just forgotten."""
        at = self._fleet.nodes[node].instances_at
        gone = self._roster.removed_at(node, status.name)
        return gone is not None and (at is None or at <= gone)

    def _take_over(self, name: str, status: InstanceStatus) -> None:
        replica = adopted(name, status, now=self._clock())
        if replica is None:
            log.warning("replica.record_broken node=%s instance=%s", name, status.name)
            return
        if self._roster.get(replica.id) is not None:
            replica = replace(replica, id=f"{replica.id}@{name}")
        self._roster.put(replica, tell=False)
        what = "runs" if status.state.alive else f"was found {status.state}"
        self._events.add(
            "replica.adopted",
            f"{replica.id} {what} on {name} (pid {status.pid}) and was adopted",
            node=name,
            model=replica.model,
            replica=replica.id,
        )

    def _observe(self, replica: Replica) -> None:
        node = self._fleet.nodes.get(replica.node)
        if node is None and self._is_given_up(replica):
            self._roster.leave(replica)
            return
        ready = node is not None and node.status.state is NodeState.READY
        read = node.instances if node is not None else None
        watched = self._watcher.of(replica)
        seen = Observation(
            node_ready=ready and read is not None,
            node_reason=self._away(node),
            instance=(read or {}).get(replica.instance),
            fresh=replica.id not in self._roster.busy
            and self._roster.is_fresh(replica.id, node.instances_at if node else None),
            health=watched.health if watched else None,
            stuck=self._stuck(replica, watched, (read or {}).get(replica.instance)),
        )
        if replica.id in self._roster.busy and replica.phase is not Phase.LOADING:
            return
        limits = Limits(self._startup_s(replica), self._keeper.config.controller.unresponsive_s)
        after = advance(replica, seen, limits, self._clock())
        if after is replica:
            return
        newly_failed = after.phase is Phase.FAILED and replica.phase is not Phase.FAILED
        self._roster.put(after, tell=not newly_failed)
        if newly_failed:
            self._examine(after)

    def _stuck(
        self, replica: Replica, watched: Watched | None, status: InstanceStatus | None
    ) -> str:
        """Why a ready replica makes no token, although it answers; one in doubt is tried."""
        if replica.phase is not Phase.READY or watched is None:
            self._vitals.pop(replica.id, None)
            return ""
        now = self._clock()
        token, vital = self._vitals.get(replica.id, (None, None))
        if vital is None or token != replica.token:
            vital = new_vital(now)
        cpu_s = status.cpu_s if status is not None else None
        vital = observed(vital, watched.pulse, cpu_s, now, on_cpu=not replica.gpus)
        if watched.found is not None:
            vital = tried(vital, watched.found)
        self._vitals[replica.id] = (replica.token, vital)
        engine = ENGINES.get(replica.engine)
        if vital.wants_try(now, proves_life=engine is not None and engine.numbers_prove_life):
            self._watcher.try_one(replica)
        return vital.verdict(now)

    def _is_given_up(self, replica: Replica) -> bool:
        """Whether it is unknown for longer than a node may be away."""
        lost = replica.lost_at if replica.phase is Phase.UNKNOWN else None
        grace = self._keeper.config.controller.node_grace_s
        idle = replica.id not in self._roster.busy
        return idle and lost is not None and self._clock() - lost > grace

    def _away(self, node: NodeHandle | None) -> str:
        if node is None:
            return "is no longer configured"
        return f"is {node.status.state}: {node.status.reason}".rstrip(": ")

    def _startup_s(self, replica: Replica) -> float:
        model = self._keeper.catalog.find(replica.model)
        profile = model.profile(replica.profile) if model else None
        return profile.startup_timeout_s if profile else DEFAULT_STARTUP_TIMEOUT_S


def _words(sentence: str) -> str:
    return "".join(char for char in sentence if not char.isdigit())
