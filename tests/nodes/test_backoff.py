"""How long a node rests between tries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.nodes.clock import retry_delay_s


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_bounds(failures: int, chance: float) -> None:
    delay = retry_delay_s(failures, refused=False, rng=lambda: chance)
    assert 0 < delay <= min(2.0 ** min(failures - 1, 6), 60.0)
    assert 60 <= retry_delay_s(failures, refused=True, rng=lambda: chance) <= 720


def test_growth() -> None:
    delays = [retry_delay_s(n, refused=False, rng=lambda: 1.0) for n in range(1, 9)]
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]
