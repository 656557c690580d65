"""The processes that llmgw keeps on a node: started, read back, stopped, their logs read.

The node's side is ``scripts/instances.sh``, ``sup.sh`` and ``files.sh``. Every verb can be sent
again.
"""

from __future__ import annotations

import base64
import binascii
import random
from collections.abc import AsyncGenerator, Mapping

from llmgw_core.errors import InvalidInput, RemoteFailed
from llmgw_core.nodes.exec import Exec, ExecResult
from llmgw_core.nodes.instance import (
    InstanceSpec,
    InstanceState,
    InstanceStatus,
    LogChunk,
    Reaped,
    StopResult,
)
from llmgw_core.nodes.launch_file import pack
from llmgw_core.nodes.lease import REFUSED_STATUS, refusal
from llmgw_core.nodes.records import parse_listing
from llmgw_core.nodes.script import is_name, load, optional_word, word

_VERBS = ("lib.sh", "lease.sh", "instances.sh")
_FILES = ("lib.sh", "files.sh")
_MAX_LOG_CHUNK = 4 * 1024 * 1024
_MAX_READ = 8 * 1024 * 1024
_FULL = ("No space left", "Disk quota exceeded")


class Instances:
    """The instances in ``AREA/`` of llmgw's directory on one node.

    Every method raises ``NodeLost`` where the link goes away, and ``RemoteFailed`` with a sentence
    where the node refuses or cannot. With the id of a lease's ``holder``, those that change
    something raise ``LeaseHeld`` where the node belongs to another controller.
    """

    def __init__(
        self,
        exec_: Exec,
        state_dir: str | None,
        *,
        area: str = "run",
        node: str = "the node",
        holder: str | None = None,
    ) -> None:
        self._exec = exec_
        self._state = optional_word(state_dir)
        self._area = area
        self._node = node
        self._holder = optional_word(holder)

    async def refresh(self) -> Mapping[str, InstanceStatus]:
        """Read every record now, by name."""
        result = await self._verb("list", timeout_s=30.0)
        return parse_listing(result.stdout.splitlines())

    async def start(self, spec: InstanceSpec) -> InstanceStatus:
        """Make it so that this spec's process runs, and say how it stands.

        The same token twice is one start, also where that run has ended meanwhile. Raises
        ``RemoteFailed`` where the name runs under another token, or the disk is full (what was
        there before is then untouched), ``InvalidInput`` for a spec that no node could run.
        """
        if not is_name(spec.name) or not is_name(spec.token):
            msg = f"{spec.name!r} and {spec.token!r} cannot name an instance and its start"
            raise InvalidInput(msg)
        items, payload = pack(spec)
        half = max(4096, int(spec.log_limit_mb * 1024 * 1024 / 2))
        result = await self._exec.feed(
            load(*_VERBS),
            *("start", self._state, self._area, self._holder, spec.name, spec.token, str(half)),
            *items,
            payload=payload,
            timeout_s=60.0,
        )
        self._check_act(result, f"start {spec.name}")
        return _one(result, spec.name)

    async def stop(self, name: str, grace_s: float) -> StopResult:
        """SIGTERM to the group, SIGKILL to all members after the grace; none other is touched.

        Takes up to ``grace_s`` and 25 s more where processes will not die. Safe in every state.
        """
        grace = str(max(0, round(grace_s * 100)))
        result = await self._verb("stop", _named(name), grace, timeout_s=grace_s + 60.0)
        killed, left = _ended(result)
        return StopResult(status=_one(result, name), killed=killed, left=left)

    async def strays(self) -> Mapping[str, tuple[int, ...]]:
        """Pids of processes that carry the mark of an instance of this directory whose engine is
        gone, by the instance's name; its record may be gone too."""
        return _strays(await self._verb("strays", timeout_s=30.0))

    async def reap(self, name: str, grace_s: float) -> Reaped:
        """End the strays of that name, with SIGKILL after the grace; where an engine lives under
        the name nothing is done."""
        grace = str(max(0, round(grace_s * 100)))
        result = await self._verb("reap", _named(name), grace, timeout_s=grace_s + 40.0)
        killed, left = _ended(result)
        return Reaped(_strays(result).get(name, ()), killed, left)

    async def forget(self, name: str) -> None:
        """Remove the record, files and logs of an instance that has ended, if it is there."""
        await self._verb("forget", _named(name), timeout_s=30.0)

    async def read_log(
        self, name: str, offset: int | None = None, limit: int = 65536, previous: bool = False
    ) -> LogChunk:
        """Bytes of a log from an offset on, or its last ``limit`` bytes with None.

        Offsets count from the start of the run and go on through rotations: one that is no longer
        kept gives the oldest bytes that are, one beyond the end means that another run has begun
        and gives its start.
        """
        verb = "previous" if previous else "log"
        place = f"{self._area}/{_named(name)}"
        limit = min(max(0, limit), _MAX_LOG_CHUNK)
        start = "-" if offset is None else str(max(0, offset))
        for attempt in range(3):
            result = await self._exec.script(
                load(*_FILES), verb, self._state, place, start, str(limit)
            )
            _check(result, f"read the log of {name}")
            head, _, data = result.stdout.partition(b"\n")
            try:
                next_offset, size, count = (int(w) for w in head.split())
            except ValueError as error:
                msg = f"the node's answer about the log of {name} cannot be read; try again"
                raise RemoteFailed(msg, exit_status=result.exit_status) from error
            # fewer bytes than announced: the log was rotated in between
            if len(data) == count or attempt == 2:
                break
        return LogChunk(data=data, next_offset=next_offset, size=size)

    async def follow_log(self, name: str, offset: int) -> AsyncGenerator[bytes, None]:
        """What is appended from an offset on, through rotations and new runs, until closed."""
        place = f"{self._area}/{_named(name)}"
        lines = self._exec.stream(load(*_FILES), "follow", self._state, place, str(max(0, offset)))
        try:
            async for line in lines:
                try:
                    yield base64.b64decode(line, validate=True)
                except binascii.Error as error:
                    msg = f"the log of {name} came garbled over the link; open it again"
                    raise RemoteFailed(msg, exit_status=0) from error
        finally:
            close = getattr(lines, "aclose", None)
            if close is not None:
                await close()

    async def free_port(
        self,
        port_range: tuple[int, int],
        taken: frozenset[int],
        *,
        rng: random.Random | None = None,
    ) -> int:
        """A port of the range (both ends included) that nothing listens on and is not taken.

        The search begins anywhere in the range, so that two who ask at once rarely collide.
        """
        result = await self._exec.script(load(*_FILES), "ports")
        _check(result, "list the ports that are in use")
        busy = parse_ports(result.stdout) | taken
        low, high = port_range
        free = [port for port in range(low, high + 1) if port not in busy]
        if not free:
            msg = f"no port from {low} to {high} is free on the node; widen its port_range"
            raise RemoteFailed(msg, exit_status=1)
        return (rng or random.SystemRandom()).choice(free)

    async def stat_file(self, path: str) -> int | None:
        """Bytes of a file, or of all files below a folder; None where it is not there."""
        result = await self._exec.script(load(*_FILES), "weigh", _path(path), timeout_s=60.0)
        _check(result, f"look at {path}")
        text = result.stdout.strip()
        return int(text) if text.isdigit() else None

    async def read_file(self, path: str, *, offset: int, length: int) -> bytes:
        """At most ``length`` bytes (8 MiB) of a file from there on; fewer only where it ends."""
        start, most = str(max(0, offset)), str(min(max(0, length), _MAX_READ))
        result = await self._exec.script(
            load(*_FILES), "part", _path(path), start, most, timeout_s=60.0
        )
        _check(result, f"read {path}")
        return result.stdout

    async def list_files(self, path: str) -> dict[str, int] | None:
        """Bytes of every file below a folder, by path below it; a file has the empty path."""
        result = await self._exec.script(load(*_FILES), "list", _path(path), timeout_s=60.0)
        _check(result, f"list {path}")
        kind, _, rest = result.stdout.partition(b"\n")
        if kind == b"d":
            return _listed(rest)
        size = kind.partition(b" ")[2]
        return {"": int(size)} if size.isdigit() else None

    async def put_file(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """Write a file whole or not at all; on a full disk the old one stays as it was."""
        size = str(len(data))
        result = await self._exec.feed(
            load(*_FILES), "put", _path(path), f"{mode:o}", size, payload=data
        )
        _check(result, f"write {path}")

    async def _verb(self, verb: str, *args: str, timeout_s: float) -> ExecResult:
        result = await self._exec.script(
            load(*_VERBS), verb, self._state, self._area, self._holder, *args, timeout_s=timeout_s
        )
        self._check_act(result, f"{verb} {args[0]}" if args else verb)
        return result

    def _check_act(self, result: ExecResult, what: str) -> None:
        if result.exit_status == REFUSED_STATUS:
            held = refusal(self._node, result.stderr)
            if held is not None:
                raise held
        _check(result, what)


def parse_ports(text: bytes) -> set[int]:
    """Local ports of the listening sockets in lines of /proc/net/tcp and tcp6."""
    ports = set()
    for line in text.decode(errors="replace").splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[3] == "0A":
            try:
                ports.add(int(fields[1].rpartition(":")[2], 16))
            except ValueError:
                continue
    return ports


def _listed(text: bytes) -> dict[str, int]:
    """Sizes by name, from lines of ``SIZE ./NAME``; a name with a line break in it is left out."""
    found = {}
    for line in text.decode(errors="surrogateescape").splitlines():
        size, _, name = line.partition(" ")
        if size.isdigit() and name.startswith("./"):
            found[name[2:]] = int(size)
    return found


def _named(name: str) -> str:
    if not is_name(name):
        msg = f"{name!r} cannot name an instance"
        raise InvalidInput(msg)
    return name


def _path(path: str) -> str:
    try:
        return word(path)
    except ValueError as error:
        raise InvalidInput(str(error)) from error


def _one(result: ExecResult, name: str) -> InstanceStatus:
    found = parse_listing(result.stdout.splitlines()).get(name)
    return found or InstanceStatus(name=name, state=InstanceState.NONE)


def _ended(result: ExecResult) -> tuple[bool, tuple[int, ...]]:
    """Whether SIGKILL was needed, and the pids that are there all the same."""
    killed = False
    left: list[int] = []
    for line in result.stdout.splitlines():
        kind, _, rest = line.partition(b" ")
        if kind == b"k":
            killed = rest == b"1"
        elif kind == b"left" and rest.isdigit():
            left.append(int(rest))
    return killed, tuple(left)


def _strays(result: ExecResult) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for line in result.stdout.splitlines():
        words = line.decode(errors="replace").split()
        if len(words) == 3 and words[0] == "o" and words[2].isdigit() and is_name(words[1]):
            found[words[1]] = (*found.get(words[1], ()), int(words[2]))
    return found


def _check(result: ExecResult, what: str) -> None:
    """Raise for a script that did not do what was asked, with the node's own last words."""
    if result.exit_status == 0:
        return
    said = result.stderr.decode(errors="replace").strip()
    last = said.splitlines()[-1].strip() if said else f"exit status {result.exit_status}"
    if any(words in said for words in _FULL):
        msg = f"cannot {what}: the node's disk is full ({last}); free some space there"
    else:
        msg = f"cannot {what}: {last}"
    raise RemoteFailed(msg, exit_status=result.exit_status, output=said)
