"""A place in a file that is read piece by piece: asks for bytes, bounds what is asked. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Generator
from dataclasses import dataclass

from llmgw_core.gguf import limits
from llmgw_core.gguf.errors import HeaderError
from llmgw_core.plain_text import sanitise


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that a parser goes on with; send them from ``offset`` on, as many as there are.

    Fewer than ``least`` mean that the file ends there.
    """

    offset: int
    least: int
    likely: int
    """How many bytes from ``offset`` on the header seems to have; at least ``least``."""


class PrefixEnds(Exception):
    """What is wanted lies after the prefix, and what was read is enough."""


class Cursor:
    """Reads on from one place. Methods that yield a ``Need`` are sent the bytes for it."""

    def __init__(self, name: str, file_bytes: int | None) -> None:
        self.name = sanitise(name, most=300)
        self.file_bytes = file_bytes
        self.order = "<"
        """Of bytes, as ``struct`` writes it."""
        self.at = 0
        """In the file."""
        self.enough = False
        """Whether to end where more bytes would be needed."""
        self._data = b""
        self._base = 0

    def likely_rest(self) -> int:
        """How many bytes the header seems to have beyond what is asked for."""
        return 0

    def first(self, least: int) -> Generator[Need, bytes, bytes]:
        """The file's first bytes, as they come; fewer than asked where it has no more."""
        self._data = yield Need(0, least, least)
        self.at = least
        return self._data

    def take(self, count: int, what: str) -> Generator[Need, bytes, bytes]:
        """The next bytes; ``what`` they belong to, for messages."""
        start = self.at - self._base
        if start + count > len(self._data):
            yield from self._fetch(count, what)
            start = 0
        self.at += count
        return self._data[start : start + count]

    def number(self, code: str, what: str) -> Generator[Need, bytes, int]:
        """The next number, of one of ``struct``'s codes for whole ones."""
        data = yield from self.take(struct.calcsize(code), what)
        value: int = struct.unpack(self.order + code, data)[0]
        return value

    def skip(self, count: int, what: str) -> None:
        """Pass over bytes without having them."""
        self.fits(count, what)
        self.at += count

    def walk(self, count: int, what: str) -> Generator[Need, bytes, int]:
        """Pass over at most so many strings, from length to length, as far as the bytes at hand go.

        Returns how many; at least one, unless there are none.
        """
        self.fits(8 * count, what)
        if count and self.at - self._base > len(self._data) - 8:
            yield from self._fetch(8, what)
        read = struct.Struct(self.order + "Q").unpack_from
        data, at, last = self._data, self.at - self._base, len(self._data) - 8
        left = count
        while left and at <= last:
            at += 8 + read(data, at)[0]
            left -= 1
        self.at = self._base + at
        self.fits(0, what)
        return count - left

    def fits(self, count: int, what: str) -> None:
        """Whether so many bytes can follow; asked before anything is done about them."""
        end = self.at + count
        if self.file_bytes is not None and end > self.file_bytes:
            raise self.cut(what, end, self.file_bytes)
        if end > limits.HEADER_MOST:
            raise self.wrong(f"{what} would end at byte {end}, and no header is so large")

    def cut(self, what: str, end: int, have: int) -> HeaderError:
        """The error for a file that ends too early."""
        return HeaderError(
            f"{self.name} is cut or damaged: {what} would end at byte {end}, and the file has "
            f"{have}; fetch it again"
        )

    def wrong(self, why: str) -> HeaderError:
        """The error for what cannot be."""
        return HeaderError(f"{self.name} is damaged or made up: {why}")

    def _fetch(self, least: int, what: str) -> Generator[Need, bytes, None]:
        """Have at least so many bytes from the present place on."""
        self.fits(least, what)
        if self.enough:
            raise PrefixEnds
        self._data = b""  # before the next piece comes, so that there is never more than one
        data = yield Need(self.at, least, least + self.likely_rest())
        if len(data) < least:
            raise self.cut(what, self.at + least, self.at + len(data))
        self._data, self._base = data, self.at
