"""What is wrong with a file's tables, gathered while reading on; and the error that carries it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from llmgw_core.catalog.model import CatalogProblem
from llmgw_core.errors import InvalidInput

Step = str | int
Path = tuple[Step, ...]
"""Keys and indices from the top of a TOML document: ``("models", 0, "profiles", 1, "tp")``."""

_LONGEST_NAME = 80
_MOST_KNOWN = 300
"""Comparing with more would take longer than a suggestion is worth."""


def quoted(value: str) -> str:
    """A name from outside in quotes, on one line, cut where it is very long."""
    shown = value if len(value) <= _LONGEST_NAME else value[:_LONGEST_NAME] + "…"
    return json.dumps(shown, ensure_ascii=not shown.isprintable())


def bare(key: str) -> str:
    """A key as it is written: quoted only where TOML would want that, or where it is very long."""
    plain = len(key) <= _LONGEST_NAME and re.fullmatch(r"[\w.-]+", key)
    return key if plain else quoted(key)


def listed(names: Iterable[str]) -> str:
    """Names in quotes, separated by commas; ``none`` where there are none."""
    return ", ".join(quoted(name) for name in names) or "none"


def closest(word: str, known: Iterable[str]) -> str:
    """``; did you mean "x"?`` where something known is close, else nothing."""
    from difflib import get_close_matches  # only where something is wrong

    close = get_close_matches(word[:_LONGEST_NAME], list(islice(known, _MOST_KNOWN)), n=1)
    return f"; did you mean {quoted(close[0])}?" if close else ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a document something stands, and how a sentence calls it."""

    path: Path = ()
    label: str = ""
    """``model "m", profile "p"``, ``node "n"``, ``[gateway]``; empty at the top."""
    model: str | None = None
    profile: str | None = None

    def at(self, *steps: Step) -> Place:
        """The same thing, further down."""
        return replace(self, path=self.path + steps)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong, before it is known in which file and line that is."""

    text: str
    """The sentence without its place: ``tp must not be negative``."""
    place: Place = field(default_factory=Place)
    key: str | None = None

    def problem(self, file: str | None, line: int | None) -> CatalogProblem:
        """The problem as people and scripts see it."""
        place = ", ".join(filter(None, (f"line {line}" if line else "", self.place.label)))
        return CatalogProblem(
            message=f"{place}: {self.text}" if place else self.text,
            file=file,
            model=self.place.model,
            profile=self.place.profile,
            key=self.key,
        )


Findings = list[Finding]


class ConfigProblems(InvalidInput):
    """A configuration, or a piece of one, with at least one thing wrong; all of them in order."""

    def __init__(self, problems: Sequence[CatalogProblem]) -> None:
        self.problems = tuple(problems)
        first = self.problems[0]
        text = f"{first.file}: {first.message}" if first.file else first.message
        more = len(self.problems) - 1
        if more:
            text += f" (and {more} more problem{'s' if more > 1 else ''})"
        super().__init__(text)
