"""A real daemon, gateway and engine for a test, and everything that it leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from llmgw_core.api.attached import AttachedClient
from llmgw_core.api.views import Command, CommandResult, ReplicaView, Snapshot
from llmgw_core.errors import LlmgwError
from llmgw_core.paths import socket_path

BOUND_S = 120.0


def model_file() -> Path:
    """The real model, as scripts/test fetched it; the test is skipped where there is none."""
    cache = os.environ.get("LLMGW_TEST_CACHE")
    path = Path(cache or "/nonexistent") / "SmolLM2-135M-Instruct.gguf"
    if not path.exists():
        pytest.skip("no model: run scripts/test, or set LLMGW_TEST_CACHE to a folder with it")
    pytest.importorskip("xllamacpp")
    return path


class Cluster:
    """One state directory with a daemon that can be killed and started again."""

    program: tuple[str, ...] = ("-m", "llmgw_core")
    """What Python runs as the daemon."""

    def __init__(self, folder: Path, node_toml: str) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.config = folder / "config.toml"
        self.config.write_text(
            'cluster = "e2e"\n[gateway]\nport = 0\ndrain_timeout = "5s"\n'
            '[controller]\nhealth_interval = "500ms"\n' + node_toml
        )
        self.daemon: subprocess.Popen[bytes] | None = None
        self.client = self._attach()

    def _attach(self) -> AttachedClient:
        return AttachedClient(socket_path(self.state, "control.sock"), "test")

    async def start(self) -> None:
        """Start the daemon and wait until it answers."""
        argv = [sys.executable, *self.program, "--config", str(self.config)]
        argv += ["--state", str(self.state), "--headless"]
        with (self.folder / "daemon.log").open("ab") as log:
            env = {**os.environ, "HOME": str(self.folder)}
            self.daemon = subprocess.Popen(argv, stdout=log, stderr=log, env=env)
        self.client = self._attach()
        await self.until(lambda s: True, "the daemon answers")

    async def kill(self) -> None:
        """End the daemon as a crash would."""
        assert self.daemon is not None
        self.daemon.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self.daemon.wait, 10)
        await self.client.aclose()

    async def until(self, wanted: Callable[[Snapshot], object], what: str) -> Snapshot:
        """The first snapshot that satisfies this."""
        last: Snapshot | None = None
        try:
            async with asyncio.timeout(BOUND_S):
                while True:
                    try:
                        last = await self.client.snapshot()
                        if wanted(last):
                            return last
                    except LlmgwError:
                        pass
                    await asyncio.sleep(0.1)
        except TimeoutError:
            log = (self.folder / "daemon.log").read_text(errors="replace")[-3000:]
            raise AssertionError(f"never: {what}\n{last}\n{log}") from None

    async def do(self, command: str, /, **args: object) -> CommandResult:
        """Carry out a command."""
        return await self.client.command(Command(command, dict(args), "test"))

    async def ready(self, count: int) -> list[ReplicaView]:
        """Wait until exactly so many replicas exist, all of them ready."""
        snapshot = await self.until(
            lambda s: len(s.replicas) == count and all(r.state == "ready" for r in s.replicas),
            f"{count} replicas are ready",
        )
        return list(snapshot.replicas)

    async def url(self) -> str:
        """The gateway's address."""
        snapshot = await self.until(lambda s: s.gateway.address, "the gateway serves")
        return f"http://{snapshot.gateway.address}"

    async def end(self) -> None:
        """Stop everything that is still there."""
        with contextlib.suppress(LlmgwError):  # the daemon has ended already
            await self.do("shutdown", stop_replicas=True, stop_gateway=True)
        await self.client.aclose()
        if self.daemon is not None:
            try:
                await asyncio.to_thread(self.daemon.wait, 20)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                await asyncio.to_thread(self.daemon.wait, 10)
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)

    async def gone(self) -> None:
        """Wait until no process of this test is left; a node's sampler ends within its interval."""
        try:
            async with asyncio.timeout(20):
                while self.processes():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            words = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.processes()]
            raise AssertionError(f"processes are left: {words}") from None

    def processes(self) -> list[int]:
        """Every process that has this test's folder in its command line or environment."""
        mark = os.fsencode(self.folder)
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                words = (entry / "cmdline").read_bytes()
                words += b"\0".join(
                    part
                    for part in (entry / "environ").read_bytes().split(b"\0")
                    if part.startswith(b"LLMGW_INSTANCE=")
                )
            except OSError:
                continue
            if mark in words and b"sshd" not in words:
                found.append(int(entry.name))
        return found


async def stream_chat(url: str, model: str, *, max_tokens: int = 24) -> str:
    """The text of one streamed answer."""
    text = ""
    async with (
        httpx.AsyncClient(timeout=60) as http,
        http.stream("POST", f"{url}/v1/chat/completions", json=chat(model, max_tokens)) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        done = False
        async for line in answer.aiter_lines():
            done = done or line == "data: [DONE]"
            if line.startswith("data: {"):
                choices = httpx.Response(200, content=line[6:]).json().get("choices") or [{}]
                text += choices[0].get("delta", {}).get("content") or ""
        assert done
    return text


def chat(model: str, max_tokens: int) -> dict[str, object]:
    """A request for a streamed answer."""
    return {
        "model": model,
        "stream": True,
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": max_tokens > 1000,
        "messages": [{"role": "user", "content": "Tell me a long story about a river."}],
    }
