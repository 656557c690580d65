"""What the mirror's process is told and what it tells: JSON, by standard input and a socket."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from llmgw_core.errors import InvalidInput
from llmgw_core.mirror.limit import RATE_LEAST

SOCKET_NAME = "mirror.sock"
LOCK_NAME = "mirror.lock"
LOG_NAME = "mirror.log"
STATE_NAME = "mirror.json"
MAX_LINE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """How the mirror is served."""

    root: Path
    """The store."""
    secret_file: Path
    """Holds the cluster's secret, readable by its owner alone; see ``tokens``."""
    host: str = "127.0.0.1"
    port: int = 0
    """0 takes the last one that was listened on where it is free, else any."""
    rate_limit: float | None = None
    """Bytes per second of all downloads together; None is no limit."""
    stall_timeout_s: float = 60.0
    """How long a node may take nothing of a running download."""
    drain_timeout_s: float = 30.0
    """How long running downloads may take to finish after SIGTERM; a fetch resumes what is cut."""
    keepalive_timeout_s: float = 30.0
    """How long a connection may lie idle, or take to send its request's head."""
    max_downloads: int = 512
    max_connections: int = 2048

    def __post_init__(self) -> None:
        """Raises:
        InvalidInput: a value is out of its bounds.
        """
        if not 0 <= self.port <= 65535:
            raise InvalidInput(f"The mirror's port is {self.port}, which is not 0 to 65535")
        if self.rate_limit is not None and not self.rate_limit >= RATE_LEAST:
            raise InvalidInput(
                f"The mirror's rate limit is {self.rate_limit:g} bytes/s, "
                f"and must be at least {RATE_LEAST}",
                hint="raise it, or leave it out for none",
            )
        for name in ("stall_timeout_s", "keepalive_timeout_s", "max_downloads", "max_connections"):
            if not getattr(self, name) > 0:
                raise InvalidInput(f"The mirror's {name} is {getattr(self, name)}, not above 0")
        if not self.drain_timeout_s >= 0:
            raise InvalidInput(f"The mirror's drain_timeout_s is {self.drain_timeout_s}, below 0")


class VersionTraffic(msgspec.Struct, frozen=True):
    """What goes out of one version."""

    model: str
    version: str
    active: int
    """Downloads that run now."""
    bytes_sent: int
    """Since the process began."""


class MirrorStatus(msgspec.Struct, frozen=True):
    """How the server is; also the answer of ``GET /v1/status``."""

    pid: int
    host: str
    port: int
    started: float
    """Unix time."""
    settings: MirrorSettings
    secret_id: str
    """Names the secret without showing it; see ``tokens.secret_id``."""
    draining: bool
    connections: int
    active: int
    bytes_sent: int
    downloads_total: int
    """Answers with a body that were begun."""
    versions: tuple[VersionTraffic, ...] = ()


class ToMirror(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line from a controller; each is answered with one ``MirrorStatus``."""

    rate_limit: float | None = None
    """Put this limit in force; 0 is none."""
    drain: float | None = None
    """End within so many seconds. Answered once the address and the state directory are free for
    another; the connection closes when the process ends."""


def encode(value: MirrorSettings | MirrorStatus | ToMirror) -> bytes:
    """As one line of JSON, without its end."""
    return msgspec.json.encode(value, enc_hook=str)


def decode_settings(data: bytes) -> MirrorSettings:
    """Settings from JSON.

    Raises:
        InvalidInput: they cannot be used.
    """
    try:
        return msgspec.json.decode(data, type=MirrorSettings, dec_hook=_path)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The mirror's settings cannot be read: {error}") from error


def decode_status(data: bytes) -> MirrorStatus:
    """A status from JSON.

    Raises:
        msgspec.MsgspecError: it is none, or one of another release.
        InvalidInput: its settings cannot be used by this release.
    """
    return msgspec.json.decode(data, type=MirrorStatus, dec_hook=_path)


def _path(kind: type, value: str) -> Path:
    if kind is not Path:
        raise NotImplementedError(f"no {kind} is expected here")
    return Path(value)
