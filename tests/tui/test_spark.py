"""Curves and bars made of characters."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from llmgw_tui.spark import bar, spark


def test_the_newest_is_at_the_right_and_room_stays_at_the_left() -> None:
    assert spark([0.0, 0.5, 1.0], 0, 1, 5) == "  ▁▅█"
    assert spark([1.0, 1.0, 0.0], 0, 1, 2) == "█▁"


def test_the_scale_is_the_callers_whatever_the_values() -> None:
    assert spark([0.1, 0.1], 0, 1, 2) == spark([0.1, 9.0], 0, 1, 2)[0] * 2
    assert spark([-5.0, 99.0], 0, 1, 2) == "▁█"


def test_what_is_not_known_is_a_gap() -> None:
    assert spark([1.0, None, math.nan, 0.0], 0, 1, 4) == "█  ▁"


def test_ascii_has_no_other_characters() -> None:
    assert spark([i / 8 for i in range(9)], 0, 1, 9, ascii=True).isascii()
    assert bar(0.5, 4, ascii=True) == "##.."


@given(
    st.lists(st.none() | st.floats(allow_nan=True, allow_infinity=True)),
    st.integers(-1, 40),
    st.floats(-100, 100),
    st.floats(-100, 100),
)
def test_a_curve_has_its_width_whatever_it_is_given(
    values: list[float | None], width: int, lo: float, hi: float
) -> None:
    assert len(spark(values, lo, hi, width)) == max(width, 0)


def test_a_bar_is_full_at_one_and_dashed_where_unknown() -> None:
    assert bar(1.0, 3) == bar(7.0, 3) == "━━━"
    assert bar(0.0, 3) == bar(None, 3) == "╌╌╌"
