"""Processes on every host that llmgw must leave alone, however much they look like its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.lab.chaos_stranger import LISTEN
from tests.lab.ground import LabError
from tests.lab.hosts import USER_ID, Host, process_at

PORTS = (18002, 18005)
"""Ports of the nodes' range that strangers listen on."""
_PROGRAM = Path(__file__).with_name("chaos_stranger.py")
_OTHER = "home/llm/.local/state/decoy/run"
_UP_S = 20.0


@dataclass(frozen=True, slots=True)
class Kind:
    """What a stranger looks like."""

    name: str
    script: str
    """Where its program lies on the host's disk."""
    words: tuple[str, ...]
    env: tuple[str, ...] = ()
    as_root: bool = False


def _engine_words(port: int) -> tuple[str, ...]:
    return ("--model", "/models/smol.gguf", "--alias", "smol", "--host", "0.0.0.0",
            "--port", str(port), "--metrics")  # fmt: skip


KINDS = (
    # the same words as an engine of ours
    Kind("engine", f"{_OTHER}/smol.1/launcher.py", _engine_words(18000)),
    Kind("root's engine", f"{_OTHER}/smol.2/launcher.py", _engine_words(18001), as_root=True),
    # an engine of another llmgw for the same user, with its mark
    Kind("other cluster's engine", f"{_OTHER}/smol.3/engine.py", ("--alias", "smol"),
         (f"LLMGW_INSTANCE=/{_OTHER}/smol.3",)),
    Kind("supervisor", f"{_OTHER}/smol.1/sup.sh", (f"/{_OTHER}/smol.1", "t0", "8388608")),
    Kind("listener", "home/llm/server.py", ("--port", str(PORTS[0])), (f"{LISTEN}={PORTS[0]}",)),
    Kind("root's listener", "root/server.py", ("--port", str(PORTS[1])),
         (f"{LISTEN}={PORTS[1]}",), as_root=True),
)  # fmt: skip


@dataclass(slots=True)
class Stranger:
    """One that runs."""

    host: Host
    kind: Kind
    path: Path
    """Where it writes down its signals; outside of the host."""
    boot: int
    """The host's first process when it was started."""
    pid: int = 0
    started: str = ""
    read: int = 0


class Strangers:
    """All strangers of a lab; ``complaints`` says what was done to them."""

    def __init__(self, folder: Path, hosts: Sequence[Host], kinds: Sequence[Kind] = KINDS) -> None:
        self._folder = folder
        folder.mkdir()
        self._hosts = hosts
        self._kinds = kinds
        self._running: list[Stranger] = []
        self._count = 0

    def start(self) -> None:
        """Bring up those that are missing, as after a boot."""
        there = {(s.host.name, s.kind.name) for s in self._running if s.boot == s.host.pid}
        self._running = [s for s in self._running if (s.host.name, s.kind.name) in there]
        new = [
            self._spawn(host, kind)
            for host in self._hosts
            for kind in self._kinds
            if (host.name, kind.name) not in there
        ]
        for stranger in new:
            _await_up(stranger)
        self._running += new

    def stop(self) -> None:
        """End all of them, and take their programs away."""
        for stranger in self._running:
            if _stat(stranger.pid)[1] == stranger.started:
                os.kill(stranger.pid, signal.SIGKILL)
            (stranger.host.disk / stranger.kind.script).unlink(missing_ok=True)
        self._running.clear()

    def _spawn(self, host: Host, kind: Kind) -> Stranger:
        script = host.disk / kind.script
        if not script.exists():
            owner = 0 if kind.as_root else USER_ID
            for folder in reversed(script.relative_to(host.disk).parents):
                if not (host.disk / folder).exists():
                    (host.disk / folder).mkdir()
                    os.chown(host.disk / folder, USER_ID, USER_ID)
            script.write_bytes(_PROGRAM.read_bytes())
            os.chown(script, owner, owner)
        self._count += 1
        path = self._folder / f"{self._count}"
        user = f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups"
        become = () if kind.as_root else ("setpriv", *user)
        argv = [*host.enter(), *become, "env", "-i", *kind.env, "setsid", "--fork", sys.executable,
                "-IS", f"/{kind.script}", *kind.words]  # fmt: skip
        with path.open("wb") as out:
            subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, check=True, timeout=_UP_S)
        return Stranger(host, kind, path, host.pid)

    def complain_and_start(self, frozen: frozenset[str]) -> list[str]:
        """``complaints``, then ``start``."""
        found = self.complaints(frozen=frozen)
        self.start()
        return found

    def complaints(self, *, frozen: frozenset[str] = frozenset()) -> list[str]:
        """What befell strangers since the last time, on hosts that were not turned off meanwhile.

        ``frozen``: hosts that were frozen, where everything was stopped and continued.
        """
        found = []
        for stranger in self._running:
            host, name = stranger.host, f"the {stranger.kind.name} on {stranger.host.name}"
            lines = stranger.path.read_text().splitlines()
            new, stranger.read = lines[stranger.read :], len(lines)
            allowed = ("SIGCONT",) if host.name in frozen else ()
            found += [f"{name} got {line}" for line in new if not line.startswith(allowed or "-")]
            if not host.is_on or stranger.boot != host.pid:
                continue
            state, started = _stat(stranger.pid)
            if started != stranger.started or state in ("Z", "X"):
                found.append(f"{name} was killed")
            elif state in ("T", "t"):
                found.append(f"{name} was stopped")
        return found


def _await_up(stranger: Stranger) -> None:
    end = time.monotonic() + _UP_S
    while not (said := stranger.path.read_text()).endswith("\n"):
        if time.monotonic() > end:
            raise LabError(f"the {stranger.kind.name} on {stranger.host.name} did not start")
        time.sleep(0.02)
    inside = int(said)
    space = stranger.host.space
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.readlink(entry / "ns" / "pid") == space:
                process = process_at(entry)
                if process.inside == inside:
                    stranger.pid, stranger.read = process.pid, 1
                    stranger.started = _stat(process.pid)[1]
                    return
        except OSError:
            continue
    raise LabError(f"the {stranger.kind.name} on {stranger.host.name} ended at once")


def _stat(pid: int) -> tuple[str, str]:
    """State and start time of a process; empty where there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]
