"""What a command would do, in lines for its dialog. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from llmgw_tui.rows.report import rows_of
from llmgw_tui.rows.words import UNKNOWN

LINES_MOST = 6
"""Actions, and reasons why something has no place: each so many at most."""


def preview(text: str, data: object) -> list[str]:
    """The summary, the actions in order, and what has no place; nothing for another answer."""
    plan = data.get("plan") if isinstance(data, Mapping) else None
    if not isinstance(plan, Mapping):
        return []
    actions = [_action(row) for row in rows_of(plan, "actions")]
    pending = [
        f"{row.get('model', '?')} not on {row.get('node') or 'any node'}: {row.get('reason', '')}"
        for row in rows_of(plan, "pending")
    ]
    return [f"{text[:1].upper()}{text[1:]}.", *_some(actions), *_some(pending)]


def _some(lines: list[str]) -> list[str]:
    rest = len(lines) - LINES_MOST
    return lines if rest <= 0 else [*lines[:LINES_MOST], f"and {rest} more"]


def _action(row: Mapping[str, object]) -> str:
    nodes = row.get("nodes")
    place = ", ".join(map(str, nodes)) if isinstance(nodes, list | tuple) else UNKNOWN
    said = f"{row.get('step', '?')}. {row.get('kind', '?')} {row.get('replica', '?')} on {place}"
    if row.get("kind") == "stop":
        flight = row.get("in_flight")
        return f"{said}, {UNKNOWN if flight is None else flight} in flight"
    took = row.get("load_time_s")
    return f"{said}, loads in {f'{took:.0f} s' if isinstance(took, float | int) else UNKNOWN}"
