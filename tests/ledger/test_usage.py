"""The ledger of usage: sums that add up, survive their writer, and can be read meanwhile."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.errors import InvalidInput, LlmgwError
from llmgw_core.ledger.usage import UsageKey, UsageStore, UsageSum

KEYS = st.builds(
    UsageKey,
    day=st.sampled_from(["2026-11-29", "2026-11-30"]),
    owner=st.sampled_from(["", "team", "o'brien"]),
    key=st.sampled_from(["", "a1"]),
    model=st.sampled_from(["m", "n"]),
)
SUMS_OF = st.builds(UsageSum, *(st.integers(0, 1 << 40),) * 4)


@given(st.lists(st.tuples(KEYS, SUMS_OF), max_size=12))
def test_sums_add_up_however_they_are_grouped(entries: list[tuple[UsageKey, UsageSum]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        store = UsageStore(Path(folder) / "usage.db")
        for entry in entries:
            store.add([entry])
        total = sum((add for _, add in entries), UsageSum())
        for by in ([], ["owner"], ["day", "owner", "key", "model"], ["model", "day"]):
            rows = store.read(by)
            assert sum((row.sums for row in rows), UsageSum()) == total
            assert len({tuple(row.by.values()) for row in rows}) == len(rows)
        mine = [add for key, add in entries if key.owner == "o'brien" and key.day > "2026-11-29"]
        found = store.read(["owner"], since="2026-11-30", only={"owner": "o'brien"})
        assert sum((row.sums for row in found), UsageSum()) == sum(mine, UsageSum())
        store.close()


_WRITER = """
import sys
from pathlib import Path
from llmgw_core.ledger.usage import UsageKey, UsageStore, UsageSum
store = UsageStore(Path(sys.argv[1]))
while True:
    store.add([(UsageKey("2026-11-30", model="m"), UsageSum(requests=1, prompt_tokens=7))])
    print(flush=True)
"""


def test_what_was_added_survives_a_writer_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, cwd=os.getcwd()
    )
    assert writer.stdout is not None
    with writer.stdout as out:
        for _ in range(50):
            out.readline()
        writer.send_signal(signal.SIGKILL)
        said = 50 + len(out.readlines())
    writer.wait(20)
    (row,) = UsageStore(path).read([])
    assert row.sums.requests in (said, said + 1)  # killed between the commit and its line
    assert row.sums.prompt_tokens == 7 * row.sums.requests
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    store = UsageStore(path)
    store.add([(UsageKey("2026-11-30", model="m"), UsageSum(requests=1))])
    assert store.read([])[0].sums.requests == row.sums.requests + 1
    store.close()


def test_a_file_that_is_no_ledger_is_named(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    assert UsageStore(path).read(["owner"]) == []
    path.write_bytes(b"nonsense" * 1000)
    with pytest.raises(LlmgwError, match=r"usage.db cannot be read"):
        UsageStore(path).read(["owner"])
    with pytest.raises(sqlite3.Error):
        UsageStore(path).add([(UsageKey("2026-11-30"), UsageSum(requests=1))])
    with pytest.raises(InvalidInput, match="by 'x'"):
        UsageStore(path).read(["x; drop table usage"[:1]])
