"""What the store writes down about a version: one JSON file, replaced as a whole. Blocks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from llmgw_core.errors import InvalidInput, LlmgwError
from llmgw_core.mirror.names import check_files
from llmgw_core.mirror.versions import FileState
from llmgw_core.plain_text import sanitise

FORMAT = 1


class ManifestDamaged(LlmgwError):
    """A manifest that cannot be understood; the files beside it are untouched."""

    code = "manifest_damaged"


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a version, as it must be."""

    file: str
    size: int | None = None
    sha256: str | None = None
    """Known before it came, or of what came."""
    state: FileState = FileState.WAITING
    """Only waiting, done and damaged are written down; the rest is a running pull's."""
    etag: str = ""
    piece_bytes: int = 0
    pieces: tuple[int, ...] = ()
    """CRC-32 of each ``piece_bytes`` of it: they tell which part of a damaged file is bad."""


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One version."""

    model: str
    version: str
    files: tuple[Entry, ...] = ()
    source: str = ""
    revision: str = ""
    created: float | None = None
    asked: dict[str, tuple[str, ...]] = {}
    """By source that was pulled into it: the files that it means, where there are several."""
    format: int = FORMAT

    def entry(self, file: str) -> Entry | None:
        """The entry of a file."""
        return next((entry for entry in self.files if entry.file == file), None)

    def put(self, entries: Iterable[Entry]) -> Manifest:
        """With these entries in the place of those of the same name, or at the end."""
        merged = {entry.file: entry for entry in self.files}
        merged.update((entry.file, entry) for entry in entries)
        return msgspec.structs.replace(self, files=tuple(merged.values()))

    def asked_for(self, source: str, files: Iterable[str]) -> Manifest:
        """With one more source that means these of its files."""
        asked = dict(self.asked)
        if self.source not in asked and self.files:
            asked[self.source] = tuple(entry.file for entry in self.files)
        asked[source] = tuple(files)
        return msgspec.structs.replace(self, asked=asked)


def read(path: Path) -> Manifest | None:
    """The manifest at ``path``; None where there is none.

    Raises:
        ManifestDamaged: what is there is none.
        LlmgwError: it cannot be read.
    """
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LlmgwError(f"{path} cannot be read: {error.strerror}") from error
    try:
        found = msgspec.json.decode(text, type=Manifest)
        check_files(entry.file for entry in found.files)
    except (msgspec.MsgspecError, InvalidInput, UnicodeDecodeError) as error:
        raise ManifestDamaged(
            f"the manifest {path} cannot be understood ({sanitise(str(error), most=300)}); "
            "pull the version again to mend it, or remove it"
        ) from error
    if found.format != FORMAT:
        raise ManifestDamaged(
            f"the manifest {path} is of format {found.format} and this llmgw knows {FORMAT}; "
            "use the llmgw that wrote it"
        )
    return found


def write(path: Path, manifest: Manifest) -> None:
    """Put a manifest in the place of the one before; it is never seen half written.

    Raises:
        LlmgwError: it cannot be written.
    """
    try:
        replace_bytes(path, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    except OSError as error:
        raise unwritable(path.parent, error) from error


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a small file and rename it into place, on the disk before it counts.

    Raises:
        OSError: it cannot be written.
    """
    half = path.with_name(f".{path.name[:200]}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with half.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(half, path)
    except OSError:
        with contextlib.suppress(OSError):
            half.unlink()
        raise


def unwritable(folder: Path, error: OSError) -> LlmgwError:
    """Why the store cannot be written, in one sentence."""
    return LlmgwError(
        f"the mirror cannot write to {folder}: {error.strerror or error}",
        hint="free some space or put its folder elsewhere ([mirror] path)",
    )
