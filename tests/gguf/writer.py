"""GGUF files for tests, byte by byte: good ones, and any lie that a header can tell."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from llmgw_core.gguf.parse import Type

CODES = {
    Type.UINT8: "B",
    Type.INT8: "b",
    Type.UINT16: "H",
    Type.INT16: "h",
    Type.UINT32: "I",
    Type.INT32: "i",
    Type.FLOAT32: "f",
    Type.BOOL: "?",
    Type.UINT64: "Q",
    Type.INT64: "q",
    Type.FLOAT64: "d",
}


def text(value: str | bytes, order: str = "<", *, length: int | None = None) -> bytes:
    """A string; its length is what it is, unless another is claimed."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(data) if length is None else length) + data


def array(kind: int, count: int, data: bytes = b"", order: str = "<") -> bytes:
    """An array that claims so many elements."""
    return struct.pack(order + "IQ", kind, count) + data


def texts(values: Sequence[str | bytes], order: str = "<") -> bytes:
    """An array of strings."""
    return array(Type.STRING, len(values), b"".join(text(v, order) for v in values), order)


def numbers(kind: Type, values: Sequence[float], order: str = "<") -> bytes:
    """An array of numbers."""
    data = struct.pack(f"{order}{len(values)}{CODES[kind]}", *values)
    return array(kind, len(values), data, order)


def tensor(
    name: str | bytes,
    shape: Sequence[int] = (32,),
    kind: int = 0,
    offset: int = 0,
    *,
    dimensions: int | None = None,
    order: str = "<",
) -> bytes:
    """A tensor's entry; as many dimensions as the shape has, unless others are claimed."""
    count = len(shape) if dimensions is None else dimensions
    head = text(name, order) + struct.pack(order + "I", count)
    return head + struct.pack(f"{order}{len(shape)}QIQ", *shape, kind, offset)


@dataclass
class File:
    """A file in the making; ``bytes(file)`` is what would lie on the disk."""

    order: str = "<"
    version: int = 3
    magic: bytes = b"GGUF"
    alignment: int = 32
    key_count: int | None = None
    tensor_count: int | None = None
    data: bytes = b""
    keys: list[bytes] = field(default_factory=list)
    tensors: list[bytes] = field(default_factory=list)

    def raw(self, key: str | bytes, kind: int, value: bytes) -> File:
        """A key whose value is given as bytes."""
        self.keys.append(text(key, self.order) + struct.pack(self.order + "I", kind) + value)
        return self

    def add(self, key: str, value: str | bool | int | float, kind: Type = Type.UINT32) -> File:
        """A key with a value of its own type; ``kind`` for whole numbers."""
        if isinstance(value, str):
            return self.raw(key, Type.STRING, text(value, self.order))
        if isinstance(value, bool):
            kind = Type.BOOL
        elif isinstance(value, float):
            kind = Type.FLOAT32
        return self.raw(key, kind, struct.pack(self.order + CODES[kind], value))

    def tensor(self, *args: object, **kwargs: object) -> File:
        """A tensor's entry, as ``tensor`` makes it."""
        self.tensors.append(tensor(*args, order=self.order, **kwargs))  # type: ignore[arg-type]
        return self

    def head(self) -> bytes:
        """The header without its padding."""
        tensor_count = len(self.tensors) if self.tensor_count is None else self.tensor_count
        key_count = len(self.keys) if self.key_count is None else self.key_count
        start = self.magic + struct.pack(self.order + "IQQ", self.version, tensor_count, key_count)
        return start + b"".join(self.keys) + b"".join(self.tensors)

    def __bytes__(self) -> bytes:
        head = self.head()
        return head + b"\0" * (-len(head) % self.alignment) + self.data


def base(order: str = "<", **kwargs: object) -> File:
    """The keys that every model has, in their usual order."""
    file = File(order=order, **kwargs)  # type: ignore[arg-type]
    file.add("general.architecture", "llama").add("general.name", "A model")
    for key, value in (
        ("block_count", 2),
        ("context_length", 4096),
        ("embedding_length", 64),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
    ):
        file.add(f"llama.{key}", value)
    return file


def good(order: str = "<", **kwargs: object) -> File:
    """A small model: keys, a vocabulary, two tensors with their data."""
    file = base(order, **kwargs)
    file.add("tokenizer.ggml.model", "gpt2")
    file.raw("tokenizer.ggml.tokens", Type.ARRAY, texts(["a", "b", "<eos>"], order))
    file.raw("tokenizer.ggml.scores", Type.ARRAY, numbers(Type.FLOAT32, [0.5, 1, 2], order))
    file.add("general.file_type", 15)
    file.tensor("token_embd.weight", (64, 3), 0, 0).tensor("blk.0.x", (64,), 8, 768)
    file.data = bytes(768 + 96)
    return file


@lru_cache(maxsize=4)
def vocabulary(tokens: int, *, mean: int = 7, merges: int = 0, tensors: int = 100) -> bytes:
    """A header with a vocabulary of that many tokens, as large as a real one."""
    file = base()
    file.add("tokenizer.ggml.model", "llama")
    words = [f"{n:x}".rjust(1 + n * 7919 % (2 * mean), "x") for n in range(tokens)]
    file.raw("tokenizer.ggml.tokens", Type.ARRAY, texts(words))
    file.raw("tokenizer.ggml.scores", Type.ARRAY, array(Type.FLOAT32, tokens, bytes(4 * tokens)))
    file.raw("tokenizer.ggml.token_type", Type.ARRAY, array(Type.INT32, tokens, bytes(4 * tokens)))
    if merges:
        pairs = [f"{words[n % tokens]} {n:x}" for n in range(merges)]
        file.raw("tokenizer.ggml.merges", Type.ARRAY, texts(pairs))
    file.add("tokenizer.chat_template", "{% for m in messages %}" + "x" * 3000)
    file.add("general.file_type", 7)
    for number in range(tensors):
        file.tensor(f"blk.{number // 9}.some_{number % 9}.weight", (32, 32), 0, number * 4096)
    file.data = bytes(tensors * 4096)
    return bytes(file)
