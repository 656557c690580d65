"""The way to a node: its own SSH target, and the jump hosts before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import asyncssh

from llmgw_core.config import NodeConfig
from llmgw_core.errors import NodeRefused, RefusedBecause
from llmgw_core.nodes.ssh_config import Home, HopName, SshTarget, parse_hops, resolve

MOST_HOPS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Credentials:
    """Keys made for the occasion: for a server of our own."""

    client_key: asyncssh.SSHKey
    host_key: asyncssh.SSHKey


@dataclass(frozen=True, slots=True)
class Hop:
    """One SSH connection of a route. Equal hops share one connection."""

    label: str
    """For messages: the node's name, or ``jump host …``."""
    alias: str
    """Under which llmgw's own known_hosts keeps its key."""
    target: SshTarget
    only_key: str | None = None
    """A key file that llmgw's configuration names."""
    via: Hop | None = None
    credentials: Credentials | None = field(default=None, compare=False)
    """In place of any other key and host key."""

    @property
    def place(self) -> str:
        """Host and port for messages."""
        return f"{self.target.host} port {self.target.port}"


async def route_to(node: NodeConfig, nodes: Mapping[str, NodeConfig], home: Home) -> Hop:
    """The hops to a node.

    Raises:
        NodeRefused: the ssh configuration or a jump cannot be used.
    """
    return await _node_hop(node, nodes, home, ())


async def _node_hop(
    node: NodeConfig, nodes: Mapping[str, NodeConfig], home: Home, seen: tuple[str, ...]
) -> Hop:
    seen = _deeper(seen, f"node {node.name}")
    label = node.name if len(seen) == 1 else f"jump host {node.name}"
    target = await resolve(node.host or node.name, home=home, user=node.user, port=node.port)
    if node.jump is not None and node.jump in nodes:
        via: Hop | None = await _node_hop(nodes[node.jump], nodes, home, seen)
    else:
        via = await _jumps(node.jump or target.proxy_jump, home, seen, of=f"node {node.name}")
    key = node.identity_file
    if key is not None and key.startswith("~/"):
        key = str(home.folder / key[2:])
    return Hop(label, node.name, target, key, via)


async def _jumps(text: str | None, home: Home, seen: tuple[str, ...], *, of: str) -> Hop | None:
    if text is None:
        return None
    try:
        names = parse_hops(text)
    except ValueError as error:
        raise NodeRefused(RefusedBecause.CONFIG, f"The jump of {of} cannot be used: {error}") from (
            error
        )
    via: Hop | None = None
    for index, name in enumerate(names):
        via = await _jump_hop(name, home, seen, via=via, first=index == 0)
    return via


async def _jump_hop(
    name: HopName, home: Home, seen: tuple[str, ...], *, via: Hop | None, first: bool
) -> Hop:
    seen = _deeper(seen, f"jump host {name.host}")
    target = await resolve(name.host, home=home, user=name.user, port=name.port)
    if first and target.proxy_jump is not None:
        # as OpenSSH has it: only the first of a list goes by its own ProxyJump
        via = await _jumps(target.proxy_jump, home, seen, of=f"jump host {name.host}")
    # no node can have this name, so a node's key never vouches for a jump host or the reverse
    return Hop(f"jump host {name.host}", f"jump:[{target.host}]:{target.port}", target, None, via)


def _deeper(seen: tuple[str, ...], name: str) -> tuple[str, ...]:
    if name in seen or len(seen) >= MOST_HOPS:
        path = " > ".join([*seen, name])
        raise NodeRefused(RefusedBecause.CONFIG, f"The jump hosts lead in a circle: {path}")
    return (*seen, name)
