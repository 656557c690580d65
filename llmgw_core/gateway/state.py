"""The gateway's memory: the table in force, the load of every target, and the report on both.

The table holds the replicas' keys and is never written to disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from llmgw_core.gateway.metrics import Metrics
from llmgw_core.gateway.policy import Directory, Load, in_force
from llmgw_core.gateway.table import ModelDemand, Report, Table, TargetLoad
from llmgw_core.gateway.waiting import Lines

_RATE_WINDOW_S = 5.0


@dataclass(frozen=True, slots=True)
class Listening:
    """What of the report the process knows."""

    pid: int
    address: str
    open_connections: int
    draining: bool


class GatewayState:
    """Shared by every request; owned by the application."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics
        self.directory = Directory(Table(version=0))
        self.loads: dict[str, Load] = {}
        self.on_freed: Callable[[], None] = lambda: None
        """Called when a target that left the table has finished its last request."""
        self.lines = Lines()
        """Who waits for which model."""
        self._picks = 0
        self._freed: list[str] = []
        self._samples: deque[tuple[float, int, int]] = deque()

    def set_table(self, table: Table) -> None:
        """Put another table in force for requests that come from now on."""
        self.directory = Directory(in_force(table, self.directory.table))
        gone = [
            target
            for target, load in self.loads.items()
            if target not in self.directory.targets and load.outstanding == 0
        ]
        for target in gone:
            del self.loads[target]
        for target in self.directory.targets:
            self.loads.setdefault(target, Load())

    def begin(self, target: str) -> None:
        """A request goes to this target."""
        load = self.loads.setdefault(target, Load())
        self._picks += 1
        load.outstanding += 1
        load.picked = self._picks

    def end(self, target: str) -> None:
        """A request to this target is over."""
        load = self.loads[target]
        load.outstanding -= 1
        if load.outstanding == 0 and target not in self.directory.targets:
            del self.loads[target]
            self._freed.append(target)
            self.on_freed()

    def failed(self, target: str, until: float) -> None:
        """This target refused: prefer others until then."""
        load = self.loads.get(target)
        if load is not None:
            load.avoid_until = until

    def answered(self, target: str) -> None:
        """This target works."""
        load = self.loads.get(target)
        if load is not None and load.avoid_until:
            load.avoid_until = 0.0

    def sample(self, now: float) -> None:
        """Remember the totals for the rates; call about once a second."""
        self._samples.append((now, self.metrics.requests, self.metrics.chunks))
        while len(self._samples) > 2 and self._samples[1][0] < now - _RATE_WINDOW_S:
            self._samples.popleft()

    def _rates(self) -> tuple[float, float]:
        if len(self._samples) < 2:
            return 0.0, 0.0
        (start, requests, chunks), (end, requests_now, chunks_now) = (
            self._samples[0],
            self._samples[-1],
        )
        elapsed = max(end - start, 1e-3)
        return (requests_now - requests) / elapsed, (chunks_now - chunks) / elapsed

    def report(self, listening: Listening) -> Report:
        """The state now. A target freed since the last report is in it once more, with 0."""
        requests_per_s, chunks_per_s = self._rates()
        freed, self._freed = self._freed, []
        loads = [TargetLoad(target, load.outstanding) for target, load in self.loads.items()]
        loads += [TargetLoad(target, 0) for target in freed if target not in self.loads]
        return Report(
            pid=listening.pid,
            address=listening.address,
            table_version=self.directory.table.version,
            open_connections=listening.open_connections,
            requests_total=self.metrics.requests,
            requests_per_s=round(requests_per_s, 3),
            output_chunks_per_s=round(chunks_per_s, 3),
            models=self._demand(),
            targets=tuple(loads),
            draining=listening.draining,
        )

    def _demand(self) -> tuple[ModelDemand, ...]:
        found: list[ModelDemand] = []
        for model in self.directory.table.models:
            stats = self.metrics.stats(model.name)
            found.append(
                ModelDemand(
                    model=model.name,
                    running=stats.running,
                    waiting=self.lines.count(model.name),
                    requests_total=stats.requests,
                    errors_total=stats.errors,
                    last_end=stats.last_end,
                    unserved_total=stats.unserved,
                )
            )
        return tuple(found)
