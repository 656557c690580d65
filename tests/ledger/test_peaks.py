"""Measured peaks: the highest stays, through restarts and broken files."""

from __future__ import annotations

import asyncio
import logging
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.ledger import peaks
from llmgw_core.ledger.peaks import Peak, PeakKey, PeakLog, SqlitePeakStore, difference, file_name

KEY = PeakKey("sha256:ab", "llamacpp", "11549", 16384, 4, "f16", ())
CARDS = ("NVIDIA H200", "NVIDIA H200")


class Shelf:
    """A store in memory that counts its writes, and fails while it has an error to raise."""

    def __init__(self) -> None:
        self.kept: dict[PeakKey, Peak] = {}
        self.writes: list[int] = []
        self.error: Exception | None = None
        self.aside = 0

    def put(self, peaks: Sequence[Peak]) -> None:
        if self.error is not None:
            raise self.error
        self.writes.append(len(peaks))
        self.kept.update({peak.key: peak for peak in peaks})

    def all(self) -> list[Peak]:
        if self.error is not None:
            raise self.error
        return list(self.kept.values())

    def set_aside(self) -> str:
        self.aside += 1
        self.kept.clear()
        self.error = None
        return "elsewhere"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "peaks.db"


def peak_of(log: PeakLog, key: PeakKey = KEY) -> float | None:
    found = log.find(key)
    return None if found is None else found.peak_gb


# --- what is kept


def test_the_highest_stays_with_where_and_when() -> None:
    log = PeakLog(None)
    assert log.find(KEY) is None
    log.record(KEY, 2.0, "n1", 10.0)
    log.record(KEY, 3.0, "n2", 20.0, load_time_s=5.0)
    log.record(KEY, 1.0, "n3", 30.0, load_time_s=4.0)
    assert log.find(KEY) == Peak(KEY, 3.0, "n2", 20.0, load_time_s=5.0, samples=3, seen_at=30.0)
    assert log.find(replace(KEY, context=4096)) is None


keys = st.builds(
    PeakKey,
    file=st.sampled_from(["a", "b"]),
    engine=st.just("llamacpp"),
    build=st.sampled_from([None, "1"]),
    context=st.just(16384),
    parallel=st.sampled_from([1, 4]),
    kv_type=st.just("f16"),
    devices=st.sampled_from([(), CARDS]),
)
records = st.lists(
    st.tuples(
        keys,
        st.integers(1, 5).map(float),
        st.sampled_from(["n1", "n2"]),
        st.integers(0, 5).map(float),
        st.sampled_from([None, 1.0, 2.0]),
    ),
    max_size=30,
)
Records = list[tuple[PeakKey, float, str, float, float | None]]


def recorded(rows: Records) -> dict[PeakKey, Peak | None]:
    log = PeakLog(None)
    for key, gb, node, at, load_time_s in rows:
        log.record(key, gb, node, at, load_time_s=load_time_s)
    return {key: log.find(key) for key, *_ in rows}


@given(records, st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(rows: Records, rng: random.Random) -> None:
    shuffled = list(rows)
    rng.shuffle(shuffled)
    assert recorded(rows) == recorded(shuffled)


@given(records)
def test_a_peak_never_falls(rows: Records) -> None:
    log = PeakLog(None)
    for key, gb, node, at, load_time_s in rows:
        before = peak_of(log, key) or 0.0
        log.record(key, gb, node, at, load_time_s=load_time_s)
        assert peak_of(log, key) == max(before, gb)


def test_only_so_many_keys_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "KEPT", 2)
    log = PeakLog(None)
    a, b, c = (replace(KEY, build=name) for name in "abc")
    log.record(a, 1.0, "n", 1.0)
    log.record(b, 1.0, "n", 2.0)
    log.record(a, 1.0, "n", 3.0)
    log.record(c, 1.0, "n", 4.0)
    assert [peak_of(log, key) for key in (a, b, c)] == [1.0, None, 1.0]
    found = log.nearest(replace(KEY, build="z"))
    assert found is not None
    assert found.key == c


# --- its neighbours


def test_the_nearest_is_of_the_same_file_and_settings() -> None:
    log = PeakLog(None)
    for other in (
        replace(KEY, file="sha256:cd"),
        replace(KEY, engine="vllm"),
        replace(KEY, context=4096),
        replace(KEY, parallel=1),
        replace(KEY, kv_type="q8_0"),
        KEY,
    ):
        log.record(other, 1.0, "n", 1.0)
    assert log.nearest(KEY) is None
    cards, newer = replace(KEY, devices=CARDS), replace(KEY, build="11600")
    log.record(cards, 7.0, "n", 9.0)
    assert log.nearest(KEY) == log.find(cards)
    log.record(newer, 2.0, "n", 2.0)
    assert log.nearest(KEY) == log.find(newer), "the cards weigh more than the build"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"build": "11600"}, "measured with llamacpp 11600"),
        ({"build": None}, "measured with llamacpp of an unknown build"),
        ({"devices": CARDS}, "measured on 2 × NVIDIA H200"),
        ({"devices": ("A", "B")}, "measured on A and B"),
        ({"build": "1", "devices": ("A",)}, "measured with llamacpp 1 on A"),
    ],
)
def test_a_neighbour_is_labelled(change: dict[str, object], words: str) -> None:
    assert difference(KEY, replace(KEY, **change)) == words  # type: ignore[arg-type]


def test_the_processor_alone_is_a_device_too() -> None:
    assert difference(replace(KEY, devices=CARDS), KEY) == "measured on the processor alone"


def test_a_file_is_named_by_its_hash_where_there_is_one() -> None:
    assert file_name("ab", "/w/m.gguf", 5) == "sha256:ab"
    assert file_name(None, "/w/m.gguf", 5) == "/w/m.gguf:5"
    assert file_name(None, "/w/m.gguf", None) == "/w/m.gguf:?"


# --- when it is written


async def test_small_rises_wait_for_the_end() -> None:
    shelf = Shelf()
    log = PeakLog(shelf)
    log.record(KEY, 1.0, "n", 1.0)
    await log.flush()
    assert shelf.writes == [1]
    log.record(KEY, 1.005, "n", 2.0)
    await log.flush()
    assert shelf.writes == [1]
    log.record(KEY, 1.011, "n", 3.0)  # many small rises are a big one
    await log.flush()
    assert shelf.kept[KEY].peak_gb == 1.011
    log.record(KEY, 1.012, "n", 4.0)
    await log.close()
    assert shelf.kept[KEY] == log.find(KEY)
    await log.close()
    assert shelf.writes == [1, 1, 1]


async def test_the_rest_is_written_when_it_ends() -> None:
    shelf = Shelf()
    log = PeakLog(shelf)
    task = asyncio.create_task(log.run(every_s=3600))
    await asyncio.sleep(0)
    log.record(KEY, 1.0, "n", 1.0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert peak_of(log) == shelf.kept[KEY].peak_gb == 1.0


async def test_a_full_disk_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    shelf = Shelf()
    log = PeakLog(shelf)
    log.record(KEY, 1.0, "n", 1.0)
    shelf.error = sqlite3.OperationalError("database or disk is full")
    await log.flush()
    assert "peaks.unwritten" in caplog.text
    assert shelf.aside == 0
    shelf.error = None
    await log.flush()
    assert shelf.kept[KEY].peak_gb == 1.0


async def test_a_file_that_breaks_later_is_written_anew() -> None:
    shelf = Shelf()
    log = PeakLog(shelf)
    other = replace(KEY, build="1")
    log.record(other, 2.0, "n", 1.0)
    await log.flush()
    log.record(KEY, 1.0, "n", 2.0)
    shelf.error = sqlite3.DatabaseError("database disk image is malformed")
    await log.flush()
    assert shelf.aside == 1
    await log.flush()
    assert set(shelf.kept) == {KEY, other}


# --- the file


async def test_what_was_written_is_there_again(path: Path) -> None:
    log = PeakLog(SqlitePeakStore(path))
    await log.load()
    on_cards = replace(KEY, devices=CARDS, build=None, context=None, parallel=None)
    log.record(KEY, 1.5, "n1", 1.0, load_time_s=3.0)
    log.record(on_cards, 2.5, "n2", 2.0)
    await log.close()
    again = PeakLog(SqlitePeakStore(path))
    await again.load()
    assert again.find(KEY) == log.find(KEY)
    assert again.find(on_cards) == log.find(on_cards)
    again.record(KEY, 1.0, "n3", 5.0)
    await again.close()
    third = PeakLog(SqlitePeakStore(path))
    await third.load()
    found = third.find(KEY)
    assert found is not None
    assert (found.peak_gb, found.node, found.samples, found.seen_at) == (1.5, "n1", 2, 5.0)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma journal_mode").fetchone() == ("wal",)


def test_the_file_keeps_the_newest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks, "KEPT", 3)
    store = SqlitePeakStore(path)
    assert store.all() == []
    for n in range(6):
        store.put([Peak(replace(KEY, build=str(n)), 1.0, "n", 0.0, seen_at=float(n))])
    assert [peak.key.build for peak in store.all()] == ["3", "4", "5"]


@pytest.mark.parametrize("content", [b"this is not a database" * 100, b"SQLite format 3\0" * 300])
async def test_a_broken_file_is_set_aside_with_one_warning(
    path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(content)
    log = PeakLog(SqlitePeakStore(path))
    with caplog.at_level(logging.WARNING):
        await log.load()
        log.record(KEY, 1.0, "n", 1.0)
        await log.flush()
        await log.close()
    assert len(caplog.records) == 1, caplog.text
    assert "peaks.db.broken" in caplog.text
    assert path.with_name("peaks.db.broken").read_bytes() == content
    assert [peak.peak_gb for peak in SqlitePeakStore(path).all()] == [1.0]


async def test_a_file_that_cannot_be_opened_is_left_alone(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir()
    log = PeakLog(SqlitePeakStore(path))
    await log.load()
    log.record(KEY, 1.0, "n", 1.0)
    await log.close()
    assert peak_of(log) == 1.0
    assert path.is_dir()
    assert len(caplog.records) == 1, caplog.text


async def test_an_odd_row_costs_no_other(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = SqlitePeakStore(path)
    store.put([Peak(KEY, 1.0, "n", 1.0, seen_at=1.0)])
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany("insert into peaks values(?, 2, ?)", [(b"x", b"{}"), (b"y", None)])
    log = PeakLog(store)
    await log.load()
    assert peak_of(log) == 1.0
    assert "peaks.row_unreadable" in caplog.text
