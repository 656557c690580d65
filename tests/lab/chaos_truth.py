"""What really runs on a lab's hosts, read from outside, and whether that is what was wanted.

Nothing here asks llmgw: an engine of ours is a process that carries our mark in its environment,
and a record is a folder on the host's disk.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from llmgw_core.api.views import ReplicaView, Snapshot
from llmgw_core.controller.replica import instance_name
from tests.lab.hosts import USER, Host, process_at

MARK = b"LLMGW_INSTANCE="
STATE = f"/home/{USER}/.local/state/llmgw/run"
FETCH = "fetch-"


@dataclass(frozen=True, slots=True)
class Engine:
    """A living engine of ours with all that it forked; pids as this machine counts but for one."""

    host: str
    instance: str
    inside: int
    """Pid of its first process as the host counts."""
    pids: tuple[int, ...]
    """The first process, then its descendants."""
    words: tuple[str, ...]
    supervisors: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.instance} on {self.host} (pid {self.inside})"


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at all hosts."""

    engines: tuple[Engine, ...]
    idle_supervisors: tuple[str, ...]
    """Supervisors whose engine is not there: host and instance."""

    def of(self, instances: Iterable[str]) -> tuple[Engine, ...]:
        """The engines of these instances."""
        names = set(instances)
        return tuple(engine for engine in self.engines if engine.instance in names)


@dataclass(frozen=True, slots=True)
class _Seen:
    pid: int
    inside: int
    parent: int
    words: tuple[str, ...]
    mark: str | None


def look(hosts: Iterable[Host]) -> Sight:
    """Read the process tables of all hosts in one pass."""
    spaces = {space: host.name for host in hosts if (space := host.space) is not None}
    by_host: dict[str, list[_Seen]] = {name: [] for name in spaces.values()}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            host = spaces.get(os.readlink(entry / "ns" / "pid"))
            if host is not None:
                by_host[host].append(_seen(entry))
        except OSError:  # it has ended meanwhile
            continue
    engines: list[Engine] = []
    idle: list[str] = []
    for host, seen in by_host.items():
        found, left = _of_host(host, seen)
        engines += found
        idle += left
    return Sight(tuple(sorted(engines, key=lambda e: (e.host, e.instance, e.inside))), tuple(idle))


def _seen(entry: Path) -> _Seen:
    process = process_at(entry)
    mark = None
    for part in (entry / "environ").read_bytes().split(b"\0"):
        folder, _, name = part.removeprefix(MARK).decode(errors="replace").rpartition("/")
        if part.startswith(MARK) and folder == STATE and not name.startswith(FETCH):
            mark = name
    return _Seen(process.pid, process.inside, process.parent, process.words, mark)


def _of_host(host: str, seen: Sequence[_Seen]) -> tuple[list[Engine], list[str]]:
    marked = {one.pid: one for one in seen if one.mark is not None and one.words}
    supervisors: dict[str, list[int]] = {}
    for one in seen:
        match one.words:
            case ("sh", script, folder, *_) if script == f"{folder}/sup.sh":
                parent, _, name = folder.rpartition("/")
                if parent == STATE:
                    supervisors.setdefault(name, []).append(one.pid)
    engines = []
    for one in marked.values():
        above = marked.get(one.parent)
        if above is not None and above.mark == one.mark:
            continue
        assert one.mark is not None
        pids = (one.pid, *_below(one.pid, marked.values()))
        sups = tuple(supervisors.get(one.mark, ()))
        engines.append(Engine(host, one.mark, one.inside, pids, one.words, sups))
    alive = {engine.instance for engine in engines}
    return engines, [f"{name} on {host}" for name in supervisors if name not in alive]


def _below(pid: int, among: Iterable[_Seen]) -> list[int]:
    among = list(among)
    found = [one.pid for one in among if one.parent == pid]
    return found + [lower for child in found for lower in _below(child, among)]


def doubled(sight: Sight) -> list[str]:
    """Instances that run more than once on one host."""
    count = Counter((engine.host, engine.instance) for engine in sight.engines)
    return [f"{name} runs {n} times on {host}" for (host, name), n in count.items() if n > 1]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a model should have once all is well."""

    least: int
    most: int
    context: str = ""
    """Value of ``--ctx-size`` that its engines must run with; empty for any."""


def records(host: Host) -> set[str]:
    """Names of the records on a host's disk."""
    folder = host.home / ".local/state/llmgw/run"
    if not folder.is_dir():
        return set()
    return {e.name for e in folder.iterdir() if not e.name.startswith((".", FETCH))}


def wrong(
    snapshot: Snapshot,
    sight: Sight,
    wanted: Mapping[str, Wanted],
    kept: Mapping[str, set[str]],
) -> list[str]:
    """Everything that is not as it should be; empty where all is well.

    Args:
        snapshot: what llmgw says.
        sight: what really runs.
        wanted: by model.
        kept: by host, the records on its disk.
    """
    found = [
        f"node {n.name} is {n.state}: {n.reason}" for n in snapshot.nodes if n.state != "ready"
    ]
    if snapshot.controller.frozen:
        found.append(f"frozen: {snapshot.controller.frozen}")
    for name, want in wanted.items():
        mine = [r for r in snapshot.replicas if r.model == name]
        if not want.least <= len(mine) <= want.most:
            found.append(f"{name} has {len(mine)} replicas, not {want.least} to {want.most}")
    found += [
        f"{r.id} on {r.nodes[0]} is {r.state}: {r.reason}"
        for r in snapshot.replicas
        if r.state != "ready" or r.model not in wanted
    ]
    found += doubled(sight)
    found += [f"a supervisor of {name} has no engine" for name in sight.idle_supervisors]
    return found + _unmatched(snapshot.replicas, sight, wanted) + _records(snapshot.replicas, kept)


def _unmatched(
    replicas: Iterable[ReplicaView], sight: Sight, wanted: Mapping[str, Wanted]
) -> list[str]:
    """Each replica is one process, and each process one replica."""
    named = {(r.nodes[0], instance_of(r.id), r.pid): r for r in replicas}
    real: dict[tuple[str, str, int | None], Engine] = {
        (e.host, e.instance, e.inside): e for e in sight.engines
    }
    found = [f"{r.id} with pid {r.pid} is lost" for key, r in named.items() if key not in real]
    found += [f"{e.name} belongs to no replica" for key, e in real.items() if key not in named]
    for key in named.keys() & real.keys():
        context = wanted[named[key].model].context if named[key].model in wanted else ""
        if context and f"--ctx-size {context}" not in " ".join(real[key].words):
            found.append(f"{real[key].name} runs with other arguments than the model has")
    return found


def _records(replicas: Iterable[ReplicaView], kept: Mapping[str, set[str]]) -> list[str]:
    there = {(host, name) for host, names in kept.items() for name in names}
    named = {(r.nodes[0], instance_of(r.id)) for r in replicas}
    return [f"the record {name} on {host} is of no replica" for host, name in there - named] + [
        f"{name} on {host} has no record" for host, name in named - there
    ]


def instance_of(replica_id: str) -> str:
    """Name of a replica's record; one that was found where its id was taken keeps its own."""
    return instance_name(replica_id.partition("@")[0])
