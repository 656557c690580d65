"""How tensors lie in a file: their sizes, and whether what a header says of them can be. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from llmgw_core.gguf.constants import GgmlType, ggml_types
from llmgw_core.gguf.errors import HeaderError
from llmgw_core.gguf.header import Header, TensorInfo
from llmgw_core.plain_text import sanitise


def bytes_of(tensor: TensorInfo, kind: GgmlType) -> int:
    """Bytes of a tensor whose type is known, without padding."""
    return tensor.elements // kind.block * kind.size


def sizes(tensors: Sequence[TensorInfo], *, data_bytes: int | None) -> tuple[int | None, ...]:
    """Bytes of each tensor.

    One of an unknown type takes all the room until the next one begins (or the data ends), with the
    padding in it; None where that end is not known either.
    """
    known = ggml_types()
    starts = sorted({tensor.offset for tensor in tensors})
    ends: dict[int, int | None] = dict(pairwise(starts))
    if starts:
        ends[starts[-1]] = data_bytes
    found: list[int | None] = []
    for tensor in tensors:
        kind = known.get(tensor.type)
        end = ends[tensor.offset]
        if kind is not None:
            found.append(bytes_of(tensor, kind))
        else:
            found.append(None if end is None else max(0, end - tensor.offset))
    return tuple(found)


def sizes_in(header: Header) -> tuple[int | None, ...]:
    """The same for a whole header."""
    start, end = header.header_bytes, header.file_bytes
    room = end - start if start is not None and end is not None else None
    return sizes(header.tensors, data_bytes=room)


def check(
    name: str, tensors: Sequence[TensorInfo], *, alignment: int, start: int, file_bytes: int | None
) -> list[str]:
    """Whether all tensors can lie where they are said to; returns what is odd about them.

    Args:
        name: the file's, for messages.
        tensors: as read.
        alignment: in bytes, that every offset must be a multiple of.
        start: of the data, in bytes from the file's start.
        file_bytes: size of the whole file, or None where it is not known.

    Raises:
        HeaderError: one of them cannot be, or the file ends before it does.
    """
    known = ggml_types()
    strange: set[int] = set()
    follows, expected = True, 0
    for tensor in tensors:
        if tensor.offset % alignment:
            raise HeaderError(
                f"{name} is damaged: tensor {_quoted(tensor)} begins at byte {tensor.offset}, "
                f"which is no multiple of the alignment {alignment}"
            )
        kind = known.get(tensor.type)
        size = 0
        if kind is None:
            strange.add(tensor.type)
        elif tensor.shape and tensor.shape[0] % kind.block:
            raise HeaderError(
                f"{name} is damaged: rows of tensor {_quoted(tensor)} have {tensor.shape[0]} "
                f"elements, and {kind.name} needs a multiple of {kind.block}"
            )
        else:
            size = bytes_of(tensor, kind)
        end = start + tensor.offset + size
        if file_bytes is not None and end > file_bytes:
            raise HeaderError(
                f"{name} is cut or damaged: it has {file_bytes} bytes, and tensor "
                f"{_quoted(tensor)} would end at byte {end}; fetch it again"
            )
        follows = follows and (bool(strange) or tensor.offset == expected)
        expected = -(-(tensor.offset + size) // alignment) * alignment
    odd = []
    if strange:
        numbers = ", ".join(str(number) for number in sorted(strange)[:8])
        odd.append(f"It has tensors of types that are not known here ({numbers})")
    if not follows:
        odd.append("Its tensors do not lie one after another, which llama.cpp refuses")
    return odd


def _quoted(tensor: TensorInfo) -> str:
    return f"“{sanitise(tensor.name)}”"
