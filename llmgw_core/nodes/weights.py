"""Weights on a node: what to fetch, how far it is, what lies there. Values and text only.

The node's side is ``scripts/fetch.sh``, which runs as an instance, and ``scripts/held.sh``.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from llmgw_core.errors import InvalidInput
from llmgw_core.nodes.instance import InstanceSpec
from llmgw_core.nodes.script import load, word
from llmgw_core.plain_text import sanitise

MARGIN_BYTES = 1 << 30
"""Room that stays free on the node's disk beside the weights."""
RATE_WINDOW_S = 10.0
LOG_LIMIT_MB = 1.0

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*/[A-Za-z0-9][A-Za-z0-9._+-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_URL = re.compile(r"https?://[!#-\[\]^-~]+")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]*")


class FetchExit(IntEnum):
    """Statuses of ``fetch.sh`` that mean something to whoever asked for the weights."""

    DONE = 0
    NO_SPACE = 28
    ORDER = 64
    CHECKSUM = 65
    UNREACHABLE = 68
    """The mirror cannot be reached from the node: push."""
    NO_TOOL = 69
    """Nothing on the node can fetch: push."""
    NO_SUMS = 70
    """Nothing on the node can make a checksum."""
    WRITE = 74
    BUSY = 75
    REFUSED = 77
    """The mirror answers 401, 403, 404 or 410."""


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """One file of a version, and where the mirror gives it out."""

    path: str
    """Below the version, with forward slashes."""
    size: int
    sha256: str
    url: str


@dataclass(frozen=True, slots=True)
class FetchJob:
    """One version of a model's weights that is to be on a node."""

    key: str
    """``MODEL/VERSION``, which is also the folder below the node's weights."""
    files: tuple[WeightsFile, ...]
    token: str = field(default="", repr=False)
    """The mirror's, as a bearer token."""
    cluster: str = ""
    """Whose it is: only that cluster ends it when nobody needs it any more."""
    margin_bytes: int = MARGIN_BYTES
    tries: int = 7
    """Downloads in a row without a byte more, after which the mirror is given up; three where it
    never answered."""
    pause_s: float = 1.0
    """Before the second of them; doubles up to 16 s."""
    stall_s: int = 60
    """A download that brings nothing for so long is begun anew."""

    @property
    def instance(self) -> str:
        """The name under which its fetch is found on a node."""
        return instance_name(self.key)

    @property
    def bytes_total(self) -> int:
        """Of all files."""
        return sum(file.size for file in self.files)

    @property
    def digest(self) -> str:
        """The same for jobs that are the same, down to the token: who joins a fetch looks at it."""
        parts = [
            self.key,
            self.token,
            *(f"{f.size} {f.sha256} {f.url} {f.path}" for f in self.files),
        ]
        return hashlib.sha256("\n".join(parts).encode(errors="surrogateescape")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class FetchProgress:
    """How far a fetch is. Bytes of half files and of files that were there before count as done."""

    bytes_done: int
    bytes_total: int
    phase: str
    """``get``, ``check``, ``save``, ``got``, ``push``, ``wait`` (for another fetch), ``done``."""
    file: str = ""
    checked: int = 0
    """Bytes of this file whose checksum is made."""
    rate: float | None = None
    """Bytes per second over the last ten; None while unknown and while nothing is fetched."""
    done: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file whose checksum was found right, and which has not changed since."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class HeldVersion:
    """What a node holds of one version."""

    complete: bool
    """Every file of its last fetch is there, as it was when its checksum was found right."""
    files: Mapping[str, HeldFile] = field(default_factory=dict)
    partial_bytes: int = 0
    """Of half files, which a fetch goes on with."""

    @property
    def bytes_held(self) -> int:
        """Of the checked files."""
        return sum(file.size for file in self.files.values())

    def satisfies(self, job: FetchJob) -> bool:
        """Whether nothing of this job has to be fetched."""
        return self.complete and all(
            self.files.get(f.path) == HeldFile(f.size, f.sha256) for f in job.files
        )


def instance_name(key: str) -> str:
    """The name of the instance that fetches this version.

    Raises:
        InvalidInput: it is no ``MODEL/VERSION``.
    """
    return "fetch-" + check_key(key).replace("/", "@")


def check_key(key: str) -> str:
    """The key, as it was.

    Raises:
        InvalidInput: it is no ``MODEL/VERSION``, or above 190 characters.
    """
    if not _KEY.fullmatch(key) or len(key) > 193:
        raise InvalidInput(f"{key!r} names no version of weights: it has to be MODEL/VERSION")
    return key


def weights_path(state_dir: str, key: str, file: str = "") -> str:
    """Where a version, or a file of it, lies on a node once it is checked."""
    folder = f"{state_dir}/weights/{check_key(key)}"
    return f"{folder}/{file}" if file else folder


def fetch_spec(job: FetchJob, *, check_only: bool = False) -> InstanceSpec:
    """The instance that brings a version to a node.

    With ``check_only`` nothing is downloaded: half files that are whole are checked and put in
    place. The token travels in files of mode 0600 that the fetch removes at its end.

    Raises:
        InvalidInput: a path, checksum, address or token that cannot be right.
    """
    lines = [_head(job, "check" if check_only else "get"), *(_line(f, job.key) for f in job.files)]
    if not job.files:
        raise InvalidInput(f"{job.key} has no files to fetch")
    if not _TOKEN.fullmatch(job.token):
        raise InvalidInput("the mirror's token holds characters that no bearer token may have")
    header = f"Authorization: Bearer {job.token}"
    return InstanceSpec(
        name=job.instance,
        token=secrets.token_hex(8),
        argv=("sh", "{dir}/fetch.sh", "{dir}"),
        files={
            "fetch.sh": load("lib.sh", "weights.sh", "fetch.sh").encode(),
            "fetch_file.py": load("fetch_file.py").encode(),
            "job": "".join(f"{line}\n" for line in lines).encode("ascii"),
            "token": job.token.encode(),
            "auth.conf": f'header = "{header}"\n'.encode() if job.token else b"",
            "wgetrc": f"header = {header}\n".encode() if job.token else b"",
        },
        record={
            "cluster": job.cluster,
            "weights": job.key,
            "fetch": job.digest,
            "bytes": job.bytes_total,
        },
        log_limit_mb=LOG_LIMIT_MB,
    )


def _head(job: FetchJob, mode: str) -> str:
    pause = max(1, round(job.pause_s * 100))
    return f"{check_key(job.key)} {mode} {pause} {job.tries} {job.stall_s} {job.margin_bytes}"


def _line(file: WeightsFile, key: str) -> str:
    parts = file.path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise InvalidInput(f"{file.path!r} of {key} is no path below a version")
    if not _SHA256.fullmatch(file.sha256) or file.size < 0:
        raise InvalidInput(f"{file.path!r} of {key} has no proper SHA-256 and size")
    if not _URL.fullmatch(file.url):
        raise InvalidInput(f"{file.path!r} of {key} has an address that cannot be fetched from")
    try:
        return f"{file.size} {file.sha256} {file.url} {word(file.path)}"
    except ValueError as error:
        raise InvalidInput(str(error)) from error


@dataclass(slots=True)
class Rate:
    """Bytes per second over the last ten seconds."""

    _points: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, at_s: float, done: int) -> float | None:
        """With one more reading; None until there are two."""
        points = self._points
        if points and (done < points[-1][1] or at_s < points[-1][0]):
            points.clear()  # begun anew, or the node was
        points.append((at_s, done))
        while len(points) > 2 and at_s - points[0][0] > RATE_WINDOW_S:
            points.popleft()
        passed = at_s - points[0][0]
        return (done - points[0][1]) / passed if passed > 0 else None


@dataclass(slots=True)
class FetchLog:
    """Reads a fetch's log as it comes. ``latest`` is None until something was said."""

    latest: FetchProgress | None = None
    status: int | None = None
    """How it ended, by its own words: 0 or what it failed with; None before."""
    error: str = ""
    _rest: bytes = b""
    _rate: Rate = field(default_factory=Rate)

    def feed(self, data: bytes) -> None:
        """Take a piece that follows on the one before; it may begin and end within a line."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        del_from = len(self._rest) - 65536
        if del_from > 0:  # no line of ours is so long
            self._rest = self._rest[del_from:]
        for line in lines:
            self._take(line.decode(errors="surrogateescape"))

    def _take(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        words = rest.split(" ", 5)
        if kind == "@@progress" and len(words) == 6:
            self._progress(words)
        elif kind == "@@waiting":
            done, total = (
                (self.latest.bytes_done, self.latest.bytes_total) if self.latest else (0, 0)
            )
            self.latest = FetchProgress(done, total, "wait")
        elif kind == "@@done" and words[0].isdecimal():
            self.status = FetchExit.DONE
            total = int(words[0])
            self.latest = FetchProgress(total, total, "done", done=True)
        elif kind == "@@error":
            code, _, error = rest.partition(" ")
            self.error = sanitise(error, most=300)
            self.status = int(code) if code.isdecimal() else FetchExit.WRITE

    def _progress(self, words: list[str]) -> None:
        numbers = words[:3] + words[4:5]
        if not all(number.isascii() and number.isdecimal() for number in numbers):
            return
        at, done, total, checked = (int(number) for number in numbers)
        phase, file = sanitise(words[3]), sanitise(words[5], most=300)
        rate = self._rate.add(at / 100, done) if phase == "get" else None
        if phase in ("check", "save"):
            self._rate = Rate()
        self.latest = FetchProgress(done, total, phase, file, checked, rate)


def progress(log_tail: bytes) -> FetchProgress | None:
    """How far a fetch is, by the last bytes of its log; None where they do not say."""
    log = FetchLog()
    log.feed(log_tail)
    if log.latest is not None and log.error:
        latest = log.latest
        return FetchProgress(latest.bytes_done, latest.bytes_total, latest.phase, error=log.error)
    return log.latest


@dataclass(slots=True)
class _Shelf:
    complete: bool = False
    recorded: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By file: its checksum and "SIZE MTIME" as recorded."""
    whole: set[str] = field(default_factory=set)
    """Files of the record that says that everything is there."""
    found: dict[str, str] = field(default_factory=dict)
    partial: int = 0


def parse_held(lines: Iterable[bytes]) -> dict[str, HeldVersion]:
    """What ``list`` of held.sh says, by ``MODEL/VERSION``."""
    shelves: dict[str, _Shelf] = {}
    shelf, kind_now = _Shelf(), ""
    for raw in lines:
        kind, _, rest = raw.decode(errors="surrogateescape").partition(" ")
        if kind == "v":
            kind_now, _, key = rest.partition(" ")
            shelf = shelves.setdefault(key, _Shelf()) if _KEY.fullmatch(key) else _Shelf()
            shelf.complete = shelf.complete or kind_now == "complete"
        elif kind == "r" and len(fields := rest.split(" ", 3)) == 4:
            shelf.recorded[fields[3]] = fields[0], f"{fields[1]} {fields[2]}"
            if kind_now == "complete":
                shelf.whole.add(fields[3])
        elif kind == "s" and len(fields := rest.split(" ", 2)) == 3:
            shelf.found[fields[2].removeprefix("./")] = f"{fields[0]} {fields[1]}"
        elif kind == "p":
            size, _, place = rest.partition(" ")
            key = "/".join(place.split("/")[1:3])
            if size.isdecimal() and _KEY.fullmatch(key):
                shelves.setdefault(key, _Shelf()).partial += int(size)
    return {key: _held(shelf) for key, shelf in shelves.items()}


def _held(shelf: _Shelf) -> HeldVersion:
    good = {
        file: HeldFile(int(stamp.split(" ")[0]), sha256)
        for file, (sha256, stamp) in shelf.recorded.items()
        if shelf.found.get(file) == stamp
    }
    complete = shelf.complete and bool(shelf.whole) and shelf.whole <= good.keys()
    return HeldVersion(complete, good, shelf.partial)


def complete_keys(lines: Iterable[bytes]) -> frozenset[str]:
    """The versions that are whole, of the same lines."""
    return frozenset(key for key, held in parse_held(lines).items() if held.complete)
