"""When it is this machine that is cut off."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.controller.suspicion import Standing, suspicion


def fleet(*lost: float | None, given_up: frozenset[int] = frozenset()) -> list[Standing]:
    return [Standing(f"n{i}", at, i in given_up) for i, at in enumerate(lost)]


def test_one_node_is_never_a_reason_and_half_of_them_is_none_yet() -> None:
    assert suspicion(fleet(1.0)) == ""
    assert suspicion(fleet(1.0, None)) == ""
    assert suspicion(fleet(1.0, 2.0, None, None)) == ""


def test_most_nodes_at_once_is_and_the_sentence_says_what_ends_it() -> None:
    said = suspicion(fleet(1.0, 9.0, None))
    assert said.startswith("2 of 3 nodes went away together")
    assert "drain" in said
    assert suspicion(fleet(5.0, 5.0))


def test_losses_that_lie_apart_are_those_of_nodes() -> None:
    assert suspicion(fleet(0.0, 100.0, 200.0, None)) == ""
    assert suspicion(fleet(0.0, 1000.0, 1001.0, 1002.0, None))


def test_a_person_ends_it_by_draining_what_is_really_gone() -> None:
    assert suspicion(fleet(1.0, 2.0, None, given_up=frozenset({0, 1}))) == ""


@given(st.lists(st.none() | st.floats(0, 1e6), max_size=12))
def test_it_does_not_depend_on_the_order_and_needs_more_than_half(
    times: list[float | None],
) -> None:
    assert suspicion(fleet(*times)) == suspicion(fleet(*reversed(times)))
    lost = sum(at is not None for at in times)
    if lost < 2 or 2 * lost <= len(times):
        assert suspicion(fleet(*times)) == ""
