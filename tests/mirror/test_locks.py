"""Locks of versions, held by other processes and by the dead."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmgw_core.errors import Refused
from llmgw_core.mirror.store import Store
from llmgw_core.mirror.tidy import clean

from .filled import fill

HOLD = """
import sys
from pathlib import Path
from llmgw_core.mirror.store import Store
with Store(Path(sys.argv[1])).locked("m", "v", "a pull"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    fill(made, "m", "v", {"a": b"1"})
    fill(made, "m", "w", {"a": b"1"})
    return made


@contextmanager
def holder(store: Store) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_two_processes_exclude_each_other(store: Store) -> None:
    with holder(store) as process:
        assert store.is_busy("m", "v")
        with pytest.raises(Refused, match=rf"m/v is busy: a pull \(pid {process.pid}\); wait"):
            store.remove("m", "v")
        with pytest.raises(Refused, match="busy"):
            store.verify("m", "v")
        assert not store.is_busy("m", "w")
        store.remove("m", "w")
        assert store.need("m", "v").complete
        process.communicate("")
        assert not store.is_busy("m", "v")
        store.remove("m", "v")


def test_the_dead_hold_nothing(store: Store) -> None:
    with holder(store) as process:
        process.kill()
        process.wait()
        assert not store.is_busy("m", "v")
        store.remove("m", "v")


def test_a_lock_file_that_was_tidied_away_is_made_again(store: Store) -> None:
    with store.locked("m", "v", "a pull"):
        store.lock_path("m", "v").unlink()
        with store.locked("m", "v", "another"):  # the first one's file is nobody's any more
            assert store.is_busy("m", "v")
    assert clean(store) == ()
