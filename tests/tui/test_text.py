"""Text from outside is one plain line of a known width."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from llmgw_tui.text import clean, fit


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("plain [/x] text", "plain [/x] text"),
        ("a\x1b[31mred\x07", "a·[31mred·"),
        ("two\nlines\tend\r", "two⏎lines end·"),
        ("evil\u202egnp.exe", "evil·gnp.exe"),
        ("zero\u200bwidth", "zero·width"),
        ("cloud ☁\ufe0f", "cloud ☁"),
        ("日本 ü", "日本 ü"),
        ("\ud800", "·"),
    ],
)
def test_nothing_that_a_terminal_obeys_is_left(given_text: str, shown: str) -> None:
    assert clean(given_text) == shown


@given(st.text())
def test_clean_text_is_one_line_and_stays_as_it_is(text: str) -> None:
    once = clean(text)
    assert clean(once) == once
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") for char in once)


@given(st.text(), st.integers(0, 30), st.booleans())
def test_a_fitted_text_has_exactly_its_width(text: str, width: int, right: bool) -> None:
    assert cell_len(fit(clean(text), width, right=right)) == width


def test_what_is_cut_says_so() -> None:
    assert fit("smollm2", 5) == "smol…"
    assert fit("日本語", 4) == "日 …"
    assert fit("7", 3, right=True) == "  7"
    assert fit("7", 3) == "7  "
