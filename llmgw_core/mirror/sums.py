"""Checksums of a file as it comes: SHA-256 of all, and a CRC of each piece to find damage by."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence

PIECE_BYTES = 64 * 1024 * 1024
"""A bit that turns costs a mending this much; 70 GB have a thousand pieces."""


class Sums:
    """Running checksums; ``piece_bytes`` 0 for none of pieces."""

    def __init__(self, piece_bytes: int = PIECE_BYTES) -> None:
        self.count = 0
        """Bytes so far."""
        self._piece_bytes = piece_bytes
        self._sha256 = hashlib.sha256()
        self._pieces: list[int] = []
        self._crc = 0

    def update(self, chunk: bytes) -> None:
        """Take the next bytes."""
        self._sha256.update(chunk)
        if not self._piece_bytes:
            self.count += len(chunk)
            return
        view = memoryview(chunk)
        while view:
            room = self._piece_bytes - self.count % self._piece_bytes
            part, view = view[:room], view[room:]
            self._crc = zlib.crc32(part, self._crc)
            self.count += len(part)
            if self.count % self._piece_bytes == 0:
                self._pieces.append(self._crc)
                self._crc = 0

    def sha256(self) -> str:
        """Of all so far, in hex."""
        return self._sha256.hexdigest()

    def pieces(self) -> tuple[int, ...]:
        """CRC-32 of each piece so far, the last one perhaps short."""
        short = self._piece_bytes and self.count % self._piece_bytes
        return (*self._pieces, self._crc) if short else tuple(self._pieces)


def bad_pieces(have: Sequence[int], want: Sequence[int]) -> tuple[int, ...]:
    """The numbers of the pieces that differ; none where the two cannot be compared."""
    if len(have) != len(want):
        return ()
    return tuple(n for n, (a, b) in enumerate(zip(have, want, strict=True)) if a != b)
