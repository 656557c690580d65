"""Pulls into the mirror, each a process of its own, with what they told last."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from llmgw_core.errors import BY_CODE, LlmgwError, Refused
from llmgw_core.mirror.names import shown
from llmgw_core.mirror.versions import MirrorVersion, from_wire

log = logging.getLogger(__name__)

AT_ONCE = 2
FIRST_WORD_S = 60.0
"""How long a pull may take to find out what it will fetch."""
ENDING_S = 10.0
LINE_MOST = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PullRequest:
    """What to pull, and under which name; empty names follow from the source."""

    source: str
    model: str = ""
    version: str = ""
    actor: str = "controller"


@dataclass(slots=True)
class Pull:
    """One pull of this process."""

    request: PullRequest
    version: MirrorVersion | None = None
    """As the puller told it last; None until it knows what it fetches."""
    error: LlmgwError | None = None
    done: bool = False
    known: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the version is known, or the pull has ended."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def running(self) -> bool:
        """Whether it waits or fetches."""
        return not self.done


class Pulls:
    """All pulls of this process, by source and names. ``told`` hears of each change."""

    def __init__(
        self,
        root: Callable[[], Path],
        options: Callable[[], Mapping[str, object]],
        told: Callable[[Pull], None],
    ) -> None:
        self._root = root
        self._options = options
        self._told = told
        self._pulls: dict[tuple[str, str, str], Pull] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    @property
    def all(self) -> tuple[Pull, ...]:
        """Every pull since the start, the newest for each source and name."""
        return tuple(self._pulls.values())

    def of_source(self, source: str) -> Pull | None:
        """The newest pull of a source."""
        return next((p for p in reversed(self.all) if p.request.source == source), None)

    def of_version(self, model: str, version: str) -> Pull | None:
        """The running pull of a version."""
        for pull in self.all:
            known = pull.version
            if pull.running and known and (known.model, known.version) == (model, version):
                return pull
        return None

    def why_ended(self, name: str) -> str:
        """How the last pull of ``MODEL/VERSION`` ended; empty where it did not fail."""
        last = next((p for p in reversed(self.all) if p.version and p.version.name == name), None)
        return str(last.error) if last is not None and last.done and last.error else ""

    def begin(self, request: PullRequest) -> Pull:
        """Begin a pull, or find the one that runs already."""
        key = (request.source, request.model, request.version)
        running = self._pulls.get(key)
        if running is not None and running.running:
            return running
        pull = Pull(request)
        self._pulls.pop(key, None)
        self._pulls[key] = pull
        pull.task = asyncio.create_task(self._run(pull), name="pull")
        return pull

    async def known(self, pull: Pull) -> MirrorVersion:
        """Wait until it is known what is fetched.

        Raises:
            LlmgwError: it ended before, or says nothing for a minute.
        """
        try:
            async with asyncio.timeout(FIRST_WORD_S):
                await pull.known.wait()
        except TimeoutError:
            raise LlmgwError(
                f"{shown(pull.request.source)} has not answered for {FIRST_WORD_S:.0f} s; "
                "the pull goes on trying"
            ) from None
        if pull.version is None:
            raise pull.error or LlmgwError(f"the pull of {shown(pull.request.source)} ended early")
        return pull.version

    async def cancel(self, pull: Pull) -> None:
        """End a pull; what has come is kept."""
        if pull.task is not None:
            pull.task.cancel()
            await asyncio.gather(pull.task, return_exceptions=True)

    async def aclose(self) -> None:
        """End all pulls."""
        for pull in self.all:
            await self.cancel(pull)

    async def _run(self, pull: Pull) -> None:
        try:
            async with self._slots:
                await self._fetch(pull)
        except asyncio.CancelledError:
            pull.error = Refused("it was cancelled; what has come is kept")
            raise
        except LlmgwError as error:
            pull.error = error
        except Exception as error:
            log.exception("mirror.pull_broke source=%s", shown(pull.request.source))
            pull.error = LlmgwError(f"internal error {type(error).__name__}; see the log")
        finally:
            pull.done = True
            pull.known.set()
            self._told(pull)

    async def _fetch(self, pull: Pull) -> None:
        request = {
            "root": str(self._root()),
            "source": pull.request.source,
            "model": pull.request.model or None,
            "version": pull.request.version or None,
            **self._options(),
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "llmgw_core.mirror", "pull",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, limit=LINE_MOST, env=dict(os.environ),
            start_new_session=True,
        )  # fmt: skip
        try:
            if process.stdin is None or process.stdout is None:
                raise RuntimeError("asked for pipes and got none")
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(json.dumps(request).encode())
                await process.stdin.drain()
            process.stdin.close()
            async for line in process.stdout:
                self._hear(pull, line)
            status = await process.wait()
            if pull.error is None and status != 0:
                pull.error = LlmgwError(f"the puller ended with status {status}")
        finally:
            await _end(process)

    def _hear(self, pull: Pull, line: bytes) -> None:
        try:
            told = json.loads(line)
            if "error" in told:
                kind = BY_CODE.get(str(told["error"].get("code")), LlmgwError)
                pull.error = kind(str(told["error"].get("message")))
                return
            pull.version = from_wire(told)
        except (ValueError, TypeError, AttributeError, KeyError):
            log.warning("mirror.puller_unclear line=%r", line[:200])
            return
        pull.known.set()
        self._told(pull)


async def _end(process: asyncio.subprocess.Process) -> None:
    """See that a child is gone: asked first, then killed."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(ENDING_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
