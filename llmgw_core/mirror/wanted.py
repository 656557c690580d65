"""What a fetch is told, what it gives, who hears of it, and how it can fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from llmgw_core.errors import LlmgwError


class Interrupted(LlmgwError):
    """The connection broke; what has come is kept, and the next call goes on from there."""

    code = "interrupted"


class WrongContent(LlmgwError):
    """What came is not what was promised; nothing of it is kept."""

    code = "wrong_content"


Explain = Callable[[int, Mapping[str, str]], LlmgwError | None]
"""What a status means at this server; None where it means what it always does."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file and what it must be."""

    url: str
    sha256: str | None
    size: int | None = None
    mark: str = ""
    """The ETag that the size was told with: where the file has another one by now, the size is
    another one too, and that is no fault."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent to this host only: a redirect elsewhere goes without a login."""
    explain: Explain | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came."""

    size: int
    sha256: str
    etag: str = ""
    piece_bytes: int = 0
    pieces: tuple[int, ...] = ()


class Listener:
    """Hears how a fetch goes; this one does nothing."""

    def moved(self, done: int, total: int | None) -> None:
        """So many bytes have come."""

    def checking(self, done: int, total: int | None) -> None:
        """What came earlier is being read."""

    def noted(self, what: str) -> None:
        """Something went otherwise than planned, and was mended."""
