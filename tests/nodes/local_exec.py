"""An ``Exec`` that runs scripts on this machine, under the shell and tools that a test chooses."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from llmgw_core.errors import NodeLost
from llmgw_core.nodes.exec import ExecResult

SHELLS = ("dash", "bash", "busybox")
_ARGUMENT = re.compile(r"[A-Za-z0-9_./:@%+=,-]+")


def shell_tools(shell: str, folder: Path) -> Path | None:
    """A folder to put first on PATH, in which ``sh`` is that shell; None where it is missing."""
    program = shutil.which(shell)
    if program is None:
        return None
    folder.mkdir()
    if shell == "busybox":  # all of its tools, as on a machine that has no others
        subprocess.run([program, "--install", "-s", str(folder)], check=True)
    else:
        (folder / "sh").symlink_to(program)
    return folder


class LocalExec:
    """Runs ``sh -s ARG…`` as a node's sshd would: no terminal, a session of its own."""

    def __init__(self, tools: Path, home: Path, env: Mapping[str, str] | None = None) -> None:
        self.tools = tools
        self.env = {"HOME": str(home), "PATH": f"{tools}:/usr/bin:/bin", **(env or {})}
        self.home = home
        self.calls = 0

    def _command(self, script: str, args: tuple[str, ...], before: str = "") -> tuple[str, bytes]:
        for arg in args:
            if not _ARGUMENT.fullmatch(arg):
                raise ValueError(arg)
        self.calls += 1
        nonce = secrets.token_hex(8)
        return nonce, f"echo '@@BEGIN {nonce}'\n{before}{script}".encode()

    async def _spawn(self, args: tuple[str, ...]) -> asyncio.subprocess.Process:
        spawning = asyncio.ensure_future(self._create(args))
        try:
            return await asyncio.shield(spawning)
        except asyncio.CancelledError:  # in the middle, it would leave its pipes open
            await end(await spawning)
            raise

    async def _create(self, args: tuple[str, ...]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            str(self.tools / "sh"),
            "-s",
            "--",
            *args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self.env,
            cwd=self.home,
            start_new_session=True,
            limit=1 << 20,
        )

    async def _run(
        self, script: str, args: tuple[str, ...], timeout_s: float, before: str = ""
    ) -> ExecResult:
        nonce, text = self._command(script, args, before)
        process = await self._spawn(args)
        try:
            async with asyncio.timeout(timeout_s):
                out, err = await process.communicate(text)
        except TimeoutError as error:
            msg = "no answer in time"
            raise NodeLost(msg) from error
        finally:
            await end(process)
        _, _, out = out.partition(f"@@BEGIN {nonce}\n".encode())
        assert process.returncode is not None
        return ExecResult(out, err, process.returncode)

    async def script(self, script: str, *args: str, timeout_s: float = 20.0) -> ExecResult:
        return await self._run(script, args, timeout_s)

    async def feed(
        self, script: str, *args: str, payload: bytes, timeout_s: float = 60.0
    ) -> ExecResult:
        lines = base64.encodebytes(payload).decode()
        before = f"payload() {{\nbase64 -d <<'@@END'\n{lines}@@END\n}}\n"
        return await self._run(script, args, timeout_s, before)

    async def stream(
        self, script: str, *args: str, answer: bytes | None = None
    ) -> AsyncIterator[bytes]:
        nonce, text = self._command(script, args)
        process = await self._spawn(args)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(text)
            if answer is None:
                process.stdin.close()
            async for line in process.stdout:
                if line.startswith(b"@@BEGIN " + nonce.encode()):
                    break
            async for line in process.stdout:
                yield line.rstrip(b"\n")
                if line.rstrip(b"\n") == answer:
                    process.stdin.write(line)
        finally:
            await end(process)


async def end(process: asyncio.subprocess.Process) -> None:
    """Leave nothing of a script: a link that closes does the same."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()
