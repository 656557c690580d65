"""Reading headers in tests: from bytes, with what was asked for noted down."""

from __future__ import annotations

from llmgw_core.gguf.header import Header
from llmgw_core.gguf.parse import HeaderParser, Need
from llmgw_core.gguf.reader import Pieces


class Bytes:
    """A source over bytes that are at hand."""

    def __init__(self, data: bytes, *, name: str = "m.gguf", tells_size: bool = True) -> None:
        self.data = data
        self.name = name
        self.size = len(data) if tells_size else None
        self.requests = 0
        self.bytes_read = 0
        self.largest = 0

    async def read(self, offset: int, length: int) -> bytes:
        return self.take(offset, length)

    def take(self, offset: int, length: int) -> bytes:
        assert offset >= 0
        assert length > 0
        piece = self.data[offset : offset + length]
        self.requests += 1
        self.bytes_read += len(piece)
        self.largest = max(self.largest, length)
        return piece


def parse(data: bytes, *, whole: bool = True, tells_size: bool = True) -> Header:
    """As ``read_header`` does it, without a loop."""
    source = Bytes(data, tells_size=tells_size)
    pieces = Pieces(HeaderParser(source.name, file_bytes=source.size, whole=whole))
    need = pieces.first()
    while isinstance(need, Need):
        need = pieces.give(source.take(need.offset, pieces.size(need)))
    return need


def parse_in_steps(data: bytes, step: int) -> Header:
    """With never more than was needed and ``step`` bytes, so that all is cut everywhere."""
    steps = HeaderParser("m.gguf", file_bytes=len(data)).run()
    try:
        need = next(steps)
        while True:
            need = steps.send(data[need.offset : need.offset + max(need.least, step)])
    except StopIteration as end:
        header: Header = end.value
        return header
