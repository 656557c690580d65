"""The snapshot that every face sees, made from all that the controller knows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from llmgw_core.api.views import ControllerView, ModelView, Snapshot
from llmgw_core.catalog.model import Model
from llmgw_core.controller.appraisals import Appraiser
from llmgw_core.controller.gateway_handle import GatewayHandle
from llmgw_core.controller.keeper import Keeper
from llmgw_core.controller.mirror_handle import MirrorHandle
from llmgw_core.controller.peak_watch import PeakWatch
from llmgw_core.controller.planner import Plan
from llmgw_core.controller.render import NodeSeen, model_view, node_view, replica_view, room_of
from llmgw_core.controller.replica import Replica
from llmgw_core.controller.roster import Roster
from llmgw_core.controller.watch import Watcher
from llmgw_core.controller.weights import WeightsKeeper
from llmgw_core.mirror.looks import with_users
from llmgw_core.placement.place import headroom_free
from llmgw_core.placement.rooms import Room

HEADROOM_EVERY_S = 10.0
HEADROOM_MOST = 64
"""Counting goes no further: it places one imagined replica after the other."""


class SnapshotMaker:
    """Makes snapshots, and keeps what is too dear to be counted for each of them."""

    def __init__(
        self,
        *,
        keeper: Keeper,
        roster: Roster,
        watcher: Watcher,
        gateway: GatewayHandle,
        mirror: MirrorHandle,
        weights: WeightsKeeper,
        appraiser: Appraiser,
        peaks: PeakWatch,
    ) -> None:
        self._keeper = keeper
        self._roster = roster
        self._watcher = watcher
        self._gateway = gateway
        self._mirror = mirror
        self._weights = weights
        self._appraiser = appraiser
        self._peaks = peaks
        self._headrooms: dict[str, tuple[object, float, int | None]] = {}

    def make(
        self,
        controller: ControllerView,
        nodes: Sequence[NodeSeen],
        rooms: Mapping[str, Room],
        plan: Plan,
        now: float,
    ) -> Snapshot:
        """Everything that faces see, at ``now`` in Unix seconds; ``rooms`` with bookings."""
        report = self._gateway.report
        outstanding = {t.id: t.outstanding for t in report.targets} if report else {}
        requests = {m.model: m.requests_total for m in report.models} if report else {}
        replicas = sorted(self._roster, key=lambda r: (r.model, _natural(r.id)))
        watched = {r.id: w for r in replicas if (w := self._watcher.of(r)) is not None}
        by_model: dict[str, list[Replica]] = {}
        for replica in replicas:
            by_model.setdefault(replica.model, []).append(replica)
        return Snapshot(
            version=0,
            time=now,
            cluster=self._keeper.config.cluster,
            controller=controller,
            gateway=self._gateway.view(),
            nodes=tuple(node_view(s, rooms.get(s.config.name)) for s in nodes),
            replicas=tuple(
                replica_view(r, watched.get(r.id), outstanding.get(r.id)) for r in replicas
            ),
            models=tuple(
                self._appraised(
                    model,
                    nodes,
                    model_view(
                        model,
                        by_model.get(model.name, []),
                        watched,
                        reason=plan.pending_reason(model.name),
                        headroom=self._headroom(model, rooms),
                        requests_total=requests.get(model.name),
                    ),
                )
                for model in self._keeper.catalog
            ),
            mirror=with_users(
                self._mirror.view(), self._weights.users(self._keeper.catalog), holdings(nodes)
            ),
        )

    def _appraised(self, model: Model, nodes: Sequence[NodeSeen], view: ModelView) -> ModelView:
        """The row with what its weights will use, and what they used."""
        found = self._appraiser.of(model)
        peak = self._peaks.of_model(
            model, self._weights.version(model), (seen.facts for seen in nodes)
        )
        return msgspec.structs.replace(
            view,
            architecture=found.architecture if found else "",
            estimate_gb=found.estimate_gb if found else None,
            memory_basis=found.basis if found else "",
            measured_gb=peak.peak.peak_gb if peak and peak.exact else None,
        )

    def _headroom(self, model: Model, rooms: Mapping[str, Room]) -> int | None:
        """How many more would fit; counted again only now and then, since counting is dear."""
        replicas = tuple(r.id for r in self._roster)
        kept = self._headrooms.get(model.name)
        now = time.monotonic()
        if kept and kept[0] == (model, replicas) and now - kept[1] < HEADROOM_EVERY_S:
            return kept[2]
        count = headroom_free(
            model,
            rooms,
            self._weights.need(model),
            self._appraiser.barred_for(model),
            limit=HEADROOM_MOST,
        )
        self._headrooms[model.name] = ((model, replicas), now, count)
        return count


def holdings(nodes: Sequence[NodeSeen]) -> dict[str, tuple[str, ...]]:
    """The nodes that hold each version of the mirror whole, as they said last."""
    found: dict[str, tuple[str, ...]] = {}
    for seen in nodes:
        for key in room_of(seen).weights:
            found[key] = (*found.get(key, ()), seen.config.name)
    return found


def _natural(text: str) -> tuple[str, int]:
    """Sort key under which .10 comes after .9."""
    stem, _, number = text.rpartition(".")
    return (stem, int(number)) if number.isdigit() else (text, 0)
