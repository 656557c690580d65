"""A GGUF header as a state machine: it says which bytes it needs, and is given them. No I/O.

No table of a vocabulary is kept or copied: arrays of numbers are passed over by arithmetic, those
of strings from length to length. Whatever a file says of its own sizes is compared with what is
left of it, and with ``limits``, before anything is set aside for it.

The layout is GGUF's versions 2 and 3: magic, version, number of tensors, number of keys, the keys
with their types and values, the tensors' entries, padding up to the alignment, the data.
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from enum import IntEnum

from llmgw_core.gguf import limits, tensors
from llmgw_core.gguf.cursor import Cursor, Need, PrefixEnds
from llmgw_core.gguf.errors import HeaderError
from llmgw_core.gguf.header import Header, Scalar, SkippedArray, TensorInfo, Value
from llmgw_core.gguf.sniff import MAGIC, what_it_is
from llmgw_core.plain_text import sanitise

__all__ = ["HeaderParser", "Need", "Steps", "Type"]

_START = 24
"""Bytes: magic, version, two counts."""
_KEY_LEAST = 13
"""Bytes: length of the name, type, one byte of value."""
_KEY_USUAL = 56
_TENSOR_LEAST = 24
"""Bytes: length of the name, number of dimensions, type, offset."""
_TENSOR_USUAL = 64
_STRING_USUAL = 16
_ALIGNMENT = 32
"""Where ``general.alignment`` does not say."""


class Type(IntEnum):
    """Types of values, as they are numbered in the file."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


_CODES = {
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

Steps = Generator[Need, bytes, Header]


class HeaderParser(Cursor):
    """Reads one header. ``run`` makes the steps; set ``file_bytes`` as soon as it is known.

    Args:
        name: of the file, for messages.
        file_bytes: size of the whole file, where it is known.
        whole: False to stop with the first bytes where they hold the architecture's keys; whether
            the weights are all there is not looked at then.
    """

    def __init__(self, name: str, *, file_bytes: int | None = None, whole: bool = True) -> None:
        super().__init__(name, file_bytes)
        self._whole = whole
        self._version = 0
        self._values: dict[str, Value] = {}
        self._kept = 0
        self._strings = 0
        self._strings_left = 0
        self._string_bytes: float = _STRING_USUAL
        self._keys_left = 0
        self._tensors_left = 0
        self._tensor_bytes: float = _TENSOR_USUAL
        self._odd: dict[str, str] = {}

    def run(self) -> Steps:
        """The steps, in order: yields what is needed, is sent the bytes, returns the header.

        Raises:
            HeaderError: the file is no GGUF, or is cut or damaged; one sentence says how.
        """
        try:
            yield from self._counts()
            while self._keys_left:
                self._keys_left -= 1
                yield from self._key()
            self.enough = not self._whole
            infos = yield from self._tensor_infos(self._tensors_left)
        except PrefixEnds:
            return self._header(None, self.at)
        alignment = self._alignment()
        start = -(-self.at // alignment) * alignment if infos else self.at
        # a download under way has its keys already, and may be asked for them
        end = self.file_bytes if self._whole else None
        odd = tensors.check(self.name, infos, alignment=alignment, start=start, file_bytes=end)
        self._odd.update((text, text) for text in odd)
        return self._header(infos, start)

    def likely_rest(self) -> int:
        """See ``Cursor``: the list that is being walked, and what was counted at the start."""
        return int(
            self._strings_left * self._string_bytes
            + self._keys_left * _KEY_USUAL
            + self._tensors_left * self._tensor_bytes
        )

    def _header(self, infos: tuple[TensorInfo, ...] | None, start: int) -> Header:
        return Header(
            version=self._version,
            keys=self._values,
            tensors=infos or (),
            big_endian=self.order == ">",
            complete=infos is not None,
            header_bytes=None if infos is None else start,
            file_bytes=self.file_bytes,
            warnings=tuple(self._odd.values()),
        )

    def _counts(self) -> Generator[Need, bytes, None]:
        """The first 24 bytes."""
        data = yield from self.first(_START)
        if not data.startswith(MAGIC):
            raise HeaderError(f"{self.name} is no GGUF file: it is {what_it_is(data)}")
        if len(data) < _START:
            raise self.cut("its start", _START, len(data))
        self._version = self._checked_version(data[4:8])
        self._tensors_left, self._keys_left = struct.unpack_from(self.order + "QQ", data, 8)
        for count, most, least, what in (
            (self._keys_left, limits.KEYS_MOST, _KEY_LEAST, "keys"),
            (self._tensors_left, limits.TENSORS_MOST, _TENSOR_LEAST, "tensors"),
        ):
            if count > most:
                raise self.wrong(f"it says it has {count} {what}, and {most} are the most")
            self.fits(count * least, f"its list of {count} {what}")

    def _checked_version(self, raw: bytes) -> int:
        version = int.from_bytes(raw, "little")
        if version and not version & 0xFFFF:
            self.order = ">"
            version = int.from_bytes(raw, "big")
            self._odd["order"] = "It is big-endian, which llama.cpp refuses on most machines"
        if version == 1:
            raise HeaderError(
                f"{self.name} is of GGUF's version 1, which llama.cpp reads no more; "
                "convert the model again"
            )
        if version not in (2, 3):
            raise HeaderError(
                f"{self.name} says it is of GGUF's version {version}, and 2 and 3 can be read; "
                "it is newer than this llmgw, or damaged"
            )
        return version

    # --- keys

    def _key(self) -> Generator[Need, bytes, None]:
        raw = yield from self._name("the name of a key")
        key = self._decoded(raw, "the name of a key")
        what = f"the value of “{sanitise(key)}”"
        if not key:
            self._odd["empty"] = "It has a key without a name"
        if key in self._values:
            raise self.wrong(f"the key “{sanitise(key)}” stands in it twice")
        self._keep(len(raw) + 64, what)
        # before the next bytes: what follows the architecture's keys is the tokenizer
        self.enough = self.enough or (not self._whole and self._has_architecture(key))
        kind = self._known((yield from self.number("I", what)), what)
        if kind is Type.STRING:
            self._values[key] = yield from self._string(what)
        elif kind is Type.ARRAY:
            yield from self._array(key, what)
        else:
            code = _CODES[kind]
            data = yield from self.take(struct.calcsize(code), what)
            self._values[key] = struct.unpack(self.order + code, data)[0]

    def _has_architecture(self, key: str) -> bool:
        arch = self._values.get("general.architecture")
        return key.startswith("tokenizer.") and all(
            f"{arch}.{name}" in self._values for name in ("block_count", "embedding_length")
        )

    def _known(self, number: int, what: str) -> Type:
        try:
            return Type(number)
        except ValueError:
            raise self.wrong(f"{what} has the type {number}, which does not exist") from None

    def _name(self, what: str) -> Generator[Need, bytes, bytes]:
        length = yield from self.number("Q", what)
        if length > limits.NAME_MOST:
            raise self.wrong(f"{what} would be {length} bytes long")
        return (yield from self.take(length, what))

    def _string(self, what: str) -> Generator[Need, bytes, str]:
        length = yield from self.number("Q", what)
        self.fits(length, what)
        kept = min(length, limits.STRING_KEPT_BYTES)
        self._keep(kept, what)
        data = yield from self.take(kept, what)
        if kept < length:
            self.skip(length - kept, what)
            self._odd["long"] = f"{_capital(what)} has {length} bytes, and {kept} of them were read"
        return self._decoded(data, what)

    def _array(self, key: str, what: str) -> Generator[Need, bytes, None]:
        kind = self._known((yield from self.number("I", what)), what)
        count = yield from self.number("Q", what)
        # also where the prefix ends within it: how many there are is known
        self._values[key] = SkippedArray(count)
        if kind is Type.ARRAY:
            raise self.wrong(f"{what} is a list of lists, which no engine reads")
        if kind is Type.STRING:
            self._strings += count
            if self._strings > limits.STRINGS_MOST:
                raise self.wrong(f"{what} would be a list of {count} texts")
            self.fits(count * 8, f"{what}, a list of {count} texts,")
            yield from self._texts(key, count, what)
            return
        code = _CODES[kind]
        size = count * struct.calcsize(code)
        self.fits(size, f"{what}, a list of {count} numbers,")
        if count > limits.ARRAY_KEPT_MOST:
            self.skip(size, what)
            return
        self._keep(8 * count, what)
        data = yield from self.take(size, what)
        self._values[key] = struct.unpack(f"{self.order}{count}{code}", data)

    def _texts(self, key: str, count: int, what: str) -> Generator[Need, bytes, None]:
        """An array of strings: kept where it is short, else passed over."""
        left = count
        if count <= limits.ARRAY_KEPT_MOST:
            texts: list[Scalar] = []
            room = limits.STRINGS_KEPT_BYTES
            while left and room > 0:
                left -= 1
                length = yield from self.number("Q", what)
                room -= length
                if room > 0:
                    data = yield from self.take(length, what)
                    texts.append(self._decoded(data, what))
                else:
                    self.skip(length, what)
            if room > 0:
                self._keep(limits.STRINGS_KEPT_BYTES - room + 64 * count, what)
                self._values[key] = tuple(texts)
        yield from self._pass_over(left, what)

    def _pass_over(self, count: int, what: str) -> Generator[Need, bytes, None]:
        begun = self.at
        self._string_bytes = _STRING_USUAL
        self._strings_left = count
        while self._strings_left:
            self._strings_left -= yield from self.walk(self._strings_left, what)
            done = count - self._strings_left
            self._string_bytes = (self.at - begun) / done if done else _STRING_USUAL

    # --- tensors

    def _alignment(self) -> int:
        value = self._values.get("general.alignment", _ALIGNMENT)
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            shown = sanitise(repr(value), most=40)
            raise self.wrong(f"its general.alignment is {shown}, and not a positive number")
        if value & (value - 1):
            raise self.wrong(f"its general.alignment is {value}, which is no power of two")
        return value

    def _tensor_infos(self, count: int) -> Generator[Need, bytes, tuple[TensorInfo, ...]]:
        begun = self.at
        found: dict[str, TensorInfo] = {}
        while self._tensors_left:
            number = len(found) + 1
            info = yield from self._tensor(f"the entry of tensor {number} of {count}")
            if info.name in found:
                raise self.wrong(f"the tensor “{sanitise(info.name)}” stands in it twice")
            found[info.name] = info
            self._tensors_left -= 1
            self._tensor_bytes = (self.at - begun) / number
            if self.at - begun > limits.TENSORS_KEPT_MOST:
                raise self.wrong(f"its list of {count} tensors is longer than any")
        return tuple(found.values())

    def _tensor(self, what: str) -> Generator[Need, bytes, TensorInfo]:
        raw = yield from self._name(what)
        name = self._decoded(raw, what)
        if len(raw) > limits.GGML_NAME_MOST:
            self._odd["name"] = "It has tensors whose names are too long for llama.cpp"
        dimensions = yield from self.number("I", what)
        if dimensions > limits.DIMENSIONS_MOST:
            raise self.wrong(f"the tensor “{sanitise(name)}” would have {dimensions} dimensions")
        data = yield from self.take(8 * dimensions + 12, what)
        *shape, kind, offset = struct.unpack(f"{self.order}{dimensions}QIQ", data)
        info = TensorInfo(name, tuple(shape), kind, offset)
        if max(info.elements, *shape, offset) > limits.ELEMENTS_MOST:
            raise self.wrong(f"the tensor “{sanitise(name)}” would be larger than any memory")
        return info

    # --- what is kept

    def _keep(self, count: int, what: str) -> None:
        self._kept += count
        if self._kept > limits.KEPT_MOST:
            raise self.wrong(f"with {what} its keys take more than {limits.KEPT_MOST >> 20} MiB")

    def _decoded(self, data: bytes, what: str) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            if len(data) == limits.STRING_KEPT_BYTES and error.start > len(data) - 4:
                return data[: error.start].decode()  # cut there by us
            self._odd["text"] = f"{_capital(what)} is not UTF-8"
            return data.decode(errors="backslashreplace")


def _capital(what: str) -> str:
    return what[:1].upper() + what[1:]
