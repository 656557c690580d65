"""Jobs, logs and listings of weights as values."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.errors import InvalidInput
from llmgw_core.nodes.weights import (
    FetchExit,
    FetchJob,
    FetchLog,
    HeldFile,
    HeldVersion,
    Rate,
    WeightsFile,
    check_key,
    complete_keys,
    fetch_spec,
    instance_name,
    parse_held,
    progress,
    weights_path,
)

SHA = "ab" * 32
FILE = WeightsFile("m.gguf", 10, SHA, "http://10.0.0.1:1/v1/files/a/b/m.gguf")
TOKEN = "planted-4711"
JOB = FetchJob("a/b", (FILE,), TOKEN)
LOG = b"""\
@@waiting
@@progress 1000 100 1000 get 0 a b.gguf
curl: (18) transfer closed
@@progress 1200 300 1000 get 0 a b.gguf
@@progress 1300 300 1000 check 250 a b.gguf
"""


def test_a_log_says_how_far_it_is_and_how_fast() -> None:
    log = FetchLog()
    log.feed(LOG[: LOG.index(b"@@progress 1300")])
    assert log.latest is not None
    assert (log.latest.bytes_done, log.latest.bytes_total) == (300, 1000)
    assert (log.latest.phase, log.latest.file) == ("get", "a b.gguf")
    assert log.latest.rate == pytest.approx(100.0)
    seen = progress(LOG)
    assert seen is not None
    assert (seen.phase, seen.checked, seen.rate) == ("check", 250, None)
    assert log.status is None


def test_a_log_says_how_it_ended() -> None:
    done = progress(LOG + b"@@done 1000 /x/y z\n")
    assert done is not None
    assert (done.done, done.bytes_done) == (True, 1000)
    log = FetchLog()
    log.feed(LOG + b"@@error 28 the disk: is full\n")
    assert (log.status, log.error) == (FetchExit.NO_SPACE, "the disk: is full")
    failed = progress(LOG + b"@@error 28 the disk: is full\n")
    assert failed is not None
    assert (failed.error, failed.bytes_done) == ("the disk: is full", 300)
    assert progress(b"nothing of ours") is None


@given(st.lists(st.integers(0, len(LOG)), max_size=8))
def test_a_log_in_pieces_says_the_same(cuts: list[int]) -> None:
    log = FetchLog()
    ends = [0, *sorted(cuts), len(LOG)]
    for start, end in itertools.pairwise(ends):
        log.feed(LOG[start:end])
    assert log.latest == progress(LOG)


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.binary(max_size=30).map(lambda b: b"@@progress " + b),
            st.binary(max_size=30).map(lambda b: b"@@error " + b),
            st.binary(max_size=30).map(lambda b: b"v complete " + b),
            st.binary(max_size=30).map(lambda b: b"r " + b),
            st.binary(max_size=30).map(lambda b: b"p " + b),
        )
    )
)
def test_nothing_that_a_node_says_breaks_the_readers(lines: list[bytes]) -> None:
    progress(b"\n".join(lines) + b"\n")
    assert all(held.bytes_held >= 0 for held in parse_held(lines).values())


def test_a_rate_begins_anew_where_bytes_went_away() -> None:
    rate = Rate()
    assert rate.add(0.0, 0) is None
    assert rate.add(2.0, 200) == pytest.approx(100.0)
    assert rate.add(3.0, 50) is None
    assert rate.add(4.0, 60) == pytest.approx(10.0)


def test_what_is_held() -> None:
    lines = [
        b"v complete a/b",
        b"r " + SHA.encode() + b" 10 77 m x.gguf",
        b"s 10 77 ./m x.gguf",
        b"v verified a/c",
        b"r " + SHA.encode() + b" 10 77 one",
        b"r " + SHA.encode() + b" 10 77 two",
        b"s 10 77 ./one",
        b"s 10 78 ./two",
        b"v complete a/d",
        b"r " + SHA.encode() + b" 10 77 gone",
        b"p 5 .partial/a/c/" + SHA.encode(),
        b"p 6 .partial/a/e/" + SHA.encode(),
    ]
    one = HeldFile(10, SHA)
    assert parse_held(lines) == {
        "a/b": HeldVersion(True, {"m x.gguf": one}, 0),
        "a/c": HeldVersion(False, {"one": one}, 5),
        "a/d": HeldVersion(False, {}, 0),
        "a/e": HeldVersion(False, {}, 6),
    }
    assert complete_keys(lines) == {"a/b"}


def test_a_version_satisfies_the_jobs_whose_files_it_has() -> None:
    held = HeldVersion(True, {"m.gguf": HeldFile(10, SHA), "more": HeldFile(1, SHA)})
    assert held.satisfies(JOB)
    assert not replace(held, complete=False).satisfies(JOB)
    assert not held.satisfies(replace(JOB, files=(replace(FILE, size=11),)))
    assert not held.satisfies(replace(JOB, files=(replace(FILE, sha256="cd" * 32),)))


def test_a_start_carries_the_token_in_files_alone() -> None:
    spec = fetch_spec(JOB)
    assert spec.name == "fetch-a@b"
    holders = {name for name, data in spec.files.items() if TOKEN.encode() in data}
    assert holders == {"token", "auth.conf", "wgetrc"}
    assert TOKEN not in f"{spec.argv} {spec.env} {spec.record} {JOB!r} {spec!r}"
    assert replace(JOB, token="other").digest != JOB.digest


@pytest.mark.parametrize(
    "change",
    [
        {"path": "../x"},
        {"path": "a//b"},
        {"path": "/a"},
        {"path": ""},
        {"path": "a\nb"},
        {"sha256": "xyz"},
        {"size": -1},
        {"url": "ftp://x/y"},
        {"url": 'http://x/"y'},
        {"url": "http://x/y z"},
        {"url": "http://x/é"},
    ],
)
def test_a_job_that_cannot_be_right_is_refused(change: dict[str, str | int]) -> None:
    bad = replace(FILE, **change)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        fetch_spec(replace(JOB, files=(bad,)))


def test_other_jobs_that_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no files"):
        fetch_spec(replace(JOB, files=()))
    with pytest.raises(InvalidInput, match="token") as caught:
        fetch_spec(replace(JOB, token='a"\nb'))
    assert 'a"' not in str(caught.value)


@pytest.mark.parametrize(
    "key", ["a", "a/b/c", "../b", "a/.b", "a/", "/b", "a b/c", "a/" + "b" * 200]
)
def test_keys_that_name_no_version(key: str) -> None:
    with pytest.raises(InvalidInput, match="has to be MODEL/VERSION"):
        check_key(key)


def test_names_and_places() -> None:
    assert instance_name("qwen3-0.6b/2026-12+x_1") == "fetch-qwen3-0.6b@2026-12+x_1"
    assert weights_path("/s t", "a/b") == "/s t/weights/a/b"
    assert weights_path("/s t", "a/b", "c/d e") == "/s t/weights/a/b/c/d e"
