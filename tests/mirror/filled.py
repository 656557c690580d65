"""Stores with something in them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from llmgw_core.mirror.manifest import Entry, Manifest
from llmgw_core.mirror.store import Store
from llmgw_core.mirror.sums import Sums
from llmgw_core.mirror.versions import FileState

PIECE = 1000


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def fill(store: Store, model: str, version: str, files: dict[str, bytes]) -> Manifest:
    """Put a checked version in a store."""
    entries = []
    for name, content in files.items():
        path = store.path(model, version, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        sums = Sums(PIECE)
        sums.update(content)
        entries.append(
            Entry(
                name, len(content), sums.sha256(), FileState.DONE,
                piece_bytes=PIECE, pieces=sums.pieces(),
            )
        )  # fmt: skip
    made = Manifest(model, version, tuple(entries), source="/srv/x", created=1.0)
    store.write_manifest(made)
    return made


def tree(root: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.relative_to(root).parts[0] != ".locks"
    }
