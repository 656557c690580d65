"""What stands in a GGUF header, as frozen values. ``reader`` makes them; nothing here does I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Scalar = bool | int | float | str


@dataclass(frozen=True, slots=True)
class SkippedArray:
    """An array whose elements were passed over, such as a vocabulary: only its length is known."""

    length: int


Value = Scalar | tuple[Scalar, ...] | SkippedArray
"""A metadata value. Short arrays of numbers, booleans and strings are kept as tuples."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor's entry. ``type`` is ggml's number; ``offset`` counts from the data's start."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int

    @property
    def elements(self) -> int:
        """Number of weights in it."""
        product = 1
        for size in self.shape:
            product *= size
        return product


@dataclass(frozen=True, slots=True)
class Header:
    """The header of one GGUF file."""

    version: int
    keys: Mapping[str, Value]
    tensors: tuple[TensorInfo, ...] = ()
    big_endian: bool = False
    complete: bool = True
    """False where only a prefix was read: keys after it and all tensors are missing then."""
    header_bytes: int | None = None
    """Where the tensor data begins; None for a prefix."""
    file_bytes: int | None = None
    """Size of the whole file, where the source says it."""
    warnings: tuple[str, ...] = field(default=())
    """What is odd but readable, one sentence each."""

    @property
    def architecture(self) -> str:
        """``general.architecture``, or an empty string."""
        value = self.keys.get("general.architecture")
        return value if isinstance(value, str) else ""

    @property
    def vocabulary(self) -> int | None:
        """Number of tokens in the tokenizer's list; None where the header has none."""
        value = self.keys.get("tokenizer.ggml.tokens")
        if isinstance(value, SkippedArray):
            return value.length
        return len(value) if isinstance(value, tuple) else None
