"""How a gateway process is started: its options as one value, and as a command line."""

from __future__ import annotations

from dataclasses import dataclass, fields

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Every option of ``python -m llmgw_core.gateway`` but the state directory."""

    host: str = "127.0.0.1"
    port: int = 8080
    """0 lets the system choose; the report says which it is."""
    connect_timeout_s: float = 5.0
    first_byte_timeout_s: float = 600.0
    """Longest wait for the first byte of an answer's body."""
    gap_timeout_s: float = 300.0
    """Longest gap between two pieces of an answer, on either side."""
    drain_timeout_s: float = 60.0
    """How long running requests may take to finish after SIGTERM."""
    header_timeout_s: float = 30.0
    """Longest time for a request's head, and longest gap in a request's body."""
    keepalive_timeout_s: float = 75.0
    """How long a client's connection may lie idle."""
    max_header_kb: int = 64
    max_body_mb: float = 64.0
    max_buffered_mb: float = 1024.0
    """Bound on the bodies of all requests held at once."""
    max_connections: int = 10_000
    max_waiting: int = 512
    """Requests that may wait for one model."""
    queue_timeout_s: float = 120.0
    """How long a request waits for a place at a replica."""
    wake_timeout_s: float = 900.0
    """How long a request waits for a replica that has to be started."""
    heartbeat_s: float = 15.0
    """After how long a silence a stream gets a comment line."""
    avoid_s: float = 5.0
    """How long a replica that failed is avoided while others are there."""
    insecure_no_keys: bool = False
    """Listen on an address that others reach, though no keys are checked."""

    @property
    def max_header(self) -> int:
        """Bytes of a request's head."""
        return self.max_header_kb * KIB

    @property
    def max_body(self) -> int:
        """Bytes of a request's body."""
        return int(self.max_body_mb * MIB)

    @property
    def max_buffered(self) -> int:
        """Bytes of all requests' bodies."""
        return int(self.max_buffered_mb * MIB)

    def arguments(self) -> list[str]:
        """The options that differ from their defaults, as a command line."""
        found: list[str] = []
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name not in ("host", "port") and value == option.default:
                continue
            flag = "--" + option.name.removesuffix("_s").replace("_", "-")
            found.extend([flag] if value is True else [flag, str(value)])
        return found
