"""Bytes, rates and times left, and lines of cells, as they are written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from llmgw_tui.rows import amounts
from llmgw_tui.rows.card import Grid
from llmgw_tui.rows.grid import grid_parts, shortened
from llmgw_tui.rows.parts import Part

GIB = 1024**3
sizes = st.integers(0, 2**50)


def test_a_fetch_is_one_sentence() -> None:
    done, total = int(1.6 * GIB), int(4.6 * GIB)
    assert amounts.under_way(done, total, 110e6) == "1.6 of 4.6 GiB, 110 MB/s, about 29 s left"
    assert amounts.under_way(done, total, None) == "1.6 of 4.6 GiB"
    assert amounts.under_way(done, None, 1.25e9) == "1.6 GiB of –, 1.2 GB/s"
    assert amounts.under_way(done, total, 0.0) == "1.6 of 4.6 GiB, 0 B/s"


def test_sizes_and_rates_take_their_largest_unit() -> None:
    assert [amounts.size(n) for n in (None, 0, 1023, 1024, 812 * 1024**2, 2**42)] == [
        "–", "0 B", "1023 B", "1.0 KiB", "812 MiB", "4.0 TiB",
    ]  # fmt: skip
    assert [amounts.rate(r) for r in (None, 12.0, 34_000.0, 9.5e6, 2.5e9)] == [
        "–", "12 B/s", "34 kB/s", "9.5 MB/s", "2.5 GB/s",
    ]  # fmt: skip


@given(sizes, st.one_of(st.none(), sizes), st.one_of(st.none(), st.floats(0, 1e12)))
def test_what_is_under_way_is_never_shown_as_whole(
    done: int, total: int | None, rate: float | None
) -> None:
    share = amounts.share_of(done, total)
    assert share is None if not total else share is not None and 0 <= share < 0.995
    left = amounts.left_s(done, total, rate)
    assert left is None or left >= 0
    assert "100 %" not in amounts.under_way(done, total, rate)
    assert len(amounts.size(done)) <= 8


@given(st.text(max_size=60), st.integers(12, 40))
def test_a_long_name_keeps_its_end(name: str, width: int) -> None:
    cut = shortened(name, width)
    assert cell_len(cut) <= max(width, 1)
    if cut != name:
        assert "…" in cut
        assert name.endswith(cut.rpartition("…")[2])


def test_cells_stand_under_each_other() -> None:
    rows = [
        Grid(((Part("● done"), 10), (Part("4.6 GiB"), -9), (Part("model-00001-of-00003.bin"), 0))),
        Grid(((Part("◔ fetching"), 10), (Part("12 B"), -9), (Part("a"), 0))),
    ]
    lines = ["".join(part.text for part in grid_parts(row, 36)) for row in rows]
    assert lines[0].startswith("● done       4.6 GiB mode…")
    assert lines[1] == "◔ fetching      12 B a"
    assert lines[0].endswith("00003.bin")
    assert cell_len(lines[0]) <= 36
