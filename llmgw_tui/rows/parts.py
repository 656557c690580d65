"""Text in pieces, each with the name of a style; columns made of them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from llmgw_tui.rows.words import Mark

Row = TypeVar("Row")


class Part(NamedTuple):
    """A stretch of text in one style.

    Styles: ``""`` plain, ``muted``, ``strong``, ``accent``, ``brand``, ``badge``, and the status
    colours ``ready loading draining failed stale unknown spark``.
    """

    text: str
    style: str = ""
    spans: bool = False
    """Its cell takes the room of all columns to its right: a sentence in place of numbers."""


def stated(mark: Mark, state: str, ascii_only: bool) -> Part:
    """A state with its glyph."""
    return Part(f"{mark.ascii if ascii_only else mark.glyph} {state}", mark.style)


@dataclass(frozen=True, slots=True)
class Look:
    """What a cell may depend on besides its row."""

    now: float
    ascii: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Col(Generic[Row]):
    """One column of a list."""

    key: str
    """For filters (``key:value``) and sorting."""
    title: str
    width: int
    """In cells; the least, where ``grow`` is above 0."""
    cell: Callable[[Row, Look], tuple[Part, ...]]
    sort: Callable[[Row], object] | None = None
    grow: int = 0
    """Its share of the room that is left."""
    right: bool = False
    """Aligned to the right, as numbers are."""
    drop: int = 0
    """With too little room the columns with the highest go first; 0 never goes."""
    wide: bool = False
    """Only in the wide form."""
