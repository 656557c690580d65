"""Fetching weights on a node: this machine, under each shell and with each tool it may have."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from llmgw_core.errors import RemoteFailed
from llmgw_core.nodes.api import NodeHandle
from llmgw_core.nodes.fetching import ensure_weights, stop_fetch
from llmgw_core.nodes.probe import ProbeHints, probe
from llmgw_core.nodes.weights import FetchExit, FetchJob, FetchProgress, WeightsFile, fetch_spec
from tests.mirror.shelves import TOKEN as MIRROR_TOKEN
from tests.mirror.shelves import lab
from tests.nodes.local_exec import LocalExec
from tests.nodes.shelf import KEY, STEP, TOKEN, LocalNode, Shelf, only, serving, sha, shim
from tests.nodes.shells import local, marked, state, until, until_true

__all__ = ["local", "state"]

one_shell = pytest.mark.parametrize("local", ["dash"], indirect=True)

FILES = {
    "model-00001-of-00002.gguf": random.Random(1).randbytes(300_000),
    "model-00002-of-00002.gguf": random.Random(2).randbytes(150_001),
    'it\'s a "split" $HOME `x` #1 é.txt': b"odd name",
    " deeper/down below/-n": b"",
}
TOTAL = sum(len(data) for data in FILES.values())


@pytest.fixture
async def shelf() -> AsyncIterator[Shelf]:
    async with serving(Shelf(dict(FILES))) as found:
        yield found


@pytest.fixture
async def node(local: LocalExec, state: Path) -> AsyncIterator[LocalNode]:
    found = LocalNode(local, state)
    yield found
    for pid in marked(state):
        os.kill(pid, 9)


async def ensure(
    node: LocalNode,
    job: FetchJob,
    heard: list[FetchProgress] | None = None,
    push: Callable[..., object] | None = None,
) -> str:
    said: list[FetchProgress] = [] if heard is None else heard
    return await ensure_weights(
        node.handle(),
        job,
        progress=said.append,
        push=push,  # type: ignore[arg-type]
    )


@asynccontextmanager
async def begun(
    node: LocalNode, shelf: Shelf, heard: list[FetchProgress] | None = None, stall_s: int = 60
) -> AsyncIterator[asyncio.Task[str]]:
    """A fetch whose first bytes have come, and no more before ``gate`` is set."""
    shelf.gate = asyncio.Event()
    task = asyncio.create_task(ensure(node, shelf.job(stall_s=stall_s), heard))
    try:
        await shelf.held_back.wait()
        yield task
    finally:
        shelf.gate.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def one_file(shelf: Shelf, size: int = 200_000) -> bytes:
    data = random.Random(3).randbytes(size)
    shelf.contents = {"m.gguf": data}
    return data


def go(shelf: Shelf) -> None:
    """Let everything through."""
    assert shelf.gate is not None
    shelf.gate.set()


def there(state: Path, contents: dict[str, bytes]) -> bool:
    folder = state / "weights" / KEY
    found = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    return found.keys() == contents.keys() and all(
        found[path].read_bytes() == data for path, data in contents.items()
    )


def halves(state: Path) -> list[Path]:
    return [p for p in (state / "weights/.partial").rglob("*") if p.is_file() and p.name != ".lock"]


@pytest.mark.parametrize("tool", ["curl", "wget", "python3"])
async def test_a_version_comes_whole_and_only_once(
    node: LocalNode, state: Path, shelf: Shelf, tool: str
) -> None:
    only(node.local, tool)
    heard: list[FetchProgress] = []
    path = await ensure(node, shelf.job(), heard)
    assert path == str(state / "weights" / KEY)
    assert there(state, FILES)
    assert shelf.sent == TOTAL
    assert shelf.tokens == {f"Bearer {TOKEN}"}
    assert heard[-1] == FetchProgress(TOTAL, TOTAL, "done", done=True)
    held = (await node.weights())[KEY]
    assert held.complete
    assert {name: file.sha256 for name, file in held.files.items()} == {
        name: sha(data) for name, data in FILES.items()
    }
    assert (held.bytes_held, held.partial_bytes) == (TOTAL, 0)
    assert await node.refresh_instances() == {}
    # and then nothing is asked or started any more
    before = len(shelf.asked), node.starts
    assert await ensure(node, shelf.job()) == path
    assert (len(shelf.asked), node.starts) == before


@one_shell
@pytest.mark.parametrize("tool", ["curl", "wget", "python3"])
async def test_what_is_cut_goes_on_where_it_was(
    node: LocalNode, state: Path, shelf: Shelf, tool: str
) -> None:
    only(node.local, tool)
    data = one_file(shelf)
    shelf.cuts = [STEP, 3 * STEP, 1]
    path = await ensure(node, shelf.job())
    assert Path(path).read_bytes() == data
    assert shelf.asked == [("m.gguf", at) for at in (0, STEP, 4 * STEP, 4 * STEP + 1)]
    assert shelf.sent == len(data)


@one_shell
@pytest.mark.parametrize("tool", ["curl", "wget", "python3"])
async def test_a_server_without_ranges(
    node: LocalNode, state: Path, shelf: Shelf, tool: str
) -> None:
    only(node.local, tool)
    one_file(shelf)
    shelf.cuts = [3 * STEP]
    shelf.ignore_ranges = True
    await ensure(node, shelf.job())
    assert there(state, shelf.contents)


@one_shell
async def test_a_single_file_is_named_and_kept_apart_until_it_is_right(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    data = one_file(shelf)
    async with begun(node, shelf) as task:
        await until_true(lambda: sum(p.stat().st_size for p in halves(state)) == STEP)
        assert there(state, {})
        held = (await node.weights())[KEY]
        assert (held.complete, held.partial_bytes) == (False, STEP)
        go(shelf)
        path = await task
    assert path == str(state / "weights" / KEY / "m.gguf")
    assert Path(path).read_bytes() == data


async def test_a_fetch_outlives_who_asked_and_is_joined(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    one_file(shelf)
    heard: list[FetchProgress] = []
    async with begun(node, shelf) as first:
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = asyncio.create_task(ensure(node, shelf.job(), heard))
        await until_true(lambda: any(p.phase == "get" and p.bytes_done == STEP for p in heard))
        go(shelf)
        await second
    assert there(state, shelf.contents)
    assert (node.starts, len(shelf.asked)) == (1, 1)


@one_shell
async def test_two_who_ask_at_once_share_one_fetch(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    paths = await asyncio.gather(*(ensure(node, shelf.job()) for _ in range(2)))
    assert paths[0] == paths[1]
    assert there(state, FILES)
    assert shelf.sent == TOTAL


@one_shell
@pytest.mark.parametrize("flock", [True, False])
async def test_two_fetches_of_two_controllers_do_not_write_the_same_half_file(
    node: LocalNode, state: Path, shelf: Shelf, flock: bool
) -> None:
    if not flock:
        shim(node.local, "flock", "exit 127")
    other = LocalNode(node.local, state, area="others")
    one_file(shelf)
    heard: list[FetchProgress] = []
    async with begun(node, shelf) as first:
        second = asyncio.create_task(ensure(other, shelf.job(), heard))
        await until_true(lambda: any(p.phase == "wait" for p in heard))
        assert {p.bytes_total for p in heard} == {200_000}
        go(shelf)
        await asyncio.gather(first, second)
    assert there(state, shelf.contents)
    assert len(shelf.asked) == 1


@one_shell
async def test_a_lock_of_a_dead_holder_is_taken_over(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    shim(node.local, "flock", "exit 127")
    lock = state / "weights/.partial" / KEY / ".lock.d"
    lock.mkdir(parents=True)
    (lock / "holder").write_text("999999 1 gone\n")
    await ensure(node, shelf.job())
    assert there(state, FILES)
    assert not lock.exists()


@one_shell
async def test_a_wrong_checksum_is_fetched_again_once(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    one_file(shelf)
    shelf.wrong = 1
    await ensure(node, shelf.job())
    assert there(state, shelf.contents)
    assert [at for _, at in shelf.asked] == [0, 0]


@one_shell
async def test_content_that_stays_wrong_is_no_weights(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    one_file(shelf)
    shelf.wrong = 9
    with pytest.raises(RemoteFailed, match=r"m\.gguf of .* wrong checksum, 2 times") as caught:
        await ensure(node, shelf.job())
    assert caught.value.exit_status == FetchExit.CHECKSUM
    assert there(state, {})
    assert halves(state) == []
    assert (await node.weights()).get(KEY) is None


@one_shell
@pytest.mark.parametrize("tool", ["curl", "wget", "python3"])
@pytest.mark.parametrize("status", [401, 404])
async def test_a_mirror_that_refuses_is_not_asked_again(
    node: LocalNode, shelf: Shelf, tool: str, status: int
) -> None:
    only(node.local, tool)
    shelf.status = status
    with pytest.raises(RemoteFailed, match=f"here: .*the mirror .*answers {status}") as caught:
        await ensure(node, shelf.job())
    assert caught.value.exit_status == FetchExit.REFUSED
    assert len(shelf.asked) == 1


@one_shell
@pytest.mark.parametrize("tool", ["curl", "wget", "python3"])
async def test_a_mirror_that_is_busy_for_a_while(
    node: LocalNode, state: Path, shelf: Shelf, tool: str
) -> None:
    only(node.local, tool)
    shelf.statuses = [503, 503, 503, 503, 500]
    await ensure(node, shelf.job())
    assert there(state, FILES)


async def test_a_disk_that_is_too_full_says_so_before_a_byte_comes(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    shim(
        node.local,
        "df",
        "echo 'Filesystem 1024-blocks Used Available Capacity Mounted on'\n"
        "echo '/dev/a disk 1000 900 100 90% /'",
    )
    with pytest.raises(RemoteFailed) as caught:
        await ensure(node, shelf.job())
    assert caught.value.exit_status == FetchExit.NO_SPACE
    assert f"it needs {TOTAL} bytes more" in str(caught.value)
    assert f"{state}/weights has 102400 bytes free; free some space there" in str(caught.value)
    assert shelf.asked == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
@one_shell
@pytest.mark.parametrize("tool", ["curl", "wget", "python3"])
async def test_a_disk_that_fills_up_meanwhile(
    node: LocalNode, state: Path, shelf: Shelf, tool: str
) -> None:
    only(node.local, tool)
    shim(node.local, "df", "exit 1")  # as if there were room at first
    one_file(shelf, 3_000_000)
    weights = state / "weights"
    weights.mkdir(parents=True)
    mount = await asyncio.create_subprocess_exec(
        "mount", "-t", "tmpfs", "-o", "size=1m", "none", str(weights)
    )
    if await mount.wait():
        pytest.skip("nothing can be mounted here")
    try:
        with pytest.raises(RemoteFailed, match="cannot write below") as caught:
            await ensure(node, shelf.job())
        assert caught.value.exit_status == FetchExit.WRITE
        assert there(state, {})
    finally:
        umount = await asyncio.create_subprocess_exec("umount", "-l", str(weights))
        await umount.wait()


async def test_two_that_need_other_files_of_a_version_do_not_undo_each_other(
    node: LocalNode, shelf: Shelf
) -> None:
    shelf.contents = {"a b.gguf": b"a" * STEP, "b.gguf": b"b" * 2 * STEP, "c/d.gguf": b"d"}
    whole = shelf.job()
    jobs = [replace(whole, files=(file,)) for file in whole.files]
    for job in jobs:
        await ensure(node, job)
    held = (await node.weights())[KEY]
    assert [held.satisfies(job) for job in jobs] == [True, True, True]
    assert held.satisfies(whole)
    (Path(await ensure(node, jobs[0]))).unlink()
    await ensure(node, jobs[1])
    held = (await node.weights())[KEY]
    assert [held.satisfies(job) for job in jobs] == [False, True, True]
    assert [path for path, _ in shelf.asked] == ["a b.gguf", "b.gguf", "c/d.gguf"]


async def test_stopped_it_leaves_no_process_and_goes_on_later(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    data = one_file(shelf)
    async with begun(node, shelf) as task:
        await until_true(lambda: sum(p.stat().st_size for p in halves(state)) == STEP)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await stop_fetch(node.handle(), KEY)
        assert marked(state) == []
        assert await node.refresh_instances() == {}
        await stop_fetch(node.handle(), KEY)  # again is the same
    path = await ensure(node, shelf.job())
    assert Path(path).read_bytes() == data
    assert shelf.asked == [("m.gguf", 0), ("m.gguf", STEP)]


@one_shell
async def test_a_fetch_that_was_killed_takes_its_download_with_it(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    data = one_file(shelf)
    async with begun(node, shelf) as task:
        pid = (await node.refresh_instances())[shelf.job().instance].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RemoteFailed, match="it was stopped on the node"):
            await task
        await until_true(lambda: marked(state) == [])
    assert Path(await ensure(node, shelf.job())).read_bytes() == data
    assert shelf.asked == [("m.gguf", 0), ("m.gguf", STEP)]


@one_shell
async def test_who_waits_for_a_fetch_that_is_stopped_hears_so(
    node: LocalNode, shelf: Shelf
) -> None:
    one_file(shelf)
    async with begun(node, shelf) as task:
        await node.stop_instance(shelf.job().instance, grace_s=5.0)
        with pytest.raises(RemoteFailed, match="it was stopped on the node"):
            await task


@one_shell
async def test_a_fetch_for_a_mirror_that_has_moved_is_begun_anew(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    gone = Shelf(shelf.contents, url="http://127.0.0.1:1").job(tries=4)
    await node.start_instance(fetch_spec(gone))
    await ensure(node, shelf.job())
    assert there(state, FILES)
    assert node.starts == 2


@one_shell
@pytest.mark.parametrize("tool", ["curl", "wget", "python3"])
async def test_a_mirror_out_of_reach_is_said_and_pushed_around(
    node: LocalNode, state: Path, shelf: Shelf, tool: str
) -> None:
    only(node.local, tool)
    shelf.url = "http://127.0.0.1:1"
    with pytest.raises(RemoteFailed, match="cannot fetch from the mirror at 127") as caught:
        await ensure(node, shelf.job())
    assert caught.value.exit_status == FetchExit.UNREACHABLE

    async def push(
        to: NodeHandle, job: FetchJob, progress: Callable[[FetchProgress], None]
    ) -> None:
        for file in job.files:
            half = state / "weights/.partial" / KEY / file.sha256
            half.write_bytes(shelf.contents[file.path])

    await ensure(node, shelf.job(), push=push)
    assert there(state, FILES)


@one_shell
async def test_what_was_pushed_is_checked(node: LocalNode, state: Path, shelf: Shelf) -> None:
    shelf.url = "http://127.0.0.1:1"
    one_file(shelf, 1000)

    async def push(
        to: NodeHandle, job: FetchJob, progress: Callable[[FetchProgress], None]
    ) -> None:
        (state / "weights/.partial" / KEY / job.files[0].sha256).write_bytes(b"x" * 1000)

    with pytest.raises(RemoteFailed, match="wrong checksum") as caught:
        await ensure(node, shelf.job(), push=push)
    assert caught.value.exit_status == FetchExit.CHECKSUM
    assert there(state, {})


@one_shell
@pytest.mark.parametrize("tool", ["curl", "wget", "python3"])
async def test_the_token_shows_nowhere(
    node: LocalNode, state: Path, shelf: Shelf, tool: str
) -> None:
    only(node.local, tool)
    one_file(shelf)
    heard: list[FetchProgress] = []
    async with begun(node, shelf, heard) as task:
        await until_true(lambda: bool(heard))
        seen = b""
        for pid in marked(state):
            for file in ("cmdline", "environ"):
                seen += Path(f"/proc/{pid}/{file}").read_bytes()
        assert tool.encode() in seen
        assert TOKEN.encode() not in seen
        for path in state.rglob("*"):
            if path.is_file() and TOKEN.encode() in path.read_bytes():
                assert path.stat().st_mode & 0o077 == 0, path
                assert not path.name.startswith("log")
        assert TOKEN not in repr(shelf.job())
        go(shelf)
        await task
    left = [p for p in state.rglob("*") if p.is_file() and TOKEN.encode() in p.read_bytes()]
    assert left == []


@one_shell
async def test_a_failed_fetch_leaves_no_token(node: LocalNode, state: Path, shelf: Shelf) -> None:
    shelf.status = 404
    await node.start_instance(fetch_spec(shelf.job()))

    async def alive() -> bool:
        return any(s.state.alive for s in (await node.refresh_instances()).values())

    await until(alive, lambda yes: not yes)
    left = [p for p in state.rglob("*") if p.is_file() and TOKEN.encode() in p.read_bytes()]
    assert left == []


@one_shell
async def test_files_that_lie_there_are_checked_instead_of_fetched(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    folder = state / "weights" / KEY
    folder.mkdir(parents=True)
    first, second = list(FILES)[:2]
    (folder / first).write_bytes(FILES[first])
    (folder / second).write_bytes(b"?" * len(FILES[second]))
    await ensure(node, shelf.job())
    assert there(state, FILES)
    assert first not in {file for file, _ in shelf.asked}


@one_shell
async def test_a_file_that_was_changed_is_no_longer_held_and_is_mended(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    await ensure(node, shelf.job())
    name = next(iter(FILES))
    (state / "weights" / KEY / name).write_bytes(b"oops")
    held = (await node.weights())[KEY]
    assert not held.complete
    assert name not in held.files
    shelf.asked.clear()
    await ensure(node, shelf.job())
    assert there(state, FILES)
    assert {file for file, _ in shelf.asked} == {name}


async def test_the_probe_tells_which_versions_are_whole(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    hints = ProbeHints(str(state))
    assert (await probe(node.local, hints)).weights == frozenset()
    await ensure(node, shelf.job())
    assert (await probe(node.local, hints)).weights == frozenset({KEY})
    await node.remove_weights(KEY)
    assert (await probe(node.local, hints)).weights == frozenset()


async def test_removal_takes_everything_and_nothing_else(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    await ensure(node, shelf.job())
    await ensure(node, shelf.job(key="qwen/v2"))
    await node.remove_weights(KEY)
    assert (await node.weights()).keys() == {"qwen/v2"}
    assert not (state / "weights" / KEY).exists()
    await node.remove_weights(KEY)
    await node.remove_weights("qwen/v2")
    assert [p for p in (state / "weights").rglob("*") if p.is_file()] == []


@one_shell
async def test_what_is_fetched_is_not_removed(node: LocalNode, state: Path, shelf: Shelf) -> None:
    async with begun(node, shelf) as task:
        with pytest.raises(RemoteFailed, match="is being fetched on the node; stop that first"):
            await node.remove_weights(KEY)
        go(shelf)
        await task
    assert there(state, FILES)


@one_shell
async def test_a_node_without_any_tool(node: LocalNode, shelf: Shelf) -> None:
    only(node.local, "none")
    with pytest.raises(RemoteFailed, match="none of curl, wget and python3") as caught:
        await ensure(node, shelf.job())
    assert caught.value.exit_status == FetchExit.NO_TOOL
    for tool in ("sha256sum", "shasum", "openssl"):
        shim(node.local, tool, "exit 127")
    with pytest.raises(RemoteFailed, match="no program for SHA-256") as caught:
        await ensure(node, shelf.job())
    assert caught.value.exit_status == FetchExit.NO_SUMS


@one_shell
@pytest.mark.parametrize("summer", ["sha256sum", "shasum", "openssl", "python3"])
async def test_every_way_to_a_checksum(
    node: LocalNode, state: Path, shelf: Shelf, summer: str
) -> None:
    if shutil.which(summer) is None:
        pytest.skip(f"{summer} is not installed")
    for tool in ("sha256sum", "shasum", "openssl", "python3"):
        if tool != summer:
            shim(node.local, tool, "exit 127")
    await ensure(node, shelf.job())
    assert there(state, FILES)


@pytest.mark.parametrize("local", ["busybox"], indirect=True)
async def test_the_small_wget_serves_where_no_key_is_needed(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    for tool in ("curl", "python3"):
        shim(node.local, tool, "exit 127")
    with pytest.raises(RemoteFailed, match="none of curl, wget and python3"):
        await ensure(node, shelf.job())
    shelf.cuts = [STEP]
    await ensure(node, shelf.job(token=""))
    assert there(state, FILES)
    assert shelf.tokens == {None}


@one_shell
async def test_a_download_that_stands_still_is_begun_anew(
    node: LocalNode, state: Path, shelf: Shelf
) -> None:
    one_file(shelf)
    async with begun(node, shelf, stall_s=1) as task:
        await until_true(lambda: len(shelf.asked) > 1)
        go(shelf)
        await task
    assert there(state, shelf.contents)


@one_shell
async def test_the_real_mirror_gives_and_resumes(
    node: LocalNode, state: Path, tmp_path: Path
) -> None:
    async with lab(tmp_path / "mirror") as mirror:
        data = random.Random(4).randbytes(500_000)
        mirror.shelf.put("deep/er/w x-ü.gguf", data)
        url = f"http://127.0.0.1:{mirror.port}/v1/files/m/v1/deep/er/w%20x-%C3%BC.gguf"
        file = WeightsFile("deep/er/w x-ü.gguf", len(data), sha(data), url)
        job = FetchJob("m/v1", (file,), MIRROR_TOKEN, margin_bytes=0)
        half = state / "weights/.partial/m/v1" / file.sha256
        half.parent.mkdir(parents=True)
        half.write_bytes(data[:123_457])
        assert Path(await ensure(node, job)).read_bytes() == data
        with pytest.raises(RemoteFailed, match=r"does not give out .* .it answers 401") as caught:
            await ensure(node, replace(job, key="m/v2", token="wrong"))
        assert caught.value.exit_status == FetchExit.REFUSED
