"""Where llmgw keeps what it must remember on the controller's machine."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

SOCKET_PATH_MOST = 100
"""The kernel takes 107 bytes; a little is left for temporary names."""


def state_dir(given: Path | None = None) -> Path:
    """The state directory: as given, else $LLMGW_STATE, else the platform's user state folder."""
    if given is not None:
        return given.expanduser().absolute()
    from_env = os.environ.get("LLMGW_STATE")
    if from_env:
        return Path(from_env).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_state_dir("llmgw"))


def make_private(folder: Path) -> Path:
    """Create a folder that only its owner may enter."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def socket_path(state: Path, name: str) -> Path:
    """Where a Unix socket of this state directory lies.

    In the directory itself, or, where that path is longer than sockets may have, in a private
    folder under the temporary directory whose name follows from the state directory's.
    """
    path = state / name
    if len(os.fsencode(path)) <= SOCKET_PATH_MOST:
        return path
    digest = hashlib.sha256(os.fsencode(state)).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"llmgw-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder / name
