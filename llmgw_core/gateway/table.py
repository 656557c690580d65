"""What the controller tells the gateway, and what the gateway tells back. Wire values (msgspec)."""

from __future__ import annotations

import msgspec


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """One replica that requests may go to."""

    id: str
    host: str
    port: int
    weight: float = 1.0
    slots: int | None = None
    """Requests that it works on at once; more wait here. None where that is not known."""
    api_key: str = ""
    uds: str | None = None
    """A Unix socket to use instead of host and port."""
    tunnel: str | None = None
    """Name of the node behind whose SSH connection host and port lie (see ``Table.tunnels``)."""


class RouteModel(msgspec.Struct, frozen=True):
    """A model as clients see it."""

    name: str
    aliases: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    state: str = "stopped"
    """Why there are no targets, in a word for errors: stopped, starting, failed, on demand."""
    reason: str = ""
    description: str | None = None
    context_length: int | None = None
    max_output: int | None = None
    owned_by: str = "llmgw"
    owner: str | None = None
    """Whom requests without a key that has an owner are charged to."""
    created: int = 0
    routing_profile: str = "chat"
    fallbacks: tuple[str, ...] = ()
    wakes: bool = False
    """Whether a replica comes when somebody waits for one."""
    rank: int = 0
    """Of its class: the order of those who wait, where their keys say no other."""
    progress: float | None = None
    """How far the replica that comes is, 0 to 1."""
    node: str = ""
    """Where it comes."""
    held: bool = False
    """Nobody knows yet where it is served: what the table before says of that stays in force."""


class Tunnel(msgspec.Struct, frozen=True):
    """How the gateway reaches a node by SSH itself (no secrets: paths of keys only)."""

    host: str
    port: int
    user: str | None
    identity_files: tuple[str, ...]
    known_hosts: str
    host_key_alias: str
    jump: Tunnel | None = None


class KeyLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a key or an owner may use; None is unlimited."""

    requests_per_minute: int | None = None
    requests_per_day: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None
    concurrency: int | None = None
    """Requests at once, waiting ones included."""


UNLIMITED = KeyLimits()


class Table(msgspec.Struct, frozen=True):
    """The whole routing table; replaces the one before."""

    version: int
    models: tuple[RouteModel, ...] = ()
    tunnels: dict[str, Tunnel] = {}
    lost: tuple[str, ...] = ()
    """Replicas whose nodes went away: what waits for their answer is asked of others."""
    ranks: dict[str, int] = {}
    """Of the classes that keys may have."""
    owners: dict[str, KeyLimits] = {}
    """What owners may use together, by name."""


class ModelDemand(msgspec.Struct, frozen=True):
    """What clients want of one model now."""

    model: str
    running: int
    waiting: int
    requests_total: int
    errors_total: int
    last_end: float | None
    """Unix seconds of the last request's end."""
    unserved_total: int = 0
    """Requests answered 503 because no replica was ready."""


class TargetLoad(msgspec.Struct, frozen=True):
    """Requests in flight to one replica, those to replicas no longer in the table included."""

    id: str
    outstanding: int


class Report(msgspec.Struct, frozen=True):
    """The gateway's state, sent every second and on request."""

    pid: int
    address: str
    """``host:port`` as listened on."""
    table_version: int
    open_connections: int
    requests_total: int
    requests_per_s: float
    output_chunks_per_s: float
    models: tuple[ModelDemand, ...] = ()
    targets: tuple[TargetLoad, ...] = ()
    draining: bool = False
