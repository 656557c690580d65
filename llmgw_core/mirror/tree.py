"""Folders and files of the store: read, measured and removed without following links. Blocks."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from llmgw_core.errors import LlmgwError
from llmgw_core.mirror.manifest import unwritable


def listed(folder: Path) -> list[str]:
    """The names in a folder, sorted; none where there is no folder."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise LlmgwError(f"the mirror cannot read {folder}: {error.strerror}") from error


def folders(base: Path) -> list[str]:
    """The names of the folders in a folder; links are none."""
    return [
        name for name in listed(base) if (base / name).is_dir() and not (base / name).is_symlink()
    ]


def size_of(path: Path) -> int | None:
    """Bytes of a regular file; None where there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def files_below(folder: Path) -> Iterator[tuple[str, int]]:
    """Files and links below a folder as paths relative to it, with what each takes; no link is
    followed.
    """
    for at, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(at, name))]
        for name in sorted(files + links):
            path = os.path.join(at, name)
            try:
                yield os.path.relpath(path, folder), os.lstat(path).st_size
            except FileNotFoundError:
                continue


def tree_bytes(path: Path) -> int:
    """What a file, or all below a folder, takes."""
    return size_of(path) or sum(size for _, size in files_below(path))


def remove_tree(path: Path) -> None:
    """Remove a file, a link, or a folder with all below it; nothing where nothing is.

    Raises:
        LlmgwError: it cannot be removed.
    """
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise unwritable(path.parent, error) from error


def prune(folder: Path, root: Path) -> None:
    """Remove a folder of the store, and those above it, while they are empty."""
    while folder != root and folder.is_relative_to(root):
        try:
            folder.rmdir()
        except OSError:  # not empty, or gone
            return
        folder = folder.parent
