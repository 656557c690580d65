"""What ``describe`` of lib.sh says about instances, read back into values."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import cast

from llmgw_core.nodes.instance import InstanceSpec, InstanceState, InstanceStatus

Record = Mapping[str, str | int | float]

TICKS_PER_S = 100
"""Of field 22 of /proc/PID/stat: USER_HZ, which is 100 on every Linux of today."""

_STATES = {state.value: state for state in InstanceState}
_KIB_PER_GIB = 1024 * 1024
_ROW_MOST = 12
"""Words of an instance's line; nodes that speak of less leave out the last ones."""


def spec_line(spec: InstanceSpec) -> bytes:
    """What lies as spec.json: one line of ASCII, so that sh can read it with one ``read``."""
    document = {
        "token": spec.token,
        "argv": list(spec.argv),
        "port": spec.port,
        "record": dict(spec.record),
    }
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def parse_spec(line: bytes, token: str | None) -> Record:
    """The record in a spec.json; empty where it is not ours to read or of another start."""
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    if not isinstance(document, dict) or not isinstance(document.get("record"), dict):
        return {}
    if token is not None and document.get("token") != token:
        return {}
    record = cast(dict[str, object], document["record"])
    return {key: v for key, v in record.items() if isinstance(v, str | int | float)}


@dataclass(slots=True)
class _Row:
    state: InstanceState
    pid: int | None
    start_time: int | None
    boot_id: str | None
    token: str | None
    exit_status: int | None
    rss_kb: int | None
    log_base: int
    peak_kb: int | None
    cpu_ticks: int | None
    halted: bool


@dataclass(slots=True)
class Listing:
    """The lines of one listing, gathered; anything that does not parse is left out."""

    rows: dict[str, _Row] = field(default_factory=dict)
    specs: dict[str, bytes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    uptime_s: float | None = None

    def take(self, line: bytes) -> bool:
        """Read one line; False where it is not of a listing."""
        kind, _, rest = line.partition(b" ")
        if kind == b"s":
            name, _, spec = rest.partition(b" ")
            self.specs[name.decode(errors="replace")] = spec
            return True
        words = rest.decode(errors="replace").split()
        if kind == b"i" and 9 <= len(words) <= _ROW_MOST:
            self._take_row(words)
        elif kind == b"u" and len(words) == 1:
            self.uptime_s = _real(words[0])
        elif kind == b"z" and len(words) >= 2:
            size = _whole(words[0])
            if size is not None:
                self.sizes[rest.decode(errors="replace").split("/")[-2]] = size
        else:
            return False
        return True

    def _take_row(self, words: list[str]) -> None:
        words += ["-"] * (_ROW_MOST - len(words))
        name, state, pid, start, boot, token, exit_status, rss, log_base, peak, cpu, letter = words
        if state not in _STATES:
            return
        self.rows[name] = _Row(
            _STATES[state],
            _whole(pid),
            _whole(start),
            _text(boot),
            _text(token),
            _whole(exit_status),
            _whole(rss),
            _whole(log_base) or 0,
            _whole(peak),
            _whole(cpu),
            letter in ("T", "t"),
        )

    def statuses(
        self, known: MutableMapping[str, tuple[str | None, Record]] | None = None
    ) -> dict[str, InstanceStatus]:
        """By name. ``known`` remembers records between listings that tell each only once."""
        return {name: self._status(name, row, known) for name, row in self.rows.items()}

    def _status(
        self,
        name: str,
        row: _Row,
        known: MutableMapping[str, tuple[str | None, Record]] | None,
    ) -> InstanceStatus:
        record: Record = {}
        if name in self.specs:
            record = parse_spec(self.specs[name], row.token)
            if known is not None:
                known[name] = (row.token, record)
        elif known is not None and name in known and known[name][0] == row.token:
            record = known[name][1]
        size = self.sizes.get(name)
        return InstanceStatus(
            name=name,
            state=row.state,
            pid=row.pid,
            start_time=row.start_time,
            boot_id=row.boot_id,
            token=row.token,
            exit_status=row.exit_status,
            age_s=self._age_s(row),
            rss_gb=None if row.rss_kb is None else row.rss_kb / _KIB_PER_GIB,
            cpu_s=None if row.cpu_ticks is None else row.cpu_ticks / TICKS_PER_S,
            halted=row.halted,
            peak_gb=None if row.peak_kb is None else row.peak_kb / _KIB_PER_GIB,
            log_bytes=None if size is None else row.log_base + size,
            record=record,
        )

    def _age_s(self, row: _Row) -> float | None:
        if not row.state.alive or self.uptime_s is None or row.start_time is None:
            return None
        return max(0.0, self.uptime_s - row.start_time / TICKS_PER_S)


def parse_listing(lines: Iterable[bytes]) -> dict[str, InstanceStatus]:
    """All instances of one answer that tells everything."""
    listing = Listing()
    for line in lines:
        listing.take(line)
    return listing.statuses()


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None


def _real(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _text(text: str) -> str | None:
    return None if text == "-" else text
