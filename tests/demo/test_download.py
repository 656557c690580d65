from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from llmgw_core.demo.download import Interrupted, Wanted, WrongContent, download
from llmgw_core.errors import LlmgwError

from .server import Files, serving

CONTENT = bytes(range(256)) * 4096
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def files() -> Iterator[Files]:
    with serving() as made:
        made.content["/f"] = CONTENT
        yield made


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False) as made:
        yield made


async def no_pause(_: float) -> None:
    """The next attempt at once."""


class Bar:
    def __init__(self) -> None:
        self.seen: list[tuple[int, int | None]] = []

    def __call__(self, done: int, total: int | None) -> None:
        self.seen.append((done, total))


async def test_a_file_arrives_whole_with_its_progress(
    files: Files, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    bar = Bar()
    digest = await download(http, Wanted(f"{files.base}/f", DIGEST), tmp_path / "f", bar)
    assert digest == DIGEST
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert bar.seen[0] == (0, len(CONTENT))
    assert bar.seen[-1] == (len(CONTENT), len(CONTENT))
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


async def test_a_break_is_gone_on_from_where_it_was(
    files: Files, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    files.cuts = [300_000, 0, 300_000, -1]
    wanted = Wanted(f"{files.base}/f", DIGEST)
    await download(http, wanted, tmp_path / "f", Bar(), pause=no_pause)
    assert (tmp_path / "f").read_bytes() == CONTENT
    first, *later = files.gets("/f")
    assert first is None
    assert later == ["bytes=300000-", "bytes=300000-", "bytes=600000-"]


async def test_breaks_without_end_keep_what_came_for_the_next_run(
    files: Files, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    files.cuts = [300_000, 0, 0, 0, 0, 0]
    wanted = Wanted(f"{files.base}/f", DIGEST)
    with pytest.raises(Interrupted, match="kept, try again"):
        await download(http, wanted, tmp_path / "f", Bar(), pause=no_pause)
    assert not (tmp_path / "f").exists()
    files.cuts = []
    bar = Bar()
    await download(http, wanted, tmp_path / "f", bar)
    assert bar.seen[0] == (300_000, len(CONTENT))
    assert (tmp_path / "f").read_bytes() == CONTENT


async def test_a_half_that_is_whole_is_only_checked(
    files: Files, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    (tmp_path / "f.part").write_bytes(CONTENT)
    await download(http, Wanted(f"{files.base}/f", DIGEST), tmp_path / "f", Bar())
    assert (tmp_path / "f").read_bytes() == CONTENT


async def test_a_server_without_ranges_starts_anew(
    files: Files, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    files.ranges = False
    (tmp_path / "f.part").write_bytes(b"x" * 1000)
    await download(http, Wanted(f"{files.base}/f", DIGEST), tmp_path / "f", Bar())
    assert (tmp_path / "f").read_bytes() == CONTENT


async def test_another_files_half_is_found_out_and_fetched_anew(
    files: Files, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    (tmp_path / "f.part").write_bytes(b"x" * 1000)
    await download(http, Wanted(f"{files.base}/f", DIGEST), tmp_path / "f", Bar())
    assert (tmp_path / "f").read_bytes() == CONTENT
    assert files.gets("/f") == ["bytes=1000-", None]


async def test_wrong_content_is_fetched_once_more_and_then_refused(
    files: Files, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    with pytest.raises(WrongContent, match="not what it should be"):
        await download(http, Wanted(f"{files.base}/f", "0" * 64), tmp_path / "f", Bar())
    assert len(files.gets("/f")) == 2
    assert list(tmp_path.iterdir()) == []


async def test_a_refusal_is_not_asked_again(
    files: Files, http: httpx.AsyncClient, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted, match="404"):
        await download(http, Wanted(f"{files.base}/none", None), tmp_path / "f", Bar())
    assert len(files.gets("/none")) == 1


async def test_a_full_disk_is_said_before_anything_is_written(
    files: Files, http: httpx.AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000_000)
    monkeypatch.setattr("llmgw_core.mirror.disk.shutil.disk_usage", lambda _: usage)
    with pytest.raises(LlmgwError, match="1 MB free and 1 MB are needed"):
        await download(http, Wanted(f"{files.base}/f", DIGEST), tmp_path / "f", Bar())
    assert list(tmp_path.iterdir()) == []
