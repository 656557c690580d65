"""Half files: where they lie, and whether they may be gone on with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from llmgw_core.mirror.manifest import replace_bytes


@dataclass(frozen=True, slots=True)
class Half:
    """Where a file lies while it is fetched, and what is remembered of its source."""

    data: Path
    note: Path


class Note(msgspec.Struct, frozen=True):
    """What is remembered of a half file's source."""

    url: str = ""
    etag: str = ""
    modified: str = ""
    size: int | None = None
    sha256: str | None = None

    @property
    def validator(self) -> str:
        """What guards a range: a strong ETag, else the date; empty where there is neither."""
        return self.etag if self.etag.startswith('"') else self.modified


def why_stale(
    note: Note | None,
    have: int,
    *,
    address: str,
    sha256: str | None,
    size: int | None,
    mark: str = "",
) -> str:
    """Why a half of ``have`` bytes cannot be gone on with; empty where it can. Pure."""
    if note is None:
        return "" if sha256 else "nothing is known of its half; begun again"
    if sha256 and note.sha256 and sha256 != note.sha256:
        return "the source has another file now; begun again"
    if size is not None and note.size is not None and size != note.size:
        return f"its size changed from {note.size} to {size} bytes; begun again"
    if size is not None and have > size:
        return "its half was longer than the file; begun again"
    if not sha256 and note.url != address:
        return "its half came from another address; begun again"
    if not sha256 and mark and note.etag and mark != note.etag:
        return "it changed at the source; begun again"
    if not sha256 and not note.validator:
        return "the server has no mark to tell a changed file by; begun again"
    return ""


def drop(half: Half) -> None:
    """Forget a half; blocks."""
    half.data.unlink(missing_ok=True)
    half.note.unlink(missing_ok=True)


def read_note(half: Half) -> Note | None:
    """What is remembered of a half; None where nothing can be read; blocks."""
    try:
        return msgspec.json.decode(half.note.read_bytes(), type=Note)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def write_note(half: Half, note: Note) -> None:
    """Remember a half's source; blocks."""
    replace_bytes(half.note, msgspec.json.encode(note))
