"""The weights that a node holds: listed and removed. There it is ``scripts/held.sh``."""

from __future__ import annotations

from collections.abc import Mapping

from llmgw_core.errors import RemoteFailed
from llmgw_core.nodes.exec import Exec, ExecResult
from llmgw_core.nodes.lease import REFUSED_STATUS, refusal
from llmgw_core.nodes.script import load, optional_word
from llmgw_core.nodes.weights import HeldVersion, check_key, parse_held

HELD_TIMEOUT_S = 60.0


def held_script() -> str:
    """The text of all its verbs."""
    return load("lib.sh", "lease.sh", "weights.sh", "held_list.sh", "held.sh")


async def list_held(exec_: Exec, state_dir: str | None) -> Mapping[str, HeldVersion]:
    """What a node holds, by ``MODEL/VERSION``; half fetched versions too.

    Raises:
        NodeLost: the link went away.
        RemoteFailed: the node cannot look.
    """
    result = await exec_.script(
        held_script(), "list", optional_word(state_dir), timeout_s=HELD_TIMEOUT_S
    )
    _check(result, "list the weights")
    return parse_held(result.stdout.splitlines())


async def remove_held(
    exec_: Exec,
    state_dir: str | None,
    key: str,
    *,
    node: str = "the node",
    holder: str | None = None,
) -> None:
    """Remove a version with all that was fetched of it, if it is there.

    Raises:
        InvalidInput: the key is no ``MODEL/VERSION``.
        LeaseHeld: the node belongs to another than the controller ``holder``.
        NodeLost: the link went away.
        RemoteFailed: it is being fetched, or cannot be removed.
    """
    args = ("remove", optional_word(state_dir), check_key(key), optional_word(holder))
    result = await exec_.script(held_script(), *args, timeout_s=HELD_TIMEOUT_S)
    if result.exit_status == REFUSED_STATUS and (held := refusal(node, result.stderr)) is not None:
        raise held
    _check(result, f"remove {key}")


def _check(result: ExecResult, what: str) -> None:
    if result.exit_status == 0:
        return
    said = result.stderr.decode(errors="replace").strip()
    last = said.splitlines()[-1] if said else f"exit status {result.exit_status}"
    msg = f"cannot {what} on the node: {last}"
    raise RemoteFailed(msg, exit_status=result.exit_status, output=said)
