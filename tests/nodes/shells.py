"""Fixtures for what runs on nodes; test modules import them by name."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from llmgw_core.nodes.instances import Instances
from tests.nodes.local_exec import SHELLS, LocalExec, shell_tools

T = TypeVar("T")

BOUND_S = 60.0
"""How long a condition may take to come true on a busy machine."""


@pytest.fixture(params=SHELLS)
def local(request: pytest.FixtureRequest, tmp_path: Path) -> LocalExec:
    """A node: this machine, a home of its own, and each shell in turn."""
    tools = shell_tools(request.param, tmp_path / "tools")
    if tools is None:
        pytest.skip(f"{request.param} is not installed")
    home = tmp_path / "home"
    home.mkdir()
    return LocalExec(tools, home)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state dir"


@pytest.fixture
async def node(local: LocalExec, state: Path) -> AsyncIterator[Instances]:
    """Instances in a state directory with a space in its name; all stopped in the end."""
    instances = Instances(local, str(state))
    yield instances
    for name, status in (await instances.refresh()).items():
        if status.state.value != "none":
            await instances.stop(name, 0.0)
    # whatever a test's record did not know of
    for pid in marked(state):
        os.kill(pid, signal.SIGKILL)


async def until(ask: Callable[[], Awaitable[T]], good: Callable[[T], bool]) -> T:
    """The first answer that is good; fails with the last one past the bound."""
    deadline = time.monotonic() + BOUND_S
    while True:
        answer = await ask()
        if good(answer):
            return answer
        assert time.monotonic() < deadline, f"still {answer!r}"
        await asyncio.sleep(0.02)


async def until_true(good: Callable[[], bool]) -> None:
    """Wait for a condition on this machine."""

    async def ask() -> bool:
        return good()

    await until(ask, bool)


def marked(under: Path) -> list[int]:
    """Processes that carry the marker of an instance below this folder."""
    found = []
    mark = f"LLMGW_INSTANCE={under.resolve()}/".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(v.startswith(mark) for v in variables):
                found.append(int(entry.name))
    return found


def start_of(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None for what is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
