"""A pull as a process of its own: its lines, its end, and what a kill leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw_core.mirror.store import Store
from llmgw_core.mirror.versions import FileState, MirrorVersion, from_wire

from .origin import Origin, serving

CONTENT = bytes(range(251)) * 13_001


@pytest.fixture
def origin() -> Iterator[Origin]:
    with serving() as made:
        made.put("/a.gguf", CONTENT)
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "mirror")


def start(request: object) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "llmgw_core.mirror", "pull"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin
    process.stdin.write(json.dumps(request).encode())
    process.stdin.close()
    process.stdin = None
    return process


def lines_of(output: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


def asked(store: Store, origin: Origin, **more: object) -> dict[str, object]:
    source = f"{origin.base}/a.gguf"
    return {"root": str(store.root), "source": source, "model": "m", "version": "v", **more}


def test_it_tells_of_the_version_until_it_is_complete(store: Store, origin: Origin) -> None:
    process = start(asked(store, origin, limit=4e6, endpoint=None))
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")
    told = [from_wire(line) for line in lines_of(out)]
    assert told[-1] == store.need("m", "v") or told[-1].complete
    done = [version.bytes_done for version in told]
    assert done == sorted(done)
    assert all(version.bytes_total == len(CONTENT) for version in told)
    assert any(v.files[0].state is FileState.FETCHING for v in told)


@pytest.mark.parametrize(
    ("request_", "code", "status"),
    [
        ("nonsense", "invalid", 2),
        ({"root": "/x", "source": "hf:x"}, "invalid", 2),
        ({"root": "/x", "source": "/nowhere/x.gguf"}, "not_found", 3),
        ({"root": "/x", "source": "a", "odd": 1}, "invalid", 2),
    ],
)
def test_a_failure_is_its_last_line(request_: object, code: str, status: int) -> None:
    process = start(request_)
    out, err = process.communicate(timeout=30)
    assert err == b""
    (line,) = lines_of(out)
    assert isinstance(line["error"], dict)
    assert line["error"]["code"] == code
    assert process.returncode == status


def test_a_killed_pull_goes_on_where_it_was(store: Store, origin: Origin) -> None:
    origin.hold_at = 2_000_000
    process = start(asked(store, origin))
    with process:
        for version in _told(process):
            if version.bytes_done >= 1_000_000:
                break
        process.kill()
    assert not store.is_busy("m", "v")
    had = store.need("m", "v").bytes_done
    assert 1_000_000 <= had <= 2_000_000
    origin.hold_at = None
    origin.held.set()
    after = start(asked(store, origin))
    out, _ = after.communicate(timeout=30)
    assert after.returncode == 0
    assert from_wire(lines_of(out)[-1]).complete
    assert store.path("m", "v", "a.gguf").read_bytes() == CONTENT
    assert origin.gets("/a.gguf")[-1] == f"bytes={had}-"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_ends_when_told_and_keeps_what_came(
    store: Store, origin: Origin, number: signal.Signals
) -> None:
    origin.hold_at = 2_000_000
    process = start(asked(store, origin))
    with process:
        assert process.stdout
        for version in _told(process):
            if version.bytes_done >= 1_000_000:
                break
        process.send_signal(number)
        *_, last = lines_of(process.stdout.read())
        assert isinstance(last["error"], dict)
        assert last["error"]["code"] == "cancelled"
        assert process.wait(30) == 130
    assert 1_000_000 <= store.need("m", "v").bytes_done <= 2_000_000


def test_it_ends_when_nobody_listens(store: Store, origin: Origin) -> None:
    origin.hold_at = 2_000_000
    process = start(asked(store, origin))
    with process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 130
        assert process.stderr.read() == b""
    assert not store.is_busy("m", "v")


def test_the_word_is_needed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "llmgw_core.mirror"], capture_output=True, check=False,
        stdin=subprocess.DEVNULL, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 2
    assert b"usage" in done.stderr


def _told(process: subprocess.Popen[bytes]) -> Iterator[MirrorVersion]:
    assert process.stdout
    for line in process.stdout:
        yield from_wire(json.loads(line))
    raise AssertionError("it ended early")
