"""What the mirror holds, as frozen values. Sizes are bytes, rates bytes per second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum


class FileState(StrEnum):
    """Where a file of a version stands."""

    WAITING = "waiting"
    FETCHING = "fetching"
    CHECKING = "checking"
    DONE = "done"
    FAILED = "failed"
    DAMAGED = "damaged"
    """Its content no longer has the checksum that it was stored under."""


@dataclass(frozen=True, slots=True)
class MirrorFile:
    """One file of a version."""

    file: str
    """Path below the version, with forward slashes."""
    bytes_done: int
    bytes_total: int | None
    state: FileState
    sha256: str | None = None
    rate: float | None = None
    error: str = ""
    note: str = ""
    """What went otherwise than planned and was mended, such as a download begun again."""


@dataclass(frozen=True, slots=True)
class MirrorVersion:
    """One downloaded state of a model's weights: ``MODEL/VERSION/FILE…``."""

    model: str
    version: str
    files: tuple[MirrorFile, ...]
    source: str = ""
    """Where it was pulled from, as it was asked for; never a login or a query."""
    revision: str = ""
    """The hub's commit, or the server's ETag; empty where there is none."""
    created: float | None = None
    asked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By source that was pulled into it: the files that it means."""
    trouble: str = ""
    """Why nothing is known about it, where its manifest cannot be read."""

    @property
    def name(self) -> str:
        """``MODEL/VERSION``."""
        return f"{self.model}/{self.version}"

    def of_source(self, *spellings: str) -> MirrorVersion | None:
        """The part of it that a source means, by any of its spellings; None where it is none of
        those that were pulled into it.
        """
        for source in spellings:
            files = self.asked.get(source)
            if files is not None:
                return replace(self, files=tuple(f for f in self.files if f.file in files))
        return self if self.source in spellings else None

    @property
    def complete(self) -> bool:
        """Whether every file of it is here and was checked."""
        return bool(self.files) and all(file.state is FileState.DONE for file in self.files)

    @property
    def bytes_total(self) -> int | None:
        """Sum of the final sizes; None while one of them is unknown."""
        sizes = [file.bytes_total for file in self.files]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    @property
    def bytes_done(self) -> int:
        """What has come so far."""
        return sum(file.bytes_done for file in self.files)


def to_wire(version: MirrorVersion) -> dict[str, object]:
    """A version as JSON takes it."""
    import msgspec  # for those who only name the types it would be a load for nothing

    made: dict[str, object] = msgspec.to_builtins(version)
    return made


def from_wire(data: Mapping[str, object]) -> MirrorVersion:
    """A version as ``to_wire`` gave it.

    Raises:
        ValueError: it is none.
    """
    import msgspec

    return msgspec.convert(data, MirrorVersion)
