"""All nodes of a configuration, and what they share."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from llmgw_core.config import NodeConfig
from llmgw_core.errors import NodeRefused, RefusedBecause
from llmgw_core.nodes.clock import SYSTEM_CLOCK, SYSTEM_RNG, Clock, Rng
from llmgw_core.nodes.dial import Dialer
from llmgw_core.nodes.host_keys import HostKeyStore
from llmgw_core.nodes.lease import LEASE_OLD_S, LEASE_RETRY_S, Terms, this_controller
from llmgw_core.nodes.link_keeper import Shared
from llmgw_core.nodes.local_server import LocalServer
from llmgw_core.nodes.node import Node
from llmgw_core.nodes.route import Credentials, Hop, route_to
from llmgw_core.nodes.ssh_config import Home, SshTarget
from llmgw_core.nodes.tunnel import SocketFolder

log = logging.getLogger(__name__)

FAULT_REST_S = 5.0
KNOWN_HOSTS = "known_hosts"
REACHED_HOSTS = "known_hosts.reached"
"""Keys of the hosts as they were reached, for the gateway's own connections."""


class Fleet:
    """A ``FleetHandle``. Nodes are there at once; ``run`` connects them.

    Args:
        nodes: The configuration's entries, in their order.
        state_dir: The controller's state directory: host keys and its id are kept there.
        cluster: The cluster's name, for other controllers that meet a lease of ours.
        clock: Time.
        rng: Jitter, from 0 up to 1.
        ssh_config: The person's ssh configuration; None reads none. Keys and known hosts are
            looked for beside it.
        engine_pythons: Interpreters of this machine that may hold an engine; for local nodes.
        local_homes: HOME of local nodes by name, where it is not the person's own: tests run
            several machines in one with it.
        agent_path: Socket of the ssh agent; empty for that of the environment, None for none.
        lease_s: Without renewal for so long, a node's lease is old.
        lease_retry_s: How often a node that another controller leads is asked for again.

    Raises:
        LlmgwError: the state directory cannot be written.
    """

    def __init__(
        self,
        nodes: tuple[NodeConfig, ...],
        *,
        state_dir: Path,
        cluster: str = "llmgw",
        clock: Clock = SYSTEM_CLOCK,
        rng: Rng = SYSTEM_RNG,
        ssh_config: Path | None = Path("~/.ssh/config"),
        engine_pythons: tuple[str, ...] = (),
        local_homes: Mapping[str, Path] | None = None,
        agent_path: str | None = "",
        lease_s: float = LEASE_OLD_S,
        lease_retry_s: float = LEASE_RETRY_S,
    ) -> None:
        config = ssh_config.expanduser() if ssh_config is not None else None
        if agent_path == "":
            agent_path = os.environ.get("SSH_AUTH_SOCK") or None
        self._home = Home(Path.home(), config, agent_path)
        self._shared = Shared(
            dialer=Dialer(
                self._home,
                HostKeyStore(state_dir / KNOWN_HOSTS),
                HostKeyStore(state_dir / REACHED_HOSTS),
            ),
            sockets=SocketFolder(),
            route=self._route,
            clock=clock,
            rng=rng,
            engine_pythons=engine_pythons,
            notify=self._notify,
            lease=Terms(
                this_controller(state_dir, cluster, started=clock.wall()), lease_s, lease_retry_s
            ),
        )
        self._local_homes = dict(local_homes or {})
        self._locals: dict[Path, LocalServer] = {}
        self._local_lock = asyncio.Lock()
        self._callbacks: list[Callable[[str], None]] = []
        self._changed = asyncio.Event()
        self._nodes: dict[str, Node] = {c.name: Node(c, self._shared) for c in nodes}

    @property
    def nodes(self) -> Mapping[str, Node]:
        """By name, in order of declaration."""
        return self._nodes

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Call with the node's name whenever its status, facts or instances change."""
        self._callbacks.append(callback)

    def apply(self, nodes: tuple[NodeConfig, ...]) -> None:
        """Bring the fleet to this list; nodes whose way did not change keep their link."""
        before = {name: node.config for name, node in self._nodes.items()}
        after = {config.name: config for config in nodes}
        kept: dict[str, Node] = {}
        for name, config in after.items():
            old = self._nodes.get(name)
            if old is not None and _way(old.config, before) == _way(config, after):
                old.reconfigure(config)
                kept[name] = old
            else:
                kept[name] = Node(config, self._shared)
        self._nodes = kept
        self._changed.set()
        for name in {**before, **after}:
            self._notify(name)

    async def run(self) -> None:
        """Keep every node connected until cancelled."""
        tasks: dict[Node, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._changed.clear()
                    wanted = set(self._nodes.values())
                    for node in tasks.keys() - wanted:
                        tasks.pop(node).cancel()
                    for node in self._nodes.values():
                        if node not in tasks:
                            tasks[node] = group.create_task(
                                self._keep(node), name=f"node {node.config.name}"
                            )
                    await self._changed.wait()
        finally:
            for server in self._locals.values():
                await server.stop()
            self._locals.clear()
            self._shared.sockets.remove()

    async def _keep(self, node: Node) -> None:
        while True:
            try:
                await node.run()
            except Exception:  # the task's boundary: other nodes must not go down with this one
                log.exception("%s: the task of the node failed", node.config.name)
            await asyncio.sleep(FAULT_REST_S)

    def _notify(self, name: str) -> None:
        for callback in self._callbacks:
            try:
                callback(name)
            except Exception:  # a listener's fault must not end a node's task
                log.exception("a listener failed at a change of node %s", name)

    async def _route(self, config: NodeConfig) -> Hop:
        if config.local:
            return await self._local_hop(config)
        return await route_to(config, {n: h.config for n, h in self._nodes.items()}, self._home)

    async def _local_hop(self, config: NodeConfig) -> Hop:
        home = self._local_homes.get(config.name, Path.home())
        async with self._local_lock:
            server = self._locals.setdefault(home, LocalServer(home))
            try:
                await server.start()
            except OSError as error:
                raise NodeRefused(
                    RefusedBecause.CONFIG,
                    f"{config.name}: the SSH server for this machine does not start: {error}",
                ) from error
        target = SshTarget("127.0.0.1", server.port, server.user)
        keys = Credentials(server.client_key, server.host_key)
        return Hop(config.name, f"local:{config.name}", target, credentials=keys)


def _way(config: NodeConfig, nodes: Mapping[str, NodeConfig]) -> object:
    """What of an entry decides about the link, that of its jump nodes included."""
    chain: list[object] = []
    seen: set[str] = set()
    step: NodeConfig | None = config
    while step is not None and step.name not in seen:
        seen.add(step.name)
        chain.append((step.host, step.port, step.user, step.identity_file, step.jump, step.local))
        step = nodes.get(step.jump) if step.jump is not None else None
    return (config.name, config.state_dir, dict(config.engines), chain)
