"""Headers out of sources of bytes, with as few requests and bytes as they need."""

from __future__ import annotations

import asyncio
from pathlib import Path

from llmgw_core.gguf import limits
from llmgw_core.gguf.cursor import Need
from llmgw_core.gguf.errors import HeaderError
from llmgw_core.gguf.header import Header
from llmgw_core.gguf.parse import HeaderParser
from llmgw_core.gguf.sources import ByteSource, FileSource

FIRST_BYTES = 256 << 10
"""Of the first request: name, architecture, layers, heads and context stand there."""
PIECE_MOST = 4 << 20
"""Of one request; what is held in memory at once."""
SPARE_SHARE = 32
"""A request takes 1/32 of what is known to be header more than seems to be needed."""
PATIENCE = 6
"""Requests after which each is twice the one before: guesses did not help."""
REQUESTS_MOST = 64


async def read_header(source: ByteSource, *, whole: bool = True) -> Header:
    """The header of a GGUF file.

    Args:
        source: of the file's bytes.
        whole: False where the architecture's keys will do: then what stands in the first 256 KiB is
            returned, as an incomplete header, and no more is read unless they are not among it.
            A file that is still being fetched can be read so.

    Raises:
        HeaderError: the file cannot be read, is no GGUF, or is cut or damaged.
        LlmgwError: the link to its node is not there.
    """
    parser = HeaderParser(source.name, file_bytes=source.size, whole=whole)
    pieces = Pieces(parser)
    need = pieces.first()
    while isinstance(need, Need):
        data = await source.read(need.offset, pieces.size(need))
        parser.file_bytes = source.size
        # a thread, since a vocabulary takes a tenth of a second
        need = await asyncio.to_thread(pieces.give, data)
    return need


def read_header_of_file(path: Path, *, whole: bool = True) -> Header:
    """The same for a file of this machine; blocks."""
    source = FileSource(path)
    parser = HeaderParser(source.name, whole=whole)
    pieces = Pieces(parser)
    need = pieces.first()
    while isinstance(need, Need):
        data = source.read_now(need.offset, pieces.size(need))
        parser.file_bytes = source.size
        need = pieces.give(data)
    return need


class Pieces:
    """Decides how much to ask for at once, and passes it on to the parser."""

    def __init__(self, parser: HeaderParser) -> None:
        self._parser = parser
        self._steps = parser.run()
        self._asked = 0
        self._last = 0

    def first(self) -> Need | Header:
        """What the parser begins with."""
        return next(self._steps)

    def size(self, need: Need) -> int:
        """How many bytes to ask for.

        The size of a header stands nowhere. Too little is another request; too much is weights. So
        it is what seems to be left, and a small share of what is behind us.
        """
        self._asked += 1
        if self._asked > REQUESTS_MOST:
            raise HeaderError(
                f"{self._parser.name} is made up: its header is not through after "
                f"{REQUESTS_MOST} requests"
            )
        if self._asked == 1:
            size = FIRST_BYTES
        else:
            size = need.likely + need.offset // SPARE_SHARE
            if self._asked > PATIENCE:
                size = max(size, 2 * self._last)
        self._last = min(size, PIECE_MOST)
        size = max(self._last, need.least)
        end = self._parser.file_bytes
        if end is not None:
            size = min(size, max(need.least, end - need.offset))
        return min(size, limits.HEADER_MOST)

    def give(self, data: bytes) -> Need | Header:
        """What is needed next, or the header."""
        try:
            return self._steps.send(data)
        except StopIteration as end:
            header: Header = end.value
            return header
