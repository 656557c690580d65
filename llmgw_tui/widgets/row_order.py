"""Which rows of a list are shown, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llmgw_tui.filter import matches
from llmgw_tui.rows.parts import Col, Look

Row = Any


def let_through(
    rows: Sequence[Row],
    columns: Sequence[Col[Row]],
    look: Look,
    *,
    text: str = "",
    only: Callable[[Row], bool] | None = None,
) -> Sequence[Row]:
    """The rows that satisfy ``only`` and whose cells match the filter line."""
    if only is not None:
        rows = [row for row in rows if only(row)]
    if not text:
        return rows

    def cells(row: Row) -> Mapping[str, str]:
        return {c.key: "".join(part.text for part in c.cell(row, look)) for c in columns}

    return [row for row in rows if matches(cells(row), text)]


def in_order(rows: Sequence[Row], column: Col[Row] | None, *, descending: bool) -> list[Row]:
    """By a column's values, those that are unknown last either way; as given without one."""
    if column is None or column.sort is None:
        return list(rows)
    sort: Callable[[Row], Any] = column.sort
    known = [row for row in rows if sort(row) is not None]
    unknown = [row for row in rows if sort(row) is None]
    return sorted(known, key=sort, reverse=descending) + unknown
