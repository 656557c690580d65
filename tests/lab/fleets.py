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
from llmgw_core.nodes.node import Node
from tests.lab.hosts import USER, Host

BOUND_S = 60.0


@asynccontextmanager
async def fleet_over(
    hosts: Iterable[Host], folder: Path, *, trusted: bool = True
) -> AsyncIterator[dict[str, Node]]:
    """The nodes of a fleet that is kept connected for as long as the block lasts.

    ``trusted``: the host keys are known beforehand, and the nodes ready when the block begins.
    """
    hosts, state = list(hosts), folder / "state"
    state.mkdir()
    store = HostKeyStore(state / KNOWN_HOSTS)
    for host in hosts if trusted else ():
        store.add(host.name, host.host_key.convert_to_public())
    fleet = Fleet(
        tuple(node_config(host) for host in hosts),
        state_dir=state,
        rng=lambda: 0.0,
        ssh_config=None,
        agent_path=None,
    )
    task = asyncio.create_task(fleet.run())
    try:
        nodes = dict(fleet.nodes)
        if trusted:
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
