"""Pulls over HTTP and from this machine's disk."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw_core.errors import InvalidInput, LlmgwError, NotFound, Refused
from llmgw_core.mirror.board import Rate
from llmgw_core.mirror.pull import PullRequest, pull
from llmgw_core.mirror.store import Store
from llmgw_core.mirror.toll import Toll
from llmgw_core.mirror.versions import FileState, MirrorVersion
from llmgw_core.mirror.wanted import Interrupted, WrongContent

from .filled import digest, tree
from .origin import Origin, serving

CONTENT = bytes(range(251)) * 13_001
"""3.2 MB, no two pieces alike."""
PIECE = 100_000


@pytest.fixture
def origin() -> Iterator[Origin]:
    with serving() as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "mirror")


async def no_pause(_: float) -> None:
    await asyncio.sleep(0)


async def get(store: Store, source: str, version: str = "v", **more: str) -> MirrorVersion:
    request = PullRequest(source, "m", version, **more)  # type: ignore[arg-type]
    return await pull(store, request, pause=no_pause, piece_bytes=PIECE, now=lambda: 86400.0)


async def test_a_file_arrives_checked_and_written_down(origin: Origin, store: Store) -> None:
    url = origin.put("/d/My%20Model.gguf".replace("%20", " "), CONTENT).replace(" ", "%20")
    seen: list[MirrorVersion] = []
    made = await pull(store, PullRequest(url + "?token=secret"), seen.append, now=lambda: 86400.0)
    assert made.name == "my-model/1970-01-02"
    (file,) = made.files
    assert (file.state, file.sha256, file.bytes_done) == (
        FileState.DONE, digest(CONTENT), len(CONTENT),
    )  # fmt: skip
    assert store.path("my-model", "1970-01-02", "My Model.gguf").read_bytes() == CONTENT
    assert seen[-1] == made
    assert store.need(made.model, made.version).complete
    assert made.source.endswith("/d/My%20Model.gguf")
    assert not any(b"secret" in text for text in tree(store.root).values())
    assert origin.sent == len(CONTENT)
    assert not (store.root / ".partial").exists()


async def test_a_second_pull_fetches_nothing(origin: Origin, store: Store) -> None:
    url = origin.put("/a.gguf", CONTENT)
    first = await get(store, url)
    assert await get(store, url) == first
    assert origin.sent == len(CONTENT)


async def test_a_break_is_gone_on_from_where_it_was(origin: Origin, store: Store) -> None:
    url = origin.put("/a.gguf", CONTENT)
    origin.cuts = [300_000, 0, 1_000_000, -1]
    made = await get(store, url)
    assert store.path("m", "v", "a.gguf").read_bytes() == CONTENT
    assert made.files[0].note == ""
    assert origin.gets("/a.gguf") == [
        None, "bytes=300000-", "bytes=300000-", "bytes=1300000-",
    ]  # fmt: skip
    assert origin.sent == len(CONTENT)
    assert origin.asked[-1].headers["if-range"] == origin.etags["/a.gguf"]


async def test_breaks_without_end_keep_what_came_for_the_next_pull(
    origin: Origin, store: Store
) -> None:
    url = origin.put("/a.gguf", CONTENT)
    origin.cuts = [300_000, 0, 0, 0, 0, 0]
    with pytest.raises(Interrupted, match="what has come is kept, try again"):
        await get(store, url)
    (half,) = store.versions()
    assert (half.bytes_done, half.bytes_total, half.complete) == (300_000, len(CONTENT), False)
    origin.cuts = []
    assert (await get(store, url)).complete
    assert origin.sent == len(CONTENT)


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.integers(0, 1_200_000), max_size=8),
    st.lists(st.integers(0, 1_200_000), max_size=4),
    st.booleans(),
)
def test_any_breaks_give_the_exact_bytes_each_fetched_once(
    tmp_path: Path, cuts: list[int], later: list[int], known: bool
) -> None:
    """Through breaks within a pull and pulls that gave up."""

    async def run(store: Store, url: str, origin: Origin) -> None:
        for left in (cuts, later, []):
            origin.cuts = list(left)
            try:
                await get(store, url)
                return
            except Interrupted:
                continue

    store = Store(tmp_path / "mirror")
    shutil.rmtree(store.root, ignore_errors=True)
    with serving() as origin:
        url = origin.put("/a.gguf", CONTENT)
        if known:
            origin.put("/blob", CONTENT)
            linked = {"X-Linked-Etag": digest(CONTENT), "Location": origin.base + "/blob"}
            origin.always["/a.gguf"] = (302, linked)
        asyncio.run(run(store, url, origin))
        assert store.path("m", "v", "a.gguf").read_bytes() == CONTENT
        assert origin.sent == len(CONTENT)


async def test_a_server_without_ranges_starts_anew_and_says_so(
    origin: Origin, store: Store
) -> None:
    url = origin.put("/a.gguf", CONTENT)
    origin.ranges = False
    origin.cuts = [300_000]
    made = await get(store, url)
    assert "cannot go on in the middle" in made.files[0].note
    assert store.path("m", "v", "a.gguf").read_bytes() == CONTENT


@pytest.mark.parametrize("size", [len(CONTENT), len(CONTENT) + 5, 200_000])
async def test_a_file_that_changes_meanwhile_starts_anew_and_says_so(
    origin: Origin, store: Store, size: int
) -> None:
    other = bytes(reversed(CONTENT + b"12345"))[:size]
    url = origin.put("/a.gguf", CONTENT)
    origin.cuts = [300_000]

    def change(path: str) -> None:
        if len(origin.gets(path)) == 2:
            origin.put(path, other)

    origin.on_get = change
    made = await get(store, url)
    assert "begun again" in made.files[0].note
    assert store.path("m", "v", "a.gguf").read_bytes() == other


async def test_a_whole_half_of_an_older_file_is_not_taken(origin: Origin, store: Store) -> None:
    url = origin.put("/a.gguf", CONTENT)
    origin.cuts = [300_000, 0, 0, 0, 0, 0]
    with pytest.raises(Interrupted):
        await get(store, url)
    store.half("m", "v", "a.gguf").data.write_bytes(CONTENT)  # all came, and then a kill
    origin.cuts = []
    origin.put("/a.gguf", CONTENT[::-1])
    made = await get(store, url)
    assert "changed at the source; begun again" in made.files[0].note
    assert store.path("m", "v", "a.gguf").read_bytes() == CONTENT[::-1]


async def test_without_any_mark_a_half_is_not_gone_on_with(origin: Origin, store: Store) -> None:
    url = origin.put("/a.gguf", CONTENT, etag="")
    origin.cuts = [300_000, 0, 0, 0, 0, 0]
    with pytest.raises(Interrupted):
        await get(store, url)
    made = await get(store, url)
    assert "no mark" in made.files[0].note
    assert store.path("m", "v", "a.gguf").read_bytes() == CONTENT


@pytest.mark.parametrize("promised", [len(CONTENT) - 7, len(CONTENT) + 7])
async def test_a_server_that_lies_about_the_size_is_found_out(
    origin: Origin, store: Store, promised: int
) -> None:
    url = origin.put("/a.gguf", CONTENT)
    origin.said_length["/a.gguf"] = promised
    with pytest.raises(WrongContent, match=f"has {len(CONTENT)} bytes and should have {promised}"):
        await get(store, url)
    assert not store.need("m", "v").complete


async def test_a_body_without_a_length_counts_to_the_promised_size(
    origin: Origin, store: Store
) -> None:
    url = origin.put("/a.gguf", CONTENT)
    origin.lengths = False
    origin.cuts = [300_000]
    await get(store, url)
    assert store.path("m", "v", "a.gguf").read_bytes() == CONTENT
    origin.said_length["/b.gguf"] = 1000
    with pytest.raises(WrongContent, match="more than 1000 bytes"):
        await get(store, origin.put("/b.gguf", CONTENT), "w")


@pytest.mark.parametrize("status", [429, 503, 500])
async def test_a_busy_server_is_asked_again_when_it_says(
    origin: Origin, store: Store, status: int
) -> None:
    waits: list[float] = []

    async def pause(wait_s: float) -> None:
        waits.append(wait_s)

    url = origin.put("/a.gguf", CONTENT)
    origin.answers = [(status, {"Retry-After": "7"}), (status, {}), (status, {"Retry-After": "²"})]
    await pull(store, PullRequest(url, "m", "v"), pause=pause)
    assert waits == [7, 1, 2]
    assert store.need("m", "v").complete


async def test_a_server_that_knows_no_head_is_asked_otherwise(origin: Origin, store: Store) -> None:
    url = origin.put("/a.gguf", CONTENT)
    origin.heads = False
    made = await get(store, url)
    assert made.bytes_total == len(CONTENT)
    assert origin.gets("/a.gguf") == ["bytes=0-0", None]


@pytest.mark.parametrize(
    ("status", "kind"), [(404, NotFound), (410, NotFound), (403, Refused), (400, LlmgwError)]
)
async def test_what_is_not_there_leaves_nothing(
    origin: Origin, store: Store, status: int, kind: type[LlmgwError]
) -> None:
    origin.always["/a.gguf"] = (status, {})
    with pytest.raises(kind, match=rf"/a\.gguf .*it answers {status}"):
        await get(store, f"{origin.base}/a.gguf?key=secret")
    assert not store.root.exists()


async def test_nobody_there_is_one_sentence(store: Store) -> None:
    with serving() as gone:
        base = gone.base
    with pytest.raises(LlmgwError, match="does not answer"):
        await get(store, f"{base}/a.gguf")


async def test_wrong_content_is_fetched_once_more_and_refused(origin: Origin, store: Store) -> None:
    origin.put("/blob", CONTENT)
    origin.always["/a.gguf"] = (
        302, {"X-Linked-Etag": "0" * 64, "Location": origin.base + "/blob"},
    )  # fmt: skip
    with pytest.raises(WrongContent, match="its checksum is"):
        await get(store, origin.base + "/a.gguf")
    assert origin.sent == 2 * len(CONTENT)
    assert store.need("m", "v").bytes_done == 0


async def test_one_part_pulls_its_whole_set(origin: Origin, store: Store) -> None:
    parts = [f"/big-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    for part in parts:
        origin.put(part, CONTENT[: int(part[9]) * 1000])
    made = await get(store, origin.base + parts[1])
    assert [f"/{file.file}" for file in made.files] == parts
    assert made.complete
    again = await get(store, origin.base + parts[2])
    assert again.complete


async def test_an_incomplete_set_is_refused_before_a_byte_moves(
    origin: Origin, store: Store
) -> None:
    origin.put("/big-00001-of-00002.gguf", CONTENT)
    with pytest.raises(Refused, match=r"big-00002-of-00002\.gguf is not there; nothing was"):
        await get(store, origin.base + "/big-00001-of-00002.gguf")
    with pytest.raises(Refused, match="one of 99999 parts"):
        await get(store, origin.base + "/big-00001-of-99999.gguf")
    assert origin.sent == 0


async def test_one_bad_file_does_not_keep_the_others(origin: Origin, store: Store) -> None:
    for n in (1, 2):
        origin.put(f"/b-0000{n}-of-00002.gguf", CONTENT)
    broken = "/b-00001-of-00002.gguf"

    def forget(path: str) -> None:
        if path == broken:
            origin.always[path] = (404, {})

    origin.on_get = forget
    seen: list[MirrorVersion] = []
    with pytest.raises(LlmgwError, match="404"):
        await pull(store, PullRequest(origin.base + broken, "m", "v"), seen.append, pause=no_pause)
    assert [file.state for file in seen[-1].files] == [FileState.FAILED, FileState.DONE]
    assert "404" in seen[-1].files[0].error
    origin.on_get = None
    del origin.always[broken]
    assert (await get(store, origin.base + broken)).complete
    assert origin.sent == 2 * len(CONTENT)


async def test_only_the_bad_pieces_of_a_damaged_file_are_fetched(
    origin: Origin, store: Store
) -> None:
    url = origin.put("/a.gguf", CONTENT)
    await get(store, url)
    path = store.path("m", "v", "a.gguf")
    with path.open("r+b") as file:
        file.seek(PIECE * 3 + 5)
        file.write(b"damage")
    (finding,) = store.verify("m", "v")
    assert finding.bad_bytes == PIECE
    origin.sent = 0
    made = await get(store, url)
    assert path.read_bytes() == CONTENT
    assert made.complete
    assert origin.sent == PIECE
    assert "1 of its 33 pieces" in made.files[0].note
    assert store.verify("m", "v") == ()


async def test_a_file_that_lost_its_end_is_fetched_from_there(origin: Origin, store: Store) -> None:
    url = origin.put("/a.gguf", CONTENT)
    await get(store, url)
    path = store.path("m", "v", "a.gguf")
    os.truncate(path, PIECE * 30 + 17)
    origin.sent = 0
    assert (await get(store, url)).complete
    assert path.read_bytes() == CONTENT
    assert origin.sent == len(CONTENT) - PIECE * 30


async def test_a_missing_file_is_fetched_again(origin: Origin, store: Store) -> None:
    url = origin.put("/a.gguf", CONTENT)
    await get(store, url)
    store.path("m", "v", "a.gguf").unlink()
    assert (await get(store, url)).complete


async def test_a_damaged_file_of_a_server_without_ranges_is_fetched_whole(
    origin: Origin, store: Store
) -> None:
    url = origin.put("/a.gguf", CONTENT)
    await get(store, url)
    store.path("m", "v", "a.gguf").write_bytes(bytes(len(CONTENT)))
    store.verify("m", "v")
    origin.ranges = False
    assert (await get(store, url)).complete
    assert store.path("m", "v", "a.gguf").read_bytes() == CONTENT


async def test_a_source_that_changed_is_another_version(origin: Origin, store: Store) -> None:
    url = origin.put("/a.gguf", CONTENT)
    await get(store, url)
    origin.put("/a.gguf", CONTENT[::-1])
    with pytest.raises(Refused, match="changed at its source since m/v was pulled"):
        await get(store, url)
    with pytest.raises(Refused, match=r"m/v holds files of .*/a\.gguf"):
        await get(store, origin.put("/b.gguf", CONTENT[1:]))
    assert store.path("m", "v", "a.gguf").read_bytes() == CONTENT
    assert (await get(store, url, "w")).complete


async def test_a_garbage_manifest_is_made_anew(origin: Origin, store: Store) -> None:
    origin.put("/blob", CONTENT)
    origin.always["/a.gguf"] = (
        302, {"X-Linked-Etag": digest(CONTENT), "Location": origin.base + "/blob"},
    )  # fmt: skip
    await get(store, origin.base + "/a.gguf")
    store.manifest_path("m", "v").write_text("{")
    origin.sent = 0
    assert (await get(store, origin.base + "/a.gguf")).complete
    assert origin.sent == 0, "the file that is there has the right checksum"


async def test_a_cancelled_pull_goes_on_later(origin: Origin, store: Store) -> None:
    url = origin.put("/a.gguf", CONTENT)
    origin.hold_at = 1_000_000
    seen: list[MirrorVersion] = []
    task = asyncio.create_task(pull(store, PullRequest(url, "m", "v"), seen.append, pause=no_pause))
    await asyncio.to_thread(origin.holding.wait, 30)
    assert store.is_busy("m", "v")
    with pytest.raises(Refused, match="busy: a pull"):
        await get(store, url)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not store.is_busy("m", "v")
    had = store.need("m", "v").bytes_done
    assert seen[-1].files[0].state is FileState.WAITING
    origin.hold_at = None
    origin.held.set()
    assert (await get(store, url)).complete
    assert store.path("m", "v", "a.gguf").read_bytes() == CONTENT
    assert origin.gets("/a.gguf")[-1] == (f"bytes={had}-" if had else None)


async def test_a_disk_without_room_is_said_before_anything_is_written(
    origin: Origin, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "free_bytes", lambda _: 1_000_000)
    with pytest.raises(
        LlmgwError, match="has 1 MB free and 3 MB are needed beside 67 MB that stay free; free"
    ):
        await get(store, origin.put("/a.gguf", CONTENT))
    assert origin.sent == 0
    assert store.versions() == ()


async def test_a_disk_that_fills_up_is_one_sentence_and_keeps_what_came(
    origin: Origin, store: Store
) -> None:
    url = origin.put("/a.gguf", CONTENT)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, before[1]))
    try:
        with pytest.raises(LlmgwError, match=r"the mirror cannot write to .*File too large"):
            await get(store, url)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert store.need("m", "v").bytes_done == 1_500_000
    assert (await get(store, url)).complete
    assert origin.gets("/a.gguf")[-1] == "bytes=1500000-"


async def test_an_odd_name_on_the_server_is_refused(origin: Origin, store: Store) -> None:
    for name in ("..%2F..%2Fx.gguf", ".hidden", "-rf", "a%00.gguf", "a%5Cb"):
        with pytest.raises(InvalidInput):
            await get(store, f"{origin.base}/d/{name}")
    assert not store.root.exists()


async def test_a_limit_is_paid_by_all_files_together(origin: Origin, store: Store) -> None:
    waits: list[float] = []

    async def pause(wait_s: float) -> None:
        waits.append(wait_s)

    toll = Toll(1000, lambda: 10.0, pause)
    await toll.pay(1000)
    await toll.pay(500)
    await Toll(None, lambda: 10.0, pause).pay(10**12)
    assert waits == pytest.approx([1.0, 1.5], abs=0.06)
    request = PullRequest(origin.put("/a.gguf", CONTENT), "m", "v", rate=1e9)
    assert (await pull(store, request)).complete
    with pytest.raises(InvalidInput, match="rate is at least"):
        await pull(store, PullRequest(request.source, rate=0))


def test_a_rate_is_of_the_last_seconds() -> None:
    rate = Rate()
    assert rate.at(0.0, 0) is None
    assert rate.at(1.0, 1000) == 1000
    for second in range(2, 20):
        last = rate.at(float(second), 1000 + 10 * second)
    assert last == pytest.approx(10)
    assert rate.at(20.0, 5) is None


# -- this machine's files


async def test_a_local_file_and_its_set_are_copied(tmp_path: Path, store: Store) -> None:
    for n in (1, 2):
        (tmp_path / f"b-0000{n}-of-00002.gguf").write_bytes(CONTENT[n:])
    made = await get(store, str(tmp_path / "b-00001-of-00002.gguf"))
    assert [file.sha256 for file in made.files] == [digest(CONTENT[1:]), digest(CONTENT[2:])]
    assert made.complete
    (tmp_path / "b-00002-of-00002.gguf").unlink()
    with pytest.raises(Refused, match="has only 1 of the 2 parts"):
        await get(store, str(tmp_path / "b-00001-of-00002.gguf"), "w")


async def test_a_local_folder_is_copied_without_what_is_hidden(
    tmp_path: Path, store: Store
) -> None:
    source = tmp_path / "My Model"
    (source / "sub").mkdir(parents=True)
    (source / ".git").mkdir()
    (source / ".git" / "x").write_text("1")
    (source / ".hidden").write_text("1")
    (source / "config.json").write_text("{}")
    (source / "sub" / "w.safetensors").write_bytes(CONTENT)
    os.symlink(source / "config.json", source / "link.json")
    made = await pull(store, PullRequest(f"{source}/"), now=lambda: 0.0)
    assert made.model == "my-model"
    assert {file.file for file in made.files} == {"config.json", "link.json", "sub/w.safetensors"}
    assert made.complete
    assert await pull(store, PullRequest(f"{source}/"), now=lambda: 0.0) == made


async def test_half_a_copy_is_gone_on_with(tmp_path: Path, store: Store) -> None:
    source = tmp_path / "a.gguf"
    source.write_bytes(CONTENT)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, before[1]))
    try:
        with pytest.raises(LlmgwError, match="File too large"):
            await get(store, str(source))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    half = store.half("m", "v", "a.gguf").data
    assert half.stat().st_size == 1_500_000
    inode = half.stat().st_ino
    assert (await get(store, str(source))).complete
    assert store.path("m", "v", "a.gguf").read_bytes() == CONTENT
    assert store.path("m", "v", "a.gguf").stat().st_ino == inode


async def test_what_is_not_on_this_machine_is_said(tmp_path: Path, store: Store) -> None:
    with pytest.raises(NotFound, match="is not on this machine"):
        await get(store, str(tmp_path / "none.gguf"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFound, match="has no files"):
        await get(store, str(tmp_path / "empty"))


@pytest.mark.parametrize("heads", [True, False])
async def test_a_server_cannot_steer_the_terminal_with_where_it_leads(
    origin: Origin, store: Store, heads: bool
) -> None:
    url = origin.put("/a.gguf", CONTENT)
    origin.heads = heads
    for start in ("x\x1b[2J\x9b://", "http://[\x1b[2J\x9b", "http://\x1b[2J\x9b@h/"):
        origin.answers = [(302, {"Location": start + "y" * 5000})] * 9
        with pytest.raises(LlmgwError) as caught:
            await get(store, url)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 400


async def test_the_source_of_other_files_is_shown_harmless(origin: Origin, store: Store) -> None:
    url = origin.put("/a.gguf", CONTENT)
    await get(store, url)
    found = store.manifest("m", "v")
    assert found is not None
    store.write_manifest(msgspec.structs.replace(found, source="\x1b[2J" + "x" * 5000))
    with pytest.raises(Refused) as caught:
        await get(store, origin.put("/b.gguf", CONTENT + b"b"))
    assert "·[2J" in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
