"""Files nobody thought of: mutated, cut anywhere, and what fuzzers found before."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.gguf.header import Header
from llmgw_core.gguf.parse import Type
from tests.gguf.malformed import CASES
from tests.gguf.properties import check, outcome
from tests.gguf.reading import parse
from tests.gguf.writer import File, array, good, text, texts

SEEDS = sorted(Path(__file__).with_name("seeds").glob("[!.]*"))
GOOD = {order: bytes(good(order)) for order in "<>"}
NUMBERS = (0, 1, 31, 77, 0xFF, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 62, 1 << 63, (1 << 64) - 1)


@pytest.mark.parametrize("order", GOOD)
def test_a_file_cut_anywhere_is_an_error_that_says_so(order: str) -> None:
    data = GOOD[order]
    padding = 28  # behind the last tensor
    for length in range(1, len(data) - padding):
        found = outcome(data[:length])
        assert isinstance(found, str)
        assert "cut" in found or "no GGUF file" in found
    assert isinstance(outcome(data), Header)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    check(data)


@given(st.binary(max_size=300), st.integers(1, 40))
def test_any_bytes_behind_a_good_start(data: bytes, step: int) -> None:
    check(b"GGUF\3\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0" + data, step=step)


@given(
    st.sampled_from("<>"),
    st.lists(
        st.tuples(st.integers(4, 700), st.sampled_from((1, 2, 4, 8)), st.sampled_from(NUMBERS))
    ),
    st.integers(1, 200),
)
def test_good_files_with_numbers_overwritten(
    order: str, changes: list[tuple[int, int, int]], step: int
) -> None:
    data = bytearray(GOOD[order])
    for at, width, number in changes:
        raw = struct.pack(order + "Q", number)
        data[at : at + width] = raw[:width] if order == "<" else raw[-width:]
    check(bytes(data), step=step)


@given(st.sampled_from(sorted(CASES)), st.data())
def test_wrong_files_with_bytes_changed(name: str, draw: st.DataObject) -> None:
    data = bytearray(CASES[name][0]()[:4096])
    for _ in range(draw.draw(st.integers(0, 4))):
        if data:
            at = draw.draw(st.integers(0, len(data) - 1))
            data[at] = draw.draw(st.integers(0, 255))
    check(bytes(data), step=97)


KEYS = st.text(max_size=12)
VALUES = st.one_of(
    st.booleans(),
    st.integers(0, 2**32 - 1),
    st.floats(width=32, allow_nan=False),
    st.text(max_size=40),
    st.lists(st.text(max_size=9), max_size=9).map(tuple),
)


@given(st.dictionaries(KEYS, VALUES, max_size=9), st.sampled_from("<>"), st.integers(1, 50))
def test_what_was_written_is_read(
    keys: dict[str, bool | int | float | str | tuple[str, ...]], order: str, step: int
) -> None:
    keys.pop("general.alignment", None)
    file = File(order=order)
    for key, value in keys.items():
        if isinstance(value, tuple):
            file.raw(key, Type.ARRAY, texts(value, order))
        else:
            file.add(key, value)
    found = check(bytes(file), step=step)
    assert isinstance(found, Header)
    assert found.keys == keys


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.name)
def test_what_fuzzers_found(path: Path) -> None:
    check(path.read_bytes())


def test_arrays_of_any_claimed_length_cost_nothing() -> None:
    for kind in Type:
        for bits in range(64):
            found = outcome(File().raw("x", Type.ARRAY, array(kind, 1 << bits)).head())
            assert isinstance(found, str)


def test_keys_that_differ_in_what_is_not_text_are_two() -> None:
    file = File().raw(b"\xff", Type.UINT8, b"\1").raw(b"\xfe", Type.UINT8, b"\2")
    assert parse(bytes(file)).keys == {"\\xff": 1, "\\xfe": 2}
    assert text("x") == b"\1" + bytes(7) + b"x"
