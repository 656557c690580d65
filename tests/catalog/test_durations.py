from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.catalog.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("250ms", 0.25),
        ("90s", 90),
        ("1h30m", 5400),
        ("1h 30m", 5400),
        ("2d", 172800),
        ("1.5h", 5400),
        ("1m500ms", 60.5),
        ("90", 90),
        (" 5s ", 5),
        (90, 90),
        (0.04, 0.04),
        (0, 0),
        ("0s", 0),
    ],
)
def test_what_people_write(written: object, seconds: float) -> None:
    assert parse_duration(written) == pytest.approx(seconds, abs=0)


@pytest.mark.parametrize(
    "written",
    ["", " ", "fast", "-5s", "30m1h", "1h1h", "5 parsecs", "1.s", "١s", "s", "1e3s", True, None, [],
     -1, -0.5, float("inf"), float("nan"), 10**400, "9" * 400, "1h" + " " * 5000 + "x"],
)  # fmt: skip
def test_what_is_no_duration(written: object) -> None:
    with pytest.raises(ValueError, match=r"must|duration"):
        parse_duration(written)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5400, "1h30m"), (900, "15m"), (0.25, "250ms"), (0, "0s"), (86400, "24h"), (1.5, "1500ms")],
)
def test_usual_spelling(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.floats(min_value=0, max_value=1e15))
def test_round_trip(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.text())
def test_any_text_parses_or_is_told_of(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except ValueError:
        return
    assert seconds >= 0
