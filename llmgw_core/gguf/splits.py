"""Which of several files belong together: split models, and projectors beside them. Pure.

llama.cpp names the parts of a split model ``NAME-00001-of-00003.gguf``, is given the first, and
finds the others by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from llmgw_core.gguf.errors import HeaderError
from llmgw_core.plain_text import sanitise

_PART = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)
_SHOWN_MOST = 5


@dataclass(frozen=True, slots=True)
class PartName:
    """The name of one part; its folder belongs to the stem."""

    stem: str
    number: int
    """From 1."""
    count: int


@dataclass(frozen=True, slots=True)
class SplitSet:
    """The parts of one split model, as far as they are there."""

    stem: str
    count: int
    parts: tuple[str, ...]
    """Names of those that are there, in order."""
    numbers: tuple[int, ...]
    """Their numbers, from 1."""

    @property
    def is_whole(self) -> bool:
        """Whether no part is missing."""
        return len(self.parts) == self.count

    @property
    def missing(self) -> tuple[int, ...]:
        """Numbers of the parts that are not there, from 1."""
        there = frozenset(self.numbers)
        return tuple(number for number in range(1, self.count + 1) if number not in there)

    @property
    def first(self) -> str:
        """The name of the first part, there or not: the one that an engine is given."""
        return part_name(self.stem, 1, self.count)


@dataclass(frozen=True, slots=True)
class Grouped:
    """The GGUF files among some names, sorted by what they are."""

    singles: tuple[str, ...] = ()
    sets: tuple[SplitSet, ...] = ()
    projectors: tuple[str, ...] = ()
    """Files named mmproj; they go with a model and are none."""


def part_name(stem: str, number: int, count: int) -> str:
    """The name of one part, from 1."""
    return f"{stem}-{number:05}-of-{count:05}.gguf"


def split_name(name: str) -> PartName | None:
    """What a file's name says of a split; None for other files, and for numbers that cannot be."""
    found = _PART.fullmatch(name)
    if found is None:
        return None
    number, count = int(found["number"]), int(found["count"])
    return PartName(found["stem"], number, count) if 1 <= number <= count else None


def is_projector(name: str) -> bool:
    """Whether a file is a multimodal projector, by its name; its folder does not count."""
    return "mmproj" in name.rpartition("/")[2].lower()


def grouped(names: Iterable[str]) -> Grouped:
    """Sort files into models of one file, split models and projectors; others are left out."""
    singles: list[str] = []
    projectors: list[str] = []
    parts: dict[tuple[str, int], dict[int, str]] = {}
    for name in sorted(set(names)):
        part = split_name(name)
        if not name.lower().endswith(".gguf"):
            continue
        if is_projector(name):
            projectors.append(name)
        elif part is not None:
            parts.setdefault((part.stem, part.count), {})[part.number] = name
        else:
            singles.append(name)
    sets = tuple(
        SplitSet(
            stem,
            count,
            tuple(there[number] for number in sorted(there)),
            tuple(sorted(there)),
        )
        for (stem, count), there in parts.items()
    )
    return Grouped(tuple(singles), sets, tuple(projectors))


def checked(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """All files of the model that is loaded by this name, in order; ``names`` is what is there.

    Raises:
        HeaderError: the name is a later part's, or parts are missing.
    """
    part = split_name(name)
    if part is None:
        return (name,)
    there = frozenset(names)
    wanted = [part_name(part.stem, number, part.count) for number in range(1, part.count + 1)]
    missing = [number for number, file in enumerate(wanted, 1) if file not in there]
    if missing:
        raise HeaderError(f"{_short(part.stem)} is not whole: {_numbers(missing, part.count)}")
    if part.number != 1:
        raise HeaderError(
            f"{_short(name)} is part {part.number} of {part.count}; name the first, "
            f"{_short(wanted[0])}"
        )
    return tuple(wanted)


def _numbers(missing: list[int], count: int) -> str:
    shown = ", ".join(str(number) for number in missing[:_SHOWN_MOST])
    more = f" and {len(missing) - _SHOWN_MOST} more" if len(missing) > _SHOWN_MOST else ""
    if len(missing) == 1:
        return f"part {shown} of {count} is missing"
    return f"parts {shown}{more} of {count} are missing"


def _short(name: str) -> str:
    return sanitise(name.rpartition("/")[2], most=200)
