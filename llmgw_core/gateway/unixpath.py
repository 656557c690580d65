"""Unix sockets under long paths: an address holds 107 bytes, a state directory any number."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOM = 100


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """A path to the same place that fits into a socket's address, valid inside the block.

    Raises:
        OSError: the path is long and its directory cannot be opened.
    """
    if len(os.fsencode(path)) <= _ROOM:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
