"""What was seen of weights without fetching them. Values; ``inspect`` makes them."""

from __future__ import annotations

from dataclasses import dataclass

from llmgw_core.gguf.header import Header
from llmgw_core.mirror.versions import MirrorVersion


@dataclass(frozen=True, slots=True)
class Looked:
    """What was seen of weights."""

    version: MirrorVersion
    source: str = ""
    """The source that a catalog entry names, where it is not a version in the mirror."""
    header: Header | None = None
    header_error: str = ""
    """Why the header cannot be used: it is no GGUF, or damaged."""
    unread: str = ""
    """Why nobody could look at it; says nothing of the file itself."""
    mmproj_bytes: int | None = None
    in_mirror: bool = False
    on_nodes: tuple[str, ...] = ()
    """Nodes at which a path was found."""
    requests: int = 0
    bytes_read: int = 0
