"""Answers of the engine that are to be read: plans, explanations, whatever comes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from llmgw_tui.rows.words import UNKNOWN


def report(data: object) -> list[str]:
    """Lines for a plan or explanation; other data as an indented outline."""
    if isinstance(data, Mapping) and ("actions" in data or "pending" in data):
        return list(_plan(data))
    return list(_outline(data, ""))


def rows_of(data: Mapping[str, object], key: str) -> list[Mapping[str, object]]:
    """The tables in a list of an answer; empty where there is no such list."""
    value = data.get(key)
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    return [row for row in value if isinstance(row, Mapping)]


def _plan(data: Mapping[str, object]) -> Iterator[str]:
    actions, pending = rows_of(data, "actions"), rows_of(data, "pending")
    yield "To do" if actions else "Nothing to do: everything is as it is wanted."
    for row in actions:
        nodes = row.get("nodes") or ()
        place = ", ".join(map(str, nodes)) if isinstance(nodes, Sequence) else str(nodes)
        what = row.get("replica") or row.get("model") or ""
        yield f"  {row.get('kind', '?')} {what}" + (f" on {place}" if place else "")
        if row.get("why"):
            yield f"      because {row['why']}"
    if pending:
        yield ""
        yield "Waiting for a place"
        for row in pending:
            where = row.get("node") or "no node"
            what = f"{row.get('model', '?')} ({row.get('profile', '?')})"
            yield f"  {what}, {where}: {row.get('reason', '')}"
    rest = {k: v for k, v in data.items() if k not in {"actions", "pending"} and v}
    if isinstance(room := rest.pop("headroom", None), Mapping):
        yield ""
        yield "Room for more"
        for model, fits in room.items():
            yield f"  {model}: {_fits(fits)}"
    if rest:
        yield ""
        yield from _outline(rest, "")


def _fits(fits: object) -> str:
    if not isinstance(fits, Mapping):
        return str(fits)
    free, more = fits.get("free"), fits.get("by_preemption")
    return f"{_value(free)} now, {_value(more)} by preemption"


def _outline(data: object, indent: str) -> Iterator[str]:
    match data:
        case Mapping():
            for key, value in data.items():
                if isinstance(value, Mapping | list | tuple) and value:
                    yield f"{indent}{key}"
                    yield from _outline(value, indent + "  ")
                else:
                    yield f"{indent}{key}  {_value(value)}"
        case list() | tuple():
            for item in data:
                if isinstance(item, Mapping):
                    lines = list(_outline(item, indent + "  "))
                    yield from [f"{indent}- {lines[0].lstrip()}", *lines[1:]] if lines else []
                else:
                    yield f"{indent}- {_value(item)}"
        case _:
            yield f"{indent}{_value(data)}"


def _value(value: object) -> str:
    match value:
        case None:
            return UNKNOWN
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list() | tuple() | dict():
            return "none"
    return str(value)
