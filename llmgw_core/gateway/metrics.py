"""What the gateway counts, and how Prometheus reads it. No I/O; the clock is passed in."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from llmgw_core.gateway.keys import Key
from llmgw_core.gateway.usage import NOTHING, Usage

TTFT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
TPOT_BUCKETS = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
DURATION_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Outcome(StrEnum):
    """How a request ended, as far as the gateway can say."""

    DONE = "done"
    """Relayed to its end, whatever status the engine gave."""
    REFUSED = "refused"
    """Answered here with an error before anything of an engine's answer went out."""
    CUT = "cut"
    """The engine's answer broke off after its first part had gone out."""
    GONE = "gone"
    """The client went away first."""


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request, told once when it is over. Usage accounting hooks in here."""

    model: str | None
    """The catalog's name; None where none was found."""
    requested: str | None
    """The name that the client asked for."""
    target: str | None
    status: int
    """As sent to the client; 499 where it left before any was sent."""
    outcome: Outcome
    stream: bool
    ttft_s: float | None
    """From the request's last byte to the first byte of the answer's body."""
    duration_s: float
    chunks: int
    tries: int
    unserved: bool = False
    """Whether it failed for want of a ready replica."""
    path: str = ""
    owner: str | None = None
    """Whom it is charged to: the key's, else the model's."""
    key: Key | None = None
    """With which it came; None where none was needed."""
    usage: Usage = NOTHING
    """Of the answer, as the engine told it."""


class Histogram:
    """Counts by upper bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value, in seconds."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Its samples in Prometheus' text form."""
        seen = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            seen += count
            yield f'{name}_bucket{{{labels},le="{bound:g}"}} {seen}'
        seen += self.counts[-1]
        yield f'{name}_bucket{{{labels},le="+Inf"}} {seen}'
        yield f"{name}_sum{{{labels}}} {self.total:.6f}"
        yield f"{name}_count{{{labels}}} {seen}"


@dataclass(slots=True)
class ModelStats:
    """One model's numbers since the gateway started."""

    running: int = 0
    requests: int = 0
    errors: int = 0
    unserved: int = 0
    retries: int = 0
    gone: int = 0
    cut: int = 0
    last_end: float | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    by_status: dict[int, int] = field(default_factory=dict)
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BUCKETS))
    tpot: Histogram = field(default_factory=lambda: Histogram(TPOT_BUCKETS))
    duration: Histogram = field(default_factory=lambda: Histogram(DURATION_BUCKETS))


class Metrics:
    """All numbers. ``models`` has the key None for requests that named no known model."""

    def __init__(self) -> None:
        self.models: dict[str | None, ModelStats] = {}
        self.requests = 0
        self.chunks = 0

    def stats(self, model: str | None) -> ModelStats:
        """The numbers of one model, made on first use."""
        found = self.models.get(model)
        if found is None:
            found = self.models[model] = ModelStats()
        return found

    def observe(self, record: RequestRecord, *, wall: float) -> None:
        """Count one request that is over; ``wall`` is Unix time in seconds."""
        stats = self.stats(record.model)
        self.requests += 1
        stats.requests += 1
        stats.by_status[record.status] = stats.by_status.get(record.status, 0) + 1
        stats.last_end = wall
        stats.retries += max(record.tries - 1, 0)
        stats.unserved += record.unserved
        stats.gone += record.outcome is Outcome.GONE
        stats.cut += record.outcome is Outcome.CUT
        stats.errors += record.status >= 500 or record.outcome is Outcome.CUT
        if record.outcome is not Outcome.REFUSED:
            stats.duration.observe(record.duration_s)
            if record.ttft_s is not None:
                stats.ttft.observe(record.ttft_s)
            _observe_tokens(stats, record)


def _observe_tokens(stats: ModelStats, record: RequestRecord) -> None:
    usage = record.usage
    stats.prompt_tokens += usage.prompt_tokens or 0
    stats.completion_tokens += usage.completion_tokens or 0
    stats.cached_tokens += usage.cached_tokens or 0
    # a stream's first token comes with its first byte; what came at once tells no rate
    after_first = (usage.completion_tokens or 0) - 1
    if record.stream and record.ttft_s is not None and after_first > 0:
        stats.tpot.observe((record.duration_s - record.ttft_s) / after_first)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def render(
    metrics: Metrics, gauges: Iterable[tuple[str, str, float]], loads: dict[str, int]
) -> str:
    """The text that ``/metrics`` answers with.

    Args:
        metrics: the counters.
        gauges: name, help and value of each number without labels.
        loads: requests in flight by target.
    """
    lines: list[str] = []

    def head(name: str, kind: str, text: str) -> None:
        lines.append(f"# HELP {name} {text}")
        lines.append(f"# TYPE {name} {kind}")

    models = [(f"model={_quoted(name or '')}", stats) for name, stats in metrics.models.items()]
    head("llmgw_requests_total", "counter", "Requests that are over, by model and status.")
    for labels, stats in models:
        for status, count in sorted(stats.by_status.items()):
            lines.append(f'llmgw_requests_total{{{labels},status="{status}"}} {count}')
    for name, kind, text, key in _SIMPLE:
        head(name, kind, text)
        lines.extend(f"{name}{{{labels}}} {getattr(stats, key)}" for labels, stats in models)
    head("llmgw_ttft_seconds", "histogram", "From the request to the first byte of its answer.")
    for labels, stats in models:
        lines.extend(stats.ttft.lines("llmgw_ttft_seconds", labels))
    head("llmgw_tpot_seconds", "histogram", "Between two tokens of a stream, on average.")
    for labels, stats in models:
        lines.extend(stats.tpot.lines("llmgw_tpot_seconds", labels))
    head("llmgw_duration_seconds", "histogram", "From the request to the end of its answer.")
    for labels, stats in models:
        lines.extend(stats.duration.lines("llmgw_duration_seconds", labels))
    head("llmgw_target_outstanding", "gauge", "Requests in flight to one replica.")
    lines.extend(
        f"llmgw_target_outstanding{{target={_quoted(target)}}} {count}"
        for target, count in loads.items()
    )
    head("llmgw_chunks_total", "counter", "Pieces of answers relayed.")
    lines.append(f"llmgw_chunks_total {metrics.chunks}")
    for name, text, value in gauges:
        head(name, "gauge", text)
        lines.append(f"{name} {value:g}")
    return "\n".join(lines) + "\n"


_SIMPLE = (
    ("llmgw_in_flight", "gauge", "Requests running now.", "running"),
    (
        "llmgw_unserved_total",
        "counter",
        "Requests for a model without a ready replica.",
        "unserved",
    ),
    ("llmgw_prompt_tokens_total", "counter", "Of prompts, cached ones too.", "prompt_tokens"),
    ("llmgw_completion_tokens_total", "counter", "Of answers.", "completion_tokens"),
    ("llmgw_cached_tokens_total", "counter", "Of prompts, held already.", "cached_tokens"),
    ("llmgw_retries_total", "counter", "Tries on a second replica or connection.", "retries"),
    ("llmgw_client_gone_total", "counter", "Requests whose client left first.", "gone"),
    ("llmgw_cut_total", "counter", "Answers that broke off half way.", "cut"),
)
