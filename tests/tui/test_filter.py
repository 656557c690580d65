"""What a filter line lets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_tui.filter import matches

CELLS = {"name": "smollm2.1", "node": "n1", "state": "● ready"}


@pytest.mark.parametrize(
    ("query", "through"),
    [
        ("", True),
        ("  ", True),
        ("smol", True),
        ("SMOL Ready", True),
        ("gemma", False),
        ("smol gemma", False),
        ("!gemma", True),
        ("!smol", False),
        ("!", True),
        ("node:n1", True),
        ("node:smol", False),
        ("!node:n1", False),
        ("node:", True),
        ("port:80", False),
        ("-f sm2", True),
        ("-f 2ms", False),
        ("sm2", False),
        ("-f", True),
        ("[/x] (", False),
    ],
)
def test_words(query: str, through: bool) -> None:
    assert matches(CELLS, query) is through


@given(st.text())
def test_no_query_fails_and_a_negated_word_is_the_opposite(query: str) -> None:
    matches(CELLS, query)
    word = "".join(query.split()).lstrip("!")
    if word and word != "-f":
        assert matches(CELLS, word) is not matches(CELLS, "!" + word)
