"""What instances are given and what is read back: quoting, secrets, logs, files, ports."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from llmgw_core.errors import InvalidInput, RemoteFailed
from llmgw_core.nodes.instance import InstanceSpec, InstanceState, LogChunk
from llmgw_core.nodes.instances import Instances, parse_ports
from llmgw_core.nodes.launch_file import MAX_PAYLOAD
from llmgw_core.nodes.records import parse_listing, parse_spec
from tests.nodes.local_exec import LocalExec
from tests.nodes.shells import local, node, state, until, until_true

__all__ = ["local", "node", "state"]

TELL = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]))"
HARD_TEXTS = (
    "plain",
    "",
    "two words",
    'it\'s "quoted" `date` $(date) $HOME ${x} \\ \\n !! ~ * ? [a]',
    "line one\nline two\n",
    "Grüße 你好 🦙",
    "-n",
    "%s %d",
    "#no comment",
    "a;b&&c|d>e<f",
    "tab\there",
    "@@BEGIN",
)


async def ended(node: Instances, name: str = "a") -> None:
    await until(node.refresh, lambda all_: all_[name].state is InstanceState.EXITED)


async def whole_log(node: Instances, name: str = "a") -> bytes:
    return (await node.read_log(name)).data


def python(code: str, *args: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *args)


async def test_arguments_and_environment_arrive_as_they_were(node: Instances, state: Path) -> None:
    env = {f"V{n}": text for n, text in enumerate(HARD_TEXTS)}
    await node.start(InstanceSpec("a", "t1", python(TELL, *HARD_TEXTS), env=env))
    await ended(node)
    argv, environ, cwd = json.loads(await whole_log(node))
    assert argv == list(HARD_TEXTS)
    assert {name: environ[name] for name in env} == env
    directory = str((state / "run" / "a").resolve())
    assert environ["LLMGW_INSTANCE"] == directory
    assert environ["SPT_NOENV"] == "1"
    assert "LC_ALL" not in environ
    assert cwd == directory


async def test_dir_stands_for_the_directory(node: Instances, state: Path) -> None:
    spec = InstanceSpec(
        "a",
        "t1",
        python(TELL, "{dir}", "--key={dir}/key's", "{ dir }"),
        env={"KEY": "{dir}/k"},
        files={"key": b"\x00secret\xff\n"},
    )
    await node.start(spec)
    await ended(node)
    argv, environ, _ = json.loads(await whole_log(node))
    directory = (state / "run" / "a").resolve()
    assert argv == [str(directory), f"--key={directory}/key's", "{ dir }"]
    assert environ["KEY"] == f"{directory}/k"
    assert (directory / "key").read_bytes() == b"\x00secret\xff\n"


async def test_only_the_owner_can_read_what_lies_there(node: Instances, state: Path) -> None:
    await node.start(InstanceSpec("a", "t1", ("true",), env={"K": "v"}, files={"key": b"s"}))
    await ended(node)
    directory = state / "run" / "a"
    assert directory.stat().st_mode & 0o077 == 0
    for entry in directory.iterdir():
        assert entry.stat().st_mode & 0o177 == 0, entry.name


async def test_secrets_stand_in_no_process_list(node: Instances, local: LocalExec) -> None:
    secret = "sk-" + "7f3a" * 8
    spec = InstanceSpec(
        "a", "t1", ("sleep", "600"), env={"API_KEY": secret}, files={"key": secret.encode()}
    )
    seen: list[bytes] = []

    async def watch() -> None:
        while True:
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    try:
                        seen.append((entry / "cmdline").read_bytes())
                    except OSError:
                        continue
            await asyncio.sleep(0)

    watcher = asyncio.create_task(watch())
    await node.start(spec)
    await node.stop("a", 5.0)
    watcher.cancel()
    await asyncio.gather(watcher, return_exceptions=True)
    assert any(b"sup.sh" in line for line in seen)
    assert not any(secret.encode() in line for line in seen)
    assert secret not in repr(await node.refresh())


async def test_files_of_an_earlier_start_go_away(node: Instances, state: Path) -> None:
    await node.start(InstanceSpec("a", "t1", ("true",), files={"old": b"1", "both": b"1"}))
    await ended(node)
    await node.start(InstanceSpec("a", "t2", ("true",), files={"both": b"2"}))
    await ended(node)
    directory = state / "run" / "a"
    assert not (directory / "old").exists()
    assert (directory / "both").read_bytes() == b"2"


@pytest.mark.parametrize(
    "spec",
    [
        InstanceSpec("a", "t1", ()),
        InstanceSpec("a", "t1", ("x\0y",)),
        InstanceSpec("a", "t1", ("x",), env={"a b": "c"}),
        InstanceSpec("a", "t1", ("x",), env={"A": "nul\0"}),
        InstanceSpec("a", "t1", ("x",), files={"../x": b""}),
        InstanceSpec("a", "t1", ("x",), files={"pid": b""}),
        InstanceSpec("a", "t1", ("x",), files={"log.1": b""}),
        InstanceSpec("a", "t 1", ("x",)),
        InstanceSpec("a", "t1", ("x",), files={"big": bytes(MAX_PAYLOAD)}),
    ],
)
async def test_what_no_node_could_run_is_refused_here(
    node: Instances, local: LocalExec, spec: InstanceSpec
) -> None:
    calls = local.calls
    with pytest.raises(InvalidInput):
        await node.start(spec)
    assert local.calls == calls


async def test_a_larger_file_arrives_whole(node: Instances, state: Path) -> None:
    data = random.Random(1).randbytes(300_000)
    await node.start(InstanceSpec("a", "t1", ("true",), files={"launcher.py": data, "x": b""}))
    await ended(node)
    assert (state / "run" / "a" / "launcher.py").read_bytes() == data
    assert (state / "run" / "a" / "x").read_bytes() == b""


async def test_records_come_back_as_they_were(node: Instances) -> None:
    record: dict[str, str | int | float] = {"model": 'ü "x"\n\\', "port": 18000, "weight": 0.5}
    for name in ("a", "b-2.g3@x=1,%+_"):
        await node.start(InstanceSpec(name, "t1", ("sleep", "600"), record=record, port=18000))
    listed = await node.refresh()
    assert set(listed) == {"a", "b-2.g3@x=1,%+_"}
    assert all(status.record == record for status in listed.values())


async def test_litter_in_the_directory_is_not_listed(node: Instances, state: Path) -> None:
    await node.start(InstanceSpec("a", "t1", ("sleep", "600")))
    (state / "run" / "not ours; *").mkdir()
    (state / "run" / "file").write_text("x")
    (state / "run" / ".hidden").mkdir()
    (state / "run" / "empty").mkdir()
    listed = await node.refresh()
    assert listed["a"].state is InstanceState.RUNNING
    assert {n: s.state.value for n, s in listed.items() if n != "a"} == {"empty": "none"}


# --- logs


async def test_offsets_of_a_log(node: Instances) -> None:
    await node.start(InstanceSpec("a", "t1", ("printf", r"0123456789\0\377")))
    await ended(node)
    assert await node.read_log("a") == LogChunk(b"0123456789\0\xff", 12, 12)
    assert await node.read_log("a", limit=3) == LogChunk(b"9\0\xff", 12, 12)
    assert await node.read_log("a", 2, 4) == LogChunk(b"2345", 6, 12)
    assert await node.read_log("a", 12) == LogChunk(b"", 12, 12)
    assert await node.read_log("a", 0, 0) == LogChunk(b"", 0, 12)
    assert (await node.refresh())["a"].log_bytes == 12
    assert await node.read_log("never") == LogChunk(b"", 0, 0)


async def test_the_log_of_the_run_before_is_kept(node: Instances) -> None:
    await node.start(InstanceSpec("a", "t1", ("echo", "first")))
    await ended(node)
    await node.start(InstanceSpec("a", "t2", ("echo", "second")))
    await ended(node)
    assert await whole_log(node) == b"second\n"
    assert await node.read_log("a", previous=True) == LogChunk(b"first\n", 6, 6)
    assert await node.read_log("a", 2, 2, previous=True) == LogChunk(b"rs", 4, 6)
    # an offset of the run before starts over
    assert (await node.read_log("a", 1000)).data == b"second\n"


LINES = """
import sys, time
for n in range(int(sys.argv[1])):
    print(f"{n:09d}", flush=n % 100 == 0)
    if n % 1000 == 999:
        time.sleep(0.01)
sys.stdout.flush()
print("end", flush=True)
time.sleep(600)
"""


def on_disk(directory: Path) -> int:
    return sum(f.stat().st_size for f in directory.glob("log*") if f.name != "log.base")


async def test_a_log_stays_within_its_bound_and_keeps_its_end(node: Instances, state: Path) -> None:
    limit = 200_000
    spec = InstanceSpec("a", "t1", python(LINES, "60000"), log_limit_mb=limit / (1 << 20))
    await node.start(spec)
    directory = state / "run" / "a"

    async def end() -> LogChunk:
        return await node.read_log("a", limit=1000)

    last = await until(end, lambda chunk: chunk.data.endswith(b"end\n"))
    # 600 kB in all; what is written between two looks may come on top
    await until_true(lambda: on_disk(directory) <= limit)
    assert last.size > limit
    # offsets go on through rotations, and what is kept can be read from its oldest byte on
    oldest = await node.read_log("a", 0, limit=1 << 20)
    assert oldest.next_offset == oldest.size
    assert oldest.data.endswith(b"end\n")
    assert 1000 < len(oldest.data) <= limit
    assert ((await node.refresh())["a"].log_bytes or 0) >= last.size
    await node.stop("a", 5.0)
    await node.start(InstanceSpec("a", "t2", ("true",)))
    assert (await node.read_log("a", previous=True)).data.endswith(b"end\n")


async def test_following_goes_through_rotations_and_restarts(node: Instances, state: Path) -> None:
    """Lines that come one by one are all seen, whatever the log's files do meanwhile."""
    fifo = state.parent / "words"
    os.mkfifo(fifo)
    copy = f"while IFS= read -r w; do echo \"$w\"; done <'{fifo}'"
    await node.start(InstanceSpec("a", "t1", ("sh", "-c", copy), log_limit_mb=0.02))
    seen = bytearray()
    with fifo.open("w") as words:
        async with aclosing(node.follow_log("a", 0)) as pieces:
            for round_ in range(8):
                mark = f"round {round_}"
                words.write("\n".join(f"{n:099d}" for n in range(40)) + f"\n{mark}\n")
                words.flush()
                async for piece in pieces:
                    seen += piece
                    if seen.endswith(f"{mark}\n".encode()):
                        break
    lines = seen.decode().splitlines()
    assert [line for line in lines if line.startswith("round")] == [f"round {n}" for n in range(8)]
    await ended(node)
    assert len(lines) == 8 * 41
    await node.start(InstanceSpec("a", "t2", ("echo", "anew")))
    async with aclosing(node.follow_log("a", len(seen))) as pieces:
        assert await anext(aiter(pieces)) == b"anew\n"


async def test_following_ends_with_its_reader(node: Instances, local: LocalExec) -> None:
    await node.start(InstanceSpec("a", "t1", ("sh", "-c", "echo one; sleep 600")))
    async with aclosing(node.follow_log("a", 0)) as pieces:
        assert await anext(aiter(pieces)) == b"one\n"


# --- files and ports


async def test_files_are_put_and_weighed(node: Instances, tmp_path: Path) -> None:
    path = tmp_path / "models it's" / "ü" / "m.gguf"
    assert await node.stat_file(str(path)) is None
    await node.put_file(str(path), b"\0\xff\n" * 1000, 0o640)
    assert path.read_bytes() == b"\0\xff\n" * 1000
    assert path.stat().st_mode & 0o777 == 0o640
    assert await node.stat_file(str(path)) == 3000
    await node.put_file(str(path.with_name("n.gguf")), b"12")
    assert await node.stat_file(f"{path.parent}/") == 3002
    assert sorted(p.name for p in path.parent.iterdir()) == ["m.gguf", "n.gguf"]
    await node.put_file(str(path), b"")
    assert await node.stat_file(str(path)) == 0


async def test_the_files_of_a_folder_are_listed_with_their_sizes(
    node: Instances, tmp_path: Path
) -> None:
    folder = tmp_path / "a model's"
    assert await node.list_files(f"{folder}/") is None
    await node.put_file(str(folder / "m 1.gguf"), b"123")
    await node.put_file(str(folder / "sub" / "ü.gguf"), b"12")
    assert await node.list_files(f"{folder}/") == {"m 1.gguf": 3, "sub/ü.gguf": 2}
    assert await node.list_files(str(folder / "m 1.gguf")) == {"": 3}


async def test_parts_of_a_file_are_read_byte_for_byte(node: Instances, tmp_path: Path) -> None:
    path = tmp_path / "a model's.gguf"
    data = random.Random(7).randbytes(300_000) + b"\n\0\r\n"
    path.write_bytes(data)
    for offset, length in ((0, 10), (1, 262_144), (299_990, 14), (299_990, 15), (300_004, 5)):
        part = await node.read_file(str(path), offset=offset, length=length)
        assert part == data[offset : offset + length]
    assert await node.read_file(str(path), offset=999_999, length=5) == b""
    assert await node.read_file(str(path), offset=0, length=0) == b""


async def test_a_file_that_cannot_be_read_is_an_error(node: Instances, tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(RemoteFailed, match="is not there, or no file"):
            await node.read_file(str(path), offset=0, length=5)
    with pytest.raises(InvalidInput):
        await node.read_file("a\nb", offset=0, length=5)


async def test_a_path_may_begin_at_home(node: Instances, local: LocalExec) -> None:
    await node.put_file("~/x/y", b"1")
    assert (local.home / "x" / "y").read_bytes() == b"1"
    assert await node.stat_file("x/y") == 1


async def test_a_folder_of_links_is_weighed_by_what_they_lead_to(
    node: Instances, tmp_path: Path
) -> None:
    (tmp_path / "blob").write_bytes(b"12345")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "model").symlink_to(tmp_path / "blob")
    (folder / "broken").symlink_to(tmp_path / "nowhere")
    assert await node.stat_file(str(folder)) == 5


async def test_a_file_that_cannot_be_written_is_an_error(node: Instances, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RemoteFailed, match="cannot create"):
        await node.put_file(str(tmp_path / "file" / "below"), b"1")
    with pytest.raises(InvalidInput):
        await node.put_file("a\nb", b"1")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
async def test_a_full_disk_keeps_the_old_file(node: Instances, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=True)
    try:
        await node.put_file(str(small / "f"), b"old")
        with pytest.raises(RemoteFailed, match="disk is full"):
            await node.put_file(str(small / "f"), bytes(100_000))
        assert (small / "f").read_bytes() == b"old"
        assert [p.name for p in small.iterdir()] == ["f"]
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


async def test_a_port_that_listens_is_not_free(node: Instances) -> None:
    with socket.socket() as four, socket.socket(socket.AF_INET6) as six:
        four.bind(("127.0.0.1", 0))
        four.listen()
        six.bind(("::1", 0))
        six.listen()
        for taken in (four.getsockname()[1], six.getsockname()[1]):
            with pytest.raises(RemoteFailed, match="no port from"):
                await node.free_port((taken, taken), frozenset())
            span = (taken - 1, taken + 1)
            assert await node.free_port(span, frozenset({taken - 1})) != taken
    span = (18000, 18999)
    picks = {await node.free_port(span, frozenset(), rng=random.Random(n)) for n in range(4)}
    assert len(picks) > 1


def test_ports_are_read_from_the_kernels_table() -> None:
    text = b"""\
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0100007F:1F91 0100007F:0016 01 00000000:00000000 00:00000000 00000000     0        0 2 1
   2: 00000000000000000000000001000000:4650 00000000000000000000000000000000:0000 0A 0:0 00:0 0
garbage 0A
"""
    assert parse_ports(text) == {0x1F90, 0x4650}


# --- what comes back is read with care


def test_a_listing_of_nonsense_is_empty() -> None:
    lines = [b"", b"i", b"i a b", b"i a running x y z t - - 0", b"\xff\xfe", b"z x y", b"s", b"u x"]
    found = parse_listing([*lines, b"i b flying 1 2 boot t 3 4 0"])
    assert set(found) == {"a"}
    assert found["a"].pid is None


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b'{"record": 1}', b'{"token": "t2", "record": {"a": 1}}']
)
def test_a_spec_that_is_not_of_this_start_says_nothing(line: bytes) -> None:
    assert parse_spec(line, "t1") == {}
