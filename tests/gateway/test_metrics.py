from __future__ import annotations

from llmgw_core.gateway.metrics import (
    Histogram,
    Metrics,
    Outcome,
    RequestRecord,
    render,
)


def record(status: int = 200, outcome: Outcome = Outcome.DONE, **other: object) -> RequestRecord:
    values: dict[str, object] = {
        "model": "m",
        "requested": "m",
        "target": "m-1",
        "status": status,
        "outcome": outcome,
        "stream": False,
        "ttft_s": 0.2,
        "duration_s": 1.0,
        "chunks": 1,
        "tries": 1,
        **other,
    }
    return RequestRecord(**values)  # type: ignore[arg-type]


def test_buckets_add_up() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    assert list(histogram.lines("x", 'model="m"')) == [
        'x_bucket{model="m",le="0.1"} 2',
        'x_bucket{model="m",le="1"} 3',
        'x_bucket{model="m",le="+Inf"} 4',
        'x_sum{model="m"} 7.650000',
        'x_count{model="m"} 4',
    ]


def test_each_end_is_counted_under_its_kind() -> None:
    metrics = Metrics()
    metrics.observe(record(), wall=5.0)
    metrics.observe(record(503, Outcome.REFUSED, unserved=True, ttft_s=None), wall=6.0)
    metrics.observe(record(200, Outcome.CUT, tries=3), wall=7.0)
    metrics.observe(record(499, Outcome.GONE, ttft_s=None), wall=8.0)
    stats = metrics.stats("m")
    assert stats.by_status == {200: 2, 503: 1, 499: 1}
    assert (stats.requests, stats.errors, stats.unserved) == (4, 2, 1)
    assert (stats.retries, stats.gone, stats.cut, stats.last_end) == (2, 1, 1, 8.0)
    # what was refused here says nothing of how long answers take, nor does a missing first byte
    assert sum(stats.duration.counts) == 3
    assert sum(stats.ttft.counts) == 2


def test_the_text_is_well_formed_for_any_name() -> None:
    metrics = Metrics()
    metrics.observe(record(model='a"b\\c\nd'), wall=1.0)
    text = render(metrics, [("llmgw_x", "An x.", 2.0)], {"t": 3})
    assert 'llmgw_requests_total{model="a\\"b\\\\c\\nd",status="200"} 1\n' in text
    assert 'llmgw_target_outstanding{target="t"} 3\n' in text
    assert text.endswith("llmgw_x 2\n")
    names = [line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
