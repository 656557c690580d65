"""Installing an engine on a node, into a venv of llmgw's own.

The work runs on the node as a supervised job, so that a lost link does not end it: asking again
joins what is under way. Index settings are those of the node's own pip.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping

from llmgw_core.errors import EngineFailed, InvalidInput, RemoteFailed
from llmgw_core.nodes.exec import Exec
from llmgw_core.nodes.instance import InstanceSpec, InstanceState, InstanceStatus
from llmgw_core.nodes.instances import Instances
from llmgw_core.nodes.script import load, optional_word

_PACKAGES: Mapping[str, str] = {"llamacpp": "xllamacpp"}
_POLL_S = 0.5
_GONE = (InstanceState.REBOOTED, InstanceState.LOST)
PROVISION_TIMEOUT_S = 1800.0
"""Bound on an installation; a wheel over a slow link takes minutes."""


async def provision(
    exec_: Exec,
    engine: str,
    *,
    progress: Callable[[str], None],
    state_dir: str | None,
    node: str = "the node",
    holder: str | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> str:
    """Install an engine and return its version; at once where it is there already.

    Args:
        engine: ``llamacpp``; others bring their own installers.
        node: its name, for errors.
        holder: the id with which this controller holds the node's lease.
        progress: called with each line that the installation prints.

    Raises:
        InvalidInput: an engine that llmgw cannot install.
        EngineFailed: the installation failed, with what to do.
        LeaseHeld: the node belongs to another controller.
        NodeLost: the link went away; the installation goes on, and asking again joins it.
    """
    package = _PACKAGES.get(engine)
    if package is None:
        msg = f"llmgw can install {' and '.join(_PACKAGES)}, not {engine}; install it on the node"
        raise InvalidInput(msg, hint="and name its program under the node's engines")
    jobs = Instances(exec_, state_dir, area="jobs", node=node, holder=holder)
    name = f"install-{package}"
    version: str | None = None
    try:
        async with asyncio.timeout(PROVISION_TIMEOUT_S):
            while version is None:
                await _begin(jobs, name, optional_word(state_dir), package)
                version = await _watch(jobs, name, progress, sleep)
    except TimeoutError as error:
        await jobs.stop(name, 5.0)
        bound = f"{PROVISION_TIMEOUT_S:.0f} s"
        msg = f"installing {package} took longer than {bound}; look at the node's network"
        raise EngineFailed(msg) from error
    await jobs.forget(name)
    return version


async def _begin(jobs: Instances, name: str, state: str, package: str) -> None:
    status = (await jobs.refresh()).get(name)
    if status is not None and _under_way(status):
        return
    spec = InstanceSpec(
        name=name,
        token=secrets.token_hex(8),
        argv=("sh", "{dir}/install.sh", state, package),
        files={"install.sh": load("lib.sh", "install.sh").encode()},
        log_limit_mb=4.0,
    )
    try:
        await jobs.start(spec)
    except RemoteFailed:
        # somebody else's may have begun since we looked
        status = (await jobs.refresh()).get(name)
        if status is None or not _under_way(status):
            raise


def _under_way(status: InstanceStatus) -> bool:
    return status.state.alive or status.state is InstanceState.ENDING


async def _watch(
    jobs: Instances,
    name: str,
    progress: Callable[[str], None],
    sleep: Callable[[float], Awaitable[None]],
) -> str | None:
    """The version; None where somebody else saw it through and tidied up before us."""
    offset, rest = 0, b""
    while True:
        status = (await jobs.refresh()).get(name)
        # read after the state, so that the last words are not missed
        chunk = await jobs.read_log(name, offset)
        offset = chunk.next_offset
        *lines, rest = (rest + chunk.data).split(b"\n")
        for line in lines:
            version = _hear(line.decode(errors="replace").strip(), progress)
            if version is not None:
                return version
        if chunk.data:
            continue
        if status is None or status.state is InstanceState.NONE:
            return None
        if status.state is InstanceState.EXITED and status.exit_status == 0:
            return None  # its log was taken away between our looking at its state and at the log
        if not _under_way(status):
            raise EngineFailed(_ended(name, status))
        await sleep(_POLL_S)


def _hear(line: str, progress: Callable[[str], None]) -> str | None:
    if line.startswith("@@version "):
        return line.removeprefix("@@version ")
    if line.startswith("@@error "):
        raise EngineFailed(line.removeprefix("@@error "))
    if line:
        progress(line)
    return None


def _ended(name: str, status: InstanceStatus) -> str:
    if status.state in _GONE:
        return f"{name} went away on the node before it was done (a reboot?); start it again"
    return f"{name} ended with status {status.exit_status} and said nothing; start it again"
