"""What an action is done to, from what is selected. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llmgw_core.api.views import ReplicaView, Snapshot
from llmgw_tui.actions import Action, Kind
from llmgw_tui.rows.mirror import removal_note
from llmgw_tui.state import node_named, replica_named, version_named

_CORDONED = frozenset({"cordoned", "draining"})


@dataclass(frozen=True, slots=True)
class Selection:
    """The cursor and the marks of the list that has the focus."""

    kind: Kind
    cursor: str | None
    marked: tuple[str, ...] = ()


def targets_of(
    action: Action, selection: Selection | None, snapshot: Snapshot | None
) -> tuple[str, ...]:
    """The ids, of the action's kind, that a key means; empty where it means nothing here.

    A bulk action is done to all marked rows, any other to the row under the cursor. A replica
    stands for its model or node where the action is about those, a model for its first replica.
    """
    if action.target is None or selection is None or snapshot is None:
        return ()
    ids = selection.marked if action.bulk and selection.marked else ()
    if not ids and selection.cursor is not None:
        ids = (selection.cursor,)
    found = (_as(action.target, selection.kind, id_, snapshot) for id_ in ids)
    return tuple(dict.fromkeys(id_ for id_ in found if id_ is not None))


def _as(wanted: Kind, kind: Kind, id_: str, snapshot: Snapshot) -> str | None:
    if wanted is kind:
        return id_
    if kind is Kind.REPLICA:
        replica = replica_named(snapshot, id_)
        if replica is None:
            return None
        if wanted is Kind.MODEL:
            return replica.model
        return replica.nodes[0] if replica.nodes else None
    if kind is Kind.MODEL and wanted is Kind.REPLICA:
        own = sorted((r for r in snapshot.replicas if r.model == id_), key=_readiest)
        return own[0].id if own else None
    return None


def _readiest(replica: ReplicaView) -> tuple[bool, str]:
    return (replica.state != "ready", replica.id)


def notes_of(action: Action, targets: Iterable[str], snapshot: Snapshot | None) -> dict[str, str]:
    """What a person should know about each target before it is gone, or taken."""
    if action.command == "node.takeover":
        nodes = ((name, node_named(snapshot, name)) for name in targets)
        return {name: f"led by {node.holder}" for name, node in nodes if node and node.holder}
    if action.target is not Kind.VERSION:
        return {}
    found = ((key, version_named(snapshot, key)) for key in targets)
    return {key: removal_note(version) for key, version in found if version is not None}


def cordoned(name: str, snapshot: Snapshot) -> bool:
    """Whether a node takes nothing new because a person said so."""
    return any(node.name == name and node.state in _CORDONED for node in snapshot.nodes)
