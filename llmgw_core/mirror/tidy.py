"""What nobody needs in a store, and its removal. Blocks."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from llmgw_core.errors import Refused
from llmgw_core.mirror.manifest import ManifestDamaged
from llmgw_core.mirror.store import PARTIAL, Store, is_name
from llmgw_core.mirror.tree import files_below, folders, prune, remove_tree, tree_bytes
from llmgw_core.mirror.versions import FileState


@dataclass(frozen=True, slots=True)
class Waste:
    """Something that may go."""

    path: str
    """Below the store's folder."""
    bytes: int
    why: str


def clean(store: Store, *, keep: Collection[str] = (), dry_run: bool = True) -> tuple[Waste, ...]:
    """Half files of pulls that do not run, files that no manifest lists, what is left of removals.

    Args:
        store: The store.
        keep: Versions (``MODEL/VERSION``) that are left alone.
        dry_run: Only say what would go.

    Returns:
        What goes, or went. Versions that somebody works on, and those whose manifest cannot be
        understood, are left alone; so is all that is not two folders deep.
    """
    found: list[Waste] = []
    for model, version in _seen(store):
        if f"{model}/{version}" in keep:
            continue
        if dry_run:
            if not store.is_busy(model, version):
                found += (waste for waste, _ in _waste(store, model, version))
            continue
        try:
            with store.locked(model, version, "a clean-up"):
                for waste, path in list(_waste(store, model, version)):
                    remove_tree(path)
                    prune(path.parent, store.root)
                    found.append(waste)
                _prune_below(store.folder(model, version), store.root)
                if not store.manifest_path(model, version).exists():
                    remove_tree(store.lock_path(model, version))
                    prune(store.lock_path(model, version).parent, store.root)
        except Refused:
            continue
    return tuple(found)


def _seen(store: Store) -> list[tuple[str, str]]:
    """Every model and version that something lies of, whatever it is."""
    found = set(store.names())
    for base in (store.root, store.root / PARTIAL):
        found |= {(model, name) for model in folders(base) for name in folders(base / model)}
    return sorted(pair for pair in found if is_name(*pair))


def _waste(store: Store, model: str, version: str) -> Iterator[tuple[Waste, Path]]:
    try:
        manifest = store.manifest(model, version)
    except ManifestDamaged:
        return
    partial = store.partial(model, version)
    if os.path.lexists(partial):
        yield _told(store, partial, "half files of a pull that does not run")
    done = [e for e in manifest.files if e.state is not FileState.WAITING] if manifest else []
    if manifest is not None and not done:
        yield _told(store, store.manifest_path(model, version), "a version without any file")
    listed = {entry.file for entry in done}
    folder = store.folder(model, version)
    if folder.is_symlink():
        return
    for name, _ in files_below(folder):
        if name not in listed:
            yield _told(store, folder / name, "no manifest lists it")


def _told(store: Store, path: Path, why: str) -> tuple[Waste, Path]:
    return Waste(str(path.relative_to(store.root)), tree_bytes(path), why), path


def _prune_below(folder: Path, root: Path) -> None:
    """Remove the empty folders below one, deepest first, and itself where nothing is left."""
    for at, _, _ in os.walk(folder, topdown=False):
        prune(Path(at), root)
