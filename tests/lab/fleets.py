"""llmgw's fleet over a lab's hosts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llmgw_core.config import NodeConfig
from llmgw_core.nodes.facts import NodeState
from llmgw_core.nodes.fleet import KNOWN_HOSTS, Fleet
from llmgw_core.nodes.host_keys import HostKeyStore
from llmgw_core.nodes.instance import InstanceSpec, InstanceState
from llmgw_core.nodes.lease import LEASE_OLD_S, LEASE_RETRY_S
from llmgw_core.nodes.node import Node
from tests.lab.hosts import USER, Host

BOUND_S = 60.0


@asynccontextmanager
async def fleet_over(
    hosts: Iterable[Host],
    folder: Path,
    *,
    trusted: bool = True,
    ready: bool = True,
    agent: Path | None = None,
    cluster: str = "llmgw",
    lease_s: float = LEASE_OLD_S,
    entry: Callable[[Host], NodeConfig] | None = None,
) -> AsyncIterator[dict[str, Node]]:
    """The nodes of a fleet that is kept connected for as long as the block lasts.

    Args:
        hosts: What it is over.
        folder: For its state.
        trusted: The host keys are known beforehand.
        ready: Where they are known, the nodes are ready when the block begins.
        agent: The socket of the person's ssh agent.
        cluster: Its name.
        lease_s: When a lease is old; it is asked for again a few times as often.
        entry: What the configuration has of a host; ``node_config`` where left out.
    """
    hosts, state = list(hosts), folder / "state"
    state.mkdir(parents=True)
    store = HostKeyStore(state / KNOWN_HOSTS)
    for host in hosts if trusted else ():
        store.add(host.name, host.host_key.convert_to_public())
    fleet = Fleet(
        tuple(map(entry or node_config, hosts)),
        state_dir=state,
        cluster=cluster,
        rng=lambda: 0.0,
        # of a person who has none, nor any key
        ssh_config=folder / "ssh" / "config",
        agent_path=str(agent) if agent is not None else None,
        lease_s=lease_s,
        lease_retry_s=min(LEASE_RETRY_S, lease_s / 4),
    )
    task = asyncio.create_task(fleet.run())
    try:
        nodes = dict(fleet.nodes)
        if trusted and ready:
            for node in nodes.values():
                await in_state(node, NodeState.READY)
        yield nodes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def node_config(host: Host) -> NodeConfig:
    """A host as the configuration has it."""
    key = str(host.lab.client_key)
    return NodeConfig(host.name, host=host.address, user=USER, identity_file=key)


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait until this holds."""
    try:
        async with asyncio.timeout(BOUND_S):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"never: {what}")


async def in_state(node: Node, state: NodeState) -> float:
    """Wait until a node is in this state; returns for how many seconds that was."""
    start = time.monotonic()
    try:
        async with asyncio.timeout(BOUND_S):
            while node.status.state is not state:
                await asyncio.sleep(0.02)
    except TimeoutError:
        pytest.fail(f"{node.config.name} is {node.status}, not {state}")
    return time.monotonic() - start


def instance(name: str = "i", token: str = "t1") -> InstanceSpec:
    """Something that runs until it is stopped."""
    return InstanceSpec(name, token, ("sh", "-c", "echo hello; exec sleep 600"))


def state_of(node: Node, name: str = "i") -> InstanceState | None:
    """How an instance stands, as far as is known."""
    found = (node.instances or {}).get(name)
    return found.state if found is not None else None
