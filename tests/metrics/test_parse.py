from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.metrics.parse import LINES_MOST, mean, parse, total


def test_values_come_by_name_one_for_each_set_of_labels() -> None:
    text = (
        "# HELP up help\n# TYPE up gauge\nup 1\n"
        'kv{engine="0",model="a b} 9 {"} 0.5 1712345678000\nkv{engine="1"} 0.25\n'
        "other 7\r\n  spaced\t3 \n"
    )
    assert parse(text, {"up", "kv", "other"}) == {"up": (1.0,), "kv": (0.5, 0.25), "other": (7.0,)}


def test_what_was_not_measured_is_left_out() -> None:
    assert parse("a NaN\nb +Inf\nc -Inf\nd 1e3\n", {"a", "b", "c", "d"}) == {"d": (1000.0,)}


def test_lines_that_are_no_samples_are_skipped() -> None:
    assert parse("a\na x\na{ 1\na 1 2 3\n# a 1\n\n<html>\na} 1", {"a", "#"}) == {}


def test_only_so_many_lines_are_read() -> None:
    text = "a 1\n" * (LINES_MOST - 1) + "b 1\nc 1\n"
    assert set(parse(text, {"b", "c"})) == {"b"}


def test_the_first_spelling_that_there_is_wins() -> None:
    samples = parse("new 1\nnew 2\nold 9\n", {"new", "old"})
    assert total(samples, ("newest", "new", "old")) == 3
    assert mean(samples, ("new", "old")) == 1.5
    assert total(samples, ("none",)) is None
    assert total(samples, ()) is None


@given(st.text())
def test_it_reads_anything(text: str) -> None:
    parse(text, {"a"})


@given(st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=20))
def test_a_label_may_hold_anything(value: float, label: str) -> None:
    escaped = label.replace("\n", "").replace("\r", "")
    assert parse(f'a{{l="{escaped}"}} {value!r}', {"a"}) == {"a": (value,)}
