"""What a change would do, in lines."""

from __future__ import annotations

from typing import Any

UNKNOWN = "–"


def preview_lines(text: str, plan: dict[str, Any]) -> list[str]:
    """A preview: the summary, one line for each action, and what has no place at the end."""
    lines = [text]
    lines += [f"{action['step']}. {_step(action)}: {action['why']}" for action in plan["actions"]]
    for item in plan["pending"]:
        where = f" on {item['node']}" if item["node"] else " placed"
        lines.append(f"{item['model']}/{item['profile']} not{where}: {item['reason']}")
    for name, room in plan["headroom"].items():
        then, now = _shown(room["free"]), _shown(room["before"])
        lines.append(f"{name}: {then} more would fit then, {now} now")
    return lines


def _step(action: dict[str, Any]) -> str:
    """One action in a few words, with what is known of its cost."""
    said = f"{action['kind']} {action['replica']} on {', '.join(action['nodes'])}"
    if action["kind"] == "stop":
        return f"{said} ({_shown(action['in_flight'])} in flight)"
    took = action["load_time_s"]
    return f"{said} (loading took {UNKNOWN if took is None else f'{took:.1f} s'} last)"


def _shown(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)
