"""Installing an engine: a wheel made here stands in for the real one."""

from __future__ import annotations

import asyncio
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from llmgw_core.errors import EngineFailed, InvalidInput
from llmgw_core.nodes.instance import InstanceState, InstanceStatus, LogChunk
from llmgw_core.nodes.instances import Instances
from llmgw_core.nodes.probe import ProbeHints, probe
from llmgw_core.nodes.provision import _watch, provision
from tests.nodes.local_exec import LocalExec
from tests.nodes.shells import local, until_true

__all__ = ["local"]

one_shell = pytest.mark.parametrize("local", ["dash"], indirect=True)
"""A venv takes seconds: what the shell makes no difference to runs under one."""

QUICK = """
case $* in
  '-m venv '*)
    if "$real" -m pip --version >/dev/null 2>&1; then
      shift 2
      set -- -m venv --without-pip --system-site-packages "$@"
    fi ;;
esac
exec "$real" "$@"
"""
"""A Python whose venvs borrow its pip: bringing one of their own takes them many seconds."""

PYTHONS = ("python3", "python3.13", "python3.12", "python3.11", "python3.10", "python3.9")


def make_wheel(folder: Path, code: str = "") -> None:
    folder.mkdir(exist_ok=True)
    info = "xllamacpp-2026.9.1.dist-info"
    with zipfile.ZipFile(folder / "xllamacpp-2026.9.1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("xllamacpp.py", code)
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: xllamacpp\nVersion: 2026.9.1\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def installable(local: LocalExec, tmp_path: Path) -> LocalExec:
    """A node whose python3 is this one's and whose index is a folder."""
    python3(local, QUICK)
    make_wheel(tmp_path / "wheels")
    local.env.update(
        PIP_NO_INDEX="1",
        PIP_FIND_LINKS=str(tmp_path / "wheels"),
        PIP_CONFIG_FILE="/dev/null",
        PIP_IGNORE_INSTALLED="1",
        PIP_NO_COMPILE="1",
    )
    return local


def python3(local: LocalExec, body: str) -> None:
    """What every name of Python does on the node; ``$real`` is one that works."""
    real = getattr(sys, "_base_executable", sys.executable)
    for name in PYTHONS:
        path = local.tools / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\nreal='{real}'\n{body}\n")
        path.chmod(0o755)


async def install(local: LocalExec, state: Path, lines: list[str] | None = None) -> str:
    said: list[str] = [] if lines is None else lines
    return await provision(local, "llamacpp", progress=said.append, state_dir=str(state))


async def test_an_engine_is_installed_found_and_left_alone(
    installable: LocalExec, tmp_path: Path
) -> None:
    state = tmp_path / "st ate"
    lines: list[str] = []
    assert await install(installable, state, lines) == "2026.9.1"
    assert any("installing xllamacpp" in line for line in lines)
    assert not any(line.startswith("@@") for line in lines)
    found = (await probe(installable, ProbeHints(str(state)))).engine("llamacpp")
    assert found is not None
    assert (found.kind, found.version) == ("xllamacpp", "2026.9.1")
    assert found.path == str(state.resolve() / "engines" / "xllamacpp" / "bin" / "python")
    again: list[str] = []
    assert await install(installable, state, again) == "2026.9.1"
    assert again == []
    assert [p.name for p in (state / "engines").iterdir()] == ["xllamacpp"]


@one_shell
async def test_a_venv_of_its_own(installable: LocalExec, tmp_path: Path) -> None:
    python3(installable, 'exec "$real" "$@"')
    assert await install(installable, tmp_path / "state") == "2026.9.1"


@one_shell
async def test_asking_again_joins_what_a_lost_link_left(
    installable: LocalExec, tmp_path: Path
) -> None:
    go, runs = tmp_path / "go", tmp_path / "runs"
    python3(
        installable,
        f"case $* in '-m venv '*) echo run >>'{runs}'\n"
        f'while [ ! -e \'{go}\' ]; do sleep 0.1; done;; esac\nexec "$real" "$@"',
    )
    state = tmp_path / "state"
    first = asyncio.create_task(install(installable, state))
    await until_true(runs.exists)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    lines: list[str] = []
    second = asyncio.create_task(install(installable, state, lines))
    await until_true(lambda: any("making a venv" in line for line in lines))
    go.touch()
    assert await second == "2026.9.1"
    assert runs.read_text() == "run\n"


@one_shell
async def test_two_who_ask_at_once_get_one_installation(
    installable: LocalExec, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    versions = await asyncio.gather(*(install(installable, state) for _ in range(2)))
    assert versions == ["2026.9.1", "2026.9.1"]


@one_shell
@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("exit 1", "no Python 3.9 or newer on the node; install python3 there"),
        (
            "case $* in '-m venv '*|'-m pip '*) exit 1;; esac\nexec \"$real\" \"$@\"",
            "cannot make a venv on the node; install its venv module there",
        ),
        (
            "case $* in '-m venv '*) echo 'No space left on device'; exit 1;; esac\n"
            'case $* in \'-m pip \'*) exit 1;; esac\nexec "$real" "$@"',
            "the disk is full",
        ),
    ],
)
async def test_a_node_that_lacks_something_says_what(
    installable: LocalExec, tmp_path: Path, body: str, sentence: str
) -> None:
    python3(installable, body)
    with pytest.raises(EngineFailed, match=sentence):
        await install(installable, tmp_path / "state")
    assert not (tmp_path / "state" / "engines" / "xllamacpp").exists()
    # and once that is mended, it works
    python3(installable, QUICK)
    assert await install(installable, tmp_path / "state") == "2026.9.1"


@one_shell
async def test_an_index_without_the_package(installable: LocalExec, tmp_path: Path) -> None:
    for wheel in (tmp_path / "wheels").iterdir():
        wheel.unlink()
    with pytest.raises(EngineFailed, match="package index has no xllamacpp for Python 3"):
        await install(installable, tmp_path / "state")


@one_shell
async def test_an_index_that_cannot_be_reached(installable: LocalExec, tmp_path: Path) -> None:
    del installable.env["PIP_NO_INDEX"], installable.env["PIP_FIND_LINKS"]
    installable.env.update(PIP_INDEX_URL="http://127.0.0.1:1/simple", PIP_RETRIES="1")
    with pytest.raises(EngineFailed, match="cannot reach its package index"):
        await install(installable, tmp_path / "state")


@one_shell
async def test_a_package_that_cannot_be_loaded(installable: LocalExec, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels", "raise ImportError('needs a newer libc')")
    with pytest.raises(EngineFailed, match=r"cannot be imported on the node: .*newer libc"):
        await install(installable, tmp_path / "state")
    assert list((tmp_path / "state" / "engines").iterdir()) == []


async def test_other_engines_are_not_installed(local: LocalExec, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="llmgw can install llamacpp, not vllm"):
        await provision(local, "vllm", progress=print, state_dir=str(tmp_path))
    assert local.calls == 0


async def test_a_job_that_another_tidied_up_between_two_looks_is_not_a_failure() -> None:
    """Its end was seen, and its log was taken away before the last line was read."""

    class TidiedUp(Instances):
        def __init__(self) -> None:
            """Ask nothing."""

        async def refresh(self) -> Mapping[str, InstanceStatus]:
            return {"job": InstanceStatus("job", InstanceState.EXITED, exit_status=0)}

        async def read_log(
            self,
            name: str,
            offset: int | None = None,
            limit: int = 65536,
            previous: bool = False,
        ) -> LogChunk:
            return LogChunk(b"", 0, 0)

    async def no_pause(seconds: float) -> None:
        """Go on at once."""

    assert await _watch(TidiedUp(), "job", lambda _: None, no_pause) is None
