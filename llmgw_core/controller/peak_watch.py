"""Keeps what replicas really used, and finds it for the next start of the same thing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmgw_core.catalog.model import Model
from llmgw_core.controller.replica import Phase, Replica
from llmgw_core.controller.weights import WeightsKeeper
from llmgw_core.engines.llamacpp import settings_key
from llmgw_core.ledger.peaks import Peak, PeakKey, PeakLog, file_name
from llmgw_core.mirror.versions import MirrorVersion
from llmgw_core.nodes.facts import Facts

_COUNTED = (Phase.READY, Phase.DRAINING)


@dataclass(frozen=True, slots=True)
class Found:
    """A measured peak for something that is to be served."""

    peak: Peak
    exact: bool
    """False where another build, or other devices, used it."""


class PeakWatch:
    """Records while replicas run; ``log`` is written behind."""

    def __init__(self, log: PeakLog, weights: WeightsKeeper) -> None:
        self.log = log
        self._weights = weights

    def record(self, replica: Replica, model: Model | None, facts: Facts | None, at: float) -> None:
        """Note what a replica has used so far, where that is known."""
        if replica.phase not in _COUNTED or replica.peak_gb is None or model is None:
            return
        version = self._weights.version(model)
        file = weights_name(version, model.source)
        key = key_of(file, replica.engine, replica.argv, facts, gpus=replica.gpus)
        if key is not None:
            self.log.record(key, replica.peak_gb, replica.node, at, load_time_s=replica.load_time_s)

    def find(self, key: PeakKey | None) -> Found | None:
        """What was measured for this, else for the same on another build or other devices."""
        if key is None:
            return None
        peak = self.log.find(key)
        if peak is not None:
            return Found(peak, exact=True)
        near = self.log.nearest(key)
        return Found(near, exact=False) if near else None

    def of_model(
        self, model: Model, version: MirrorVersion | None, nodes: Iterable[Facts | None]
    ) -> Found | None:
        """What was measured for a model's first profile, with the engine of any of the nodes."""
        profile = model.profiles[0]
        file = weights_name(version, model.source)
        near: Found | None = None
        for facts in nodes:
            key = key_of(file, profile.engine, profile.args, facts, gpus=profile.gpus_per_node)
            found = self.find(key)
            if found is not None and found.exact:
                return found
            near = near or found
        return near


def weights_name(version: MirrorVersion | None, source: str) -> str:
    """How a model's weights are called in keys: by content where it is known."""
    files = version.files if version else ()
    sums = sorted(file.sha256 for file in files if file.sha256)
    if not sums or len(sums) != len(files):
        return file_name(None, source, version.bytes_total if version else None)
    return file_name(sums[0] if len(sums) == 1 else "+".join(s[:16] for s in sums), source, None)


def key_of(
    file: str, engine: str, argv: Sequence[str], facts: Facts | None, *, gpus: int = 0
) -> PeakKey | None:
    """The key under which a command line's memory is kept; None for engines without one."""
    settings = settings_key(engine, argv)
    found = facts.engine(engine) if facts else None
    if settings is None or found is None:
        return None
    cards = tuple(gpu.name for gpu in (facts.gpus or ())[:gpus]) if facts else ()
    return PeakKey(
        file=file,
        engine=engine,
        build=found.version,
        context=settings.context,
        parallel=settings.parallel,
        kv_type=settings.kv_type,
        devices=cards,
    )
