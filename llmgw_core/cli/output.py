"""What commands print: one JSON document, or aligned plain text."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

import typer

from llmgw_core.plain_text import escaped_json, plain


def emit_json(value: Any) -> None:
    """One document on stdout."""
    sys.stdout.write(escaped_json(json.dumps(value, ensure_ascii=False, indent=2)) + "\n")


def emit_line(text: str) -> None:
    """A line on stdout, control characters made harmless."""
    typer.echo(plain(text))


def emit_table(heads: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
    """Columns as wide as their widest cell; ``empty`` where there are no rows."""
    if not rows:
        typer.echo(empty)
        return
    cells = [[plain(cell) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(heads, *cells, strict=True)]
    for row in (list(heads), *cells):
        line = "  ".join(
            cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)
        )
        typer.echo(line.rstrip())


def narrate(text: str) -> None:
    """A line on stderr, for people, control characters made harmless."""
    sys.stderr.write(plain(text) + "\n")


def _width(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    marks = sum(unicodedata.combining(char) != 0 for char in text)
    return len(text) + wide - marks


def dash(value: object, form: str = "{}") -> str:
    """A value in a form, – where it is unknown."""
    return "–" if value is None else form.format(value)
