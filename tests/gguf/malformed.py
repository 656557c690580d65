"""Files that are wrong, by name: what is wrong with each, and words that its error must have.

None instead of words where the file can be read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from llmgw_core.gguf.parse import Type
from tests.gguf.writer import File, array, base, good, numbers, text, texts

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
NESTED = array(Type.ARRAY, 1)


def with_value(kind: int, value: bytes) -> bytes:
    return bytes(base().raw("x", kind, value))


def with_tensor(*args: object, **kwargs: object) -> bytes:
    file = base(data=bytes(4096))
    return bytes(file.tensor(*args, **kwargs))


def aligned(kind: Type, value: int) -> bytes:
    return bytes(good().add("general.alignment", value, kind))


def bomb(depth: int, count: int) -> bytes:
    return array(Type.ARRAY, count, bomb(depth - 1, count)) if depth else array(Type.UINT8, 0)


def layers(value: int, kind: Type) -> bytes:
    return bytes(File().add("general.architecture", "llama").add("llama.block_count", value, kind))


CASES: dict[str, tuple[Callable[[], bytes], str | None]] = {
    "good": (lambda: bytes(good()), None),
    "empty_file": (lambda: b"", "it is empty"),
    "4_bytes_magic_only": (lambda: b"GGUF", "cut"),
    "23_bytes": (lambda: bytes(good())[:23], "cut"),
    "not_gguf_html": (lambda: b"<!DOCTYPE html><html>404</html>", "HTML page"),
    "not_gguf_json": (lambda: b'{"error": "not found"}', "JSON"),
    "not_gguf_xml": (lambda: b'<?xml version="1.0"?><Error/>', "XML"),
    "lfs_pointer": (lambda: LFS, "Git-LFS pointer"),
    "safetensors": (lambda: struct.pack("<Q", 300) + b'{"__metadata__":{}}', "safetensors"),
    "zip": (lambda: b"PK\x03\x04" + bytes(100), "zip"),
    "ggml": (lambda: b"tjgg" + bytes(100), "older than GGUF"),
    "zeros": (lambda: bytes(4096), "zeros"),
    "swapped_magic": (lambda: b"FUGG" + bytes(100), "swapped"),
    "noise": (lambda: b"\x91\x00\xfe" * 99, "something else"),
    "truncated_in_kv": (lambda: good().head()[:100], "cut"),
    "truncated_in_tensor_info": (lambda: good().head()[:-10], "cut"),
    "header_only_no_weights": (lambda: good().head(), "cut"),
    "weights_half": (lambda: bytes(good())[:-400], "cut"),
    "version_0": (lambda: bytes(good(version=0)), "version 0"),
    "version_1": (lambda: bytes(good(version=1)), "version 1"),
    "version_2": (lambda: bytes(good(version=2)), None),
    "version_99": (lambda: bytes(good(version=99)), "version 99"),
    "big_endian_v1": (lambda: bytes(good(">", version=1)), "version 1"),
    "big_endian_v3": (lambda: bytes(good(">")), None),
    "kv_count_2^63": (lambda: bytes(base(key_count=1 << 63)), "keys"),
    "kv_count_1e9": (lambda: bytes(base(key_count=10**9)), "keys"),
    "kv_count_1e4": (lambda: bytes(base(key_count=10**4)), "keys"),
    "tensor_count_2^63": (lambda: bytes(base(tensor_count=1 << 63)), "tensors"),
    "tensor_count_6e4": (lambda: bytes(base(tensor_count=60_000)), "tensors"),
    "key_len_2^63": (lambda: File(keys=[text("x", length=1 << 63) + bytes(8)]).head(), "key"),
    "key_len_2^63-1": (lambda: File(keys=[text("x", length=(1 << 63) - 1) + bytes(8)]).head(), "k"),
    "key_len_2^64-1": (lambda: File(keys=[text("x", length=(1 << 64) - 1) + bytes(8)]).head(), "k"),
    "str_len_2^63": (lambda: with_value(Type.STRING, text("x", length=1 << 63)), "“x”"),
    "str_len_4GiB": (lambda: with_value(Type.STRING, text("x", length=1 << 32)), "“x”"),
    "str_len_past_eof": (lambda: with_value(Type.STRING, text("abc", length=100)), "“x”"),
    "arr_u8_len_2^63": (lambda: with_value(Type.ARRAY, array(Type.UINT8, 1 << 63)), "“x”"),
    "arr_u8_len_1e9": (lambda: with_value(Type.ARRAY, array(Type.UINT8, 10**9)), "“x”"),
    "arr_f64_len_2^61": (lambda: with_value(Type.ARRAY, array(Type.FLOAT64, 1 << 61)), "“x”"),
    "arr_str_len_2^63": (lambda: with_value(Type.ARRAY, array(Type.STRING, 1 << 63)), "“x”"),
    "arr_str_len_1e6": (lambda: with_value(Type.ARRAY, array(Type.STRING, 10**6)), "“x”"),
    "arr_str_element_2^64-1": (
        lambda: with_value(
            Type.ARRAY, array(Type.STRING, 5000, text("", length=(1 << 64) - 1) + bytes(40_000))
        ),
        "“x”",
    ),
    "arr_nested_empty_2^62": (
        lambda: with_value(Type.ARRAY, array(Type.ARRAY, 1 << 62)),
        "list of lists",
    ),
    "arr_nested_depth_2000": (lambda: with_value(Type.ARRAY, NESTED * 2000), "list of lists"),
    "arr_nested_bomb_depth8_x16": (lambda: with_value(Type.ARRAY, bomb(8, 16)), "list of lists"),
    "arr_bad_elem_type_77": (lambda: with_value(Type.ARRAY, array(77, 1)), "type 77"),
    "bad_value_type_77": (lambda: with_value(77, bytes(8)), "type 77"),
    "dup_key": (lambda: bytes(good().add("general.name", "B")), "twice"),
    "empty_key": (lambda: bytes(good().add("", 1)), None),
    "key_not_utf8": (lambda: bytes(good().raw(b"\xff\xfe", Type.UINT8, b"\1")), None),
    "value_not_utf8": (lambda: with_value(Type.STRING, text(b"caf\xe9")), None),
    "value_nul_and_ansi": (
        lambda: with_value(Type.STRING, text("\x1b[31mred\x1b[0m\0\r\n\u202eevil")),
        None,
    ),
    "alignment_0": (lambda: aligned(Type.UINT32, 0), "alignment"),
    "alignment_negative": (lambda: aligned(Type.INT32, -32), "alignment"),
    "alignment_3": (lambda: aligned(Type.UINT32, 3), "alignment"),
    "alignment_string": (lambda: bytes(good().add("general.alignment", "\x1b32")), "alignment"),
    "alignment_2^31": (lambda: aligned(Type.UINT32, 1 << 31), "alignment|cut"),
    "tensor_ndims_2^32-1": (lambda: with_tensor("t", dimensions=(1 << 32) - 1), "dimensions"),
    "tensor_ndims_1e6": (lambda: with_tensor("t", dimensions=10**6), "dimensions"),
    "tensor_ndims_5": (lambda: with_tensor("t", (1, 1, 1, 1, 1)), "dimensions"),
    "tensor_ndims_0": (lambda: with_tensor("t", ()), None),
    "tensor_dim_0": (lambda: with_tensor("t", (0,)), None),
    "tensor_dims_overflow": (
        lambda: with_tensor("t", (0x0000C00000000012, 0x3FFFFD, 0x3FFFFD)),
        "memory",
    ),
    "tensor_dim_2^62": (lambda: with_tensor("t", (1 << 62,)), "cut|memory"),
    "tensor_dim_2^64-1": (lambda: with_tensor("t", ((1 << 64) - 1, 0)), "memory"),
    "tensor_type_unknown_200": (lambda: with_tensor("t", kind=200), None),
    "tensor_type_removed_4_Q4_2": (lambda: with_tensor("t", kind=4), None),
    "tensor_offset_2^63": (lambda: with_tensor("t", offset=1 << 63), "memory"),
    "tensor_offset_2^40": (lambda: with_tensor("t", offset=1 << 40), "cut"),
    "tensor_offset_odd": (lambda: with_tensor("t", offset=33), "alignment"),
    "tensor_dup_name": (
        lambda: bytes(base(data=bytes(512)).tensor("t").tensor("t", offset=128)),
        "twice",
    ),
    "tensor_qk_not_div_32": (lambda: with_tensor("t", (31,), 8), "multiple of 32"),
    "tensor_name_2^40": (
        lambda: bytes(base(tensors=[text("t", length=1 << 40) + bytes(32)])),
        "tensor 1 of 1",
    ),
    "blockcount_string": (
        lambda: bytes(File().add("general.architecture", "llama").add("llama.block_count", "x")),
        None,
    ),
    "blockcount_negative_i32": (lambda: layers(-5, Type.INT32), None),
    "blockcount_4e9": (lambda: layers(4_000_000_000, Type.UINT32), None),
    "many_short_lists": (
        lambda: bytes(
            File(
                keys=[
                    text(f"k{n}") + struct.pack("<I", Type.ARRAY) + numbers(Type.UINT8, [0] * 4096)
                    for n in range(400)
                ]
            )
        ),
        "4 MiB",
    ),
    "many_long_texts": (
        lambda: bytes(
            File(
                keys=[
                    text(f"k{n}") + struct.pack("<I", Type.STRING) + text(b"x" * (1 << 20))
                    for n in range(5)
                ]
            )
        ),
        "4 MiB",
    ),
    "list_of_one_long_text": (
        lambda: with_value(Type.ARRAY, texts(["x" * 200_000, "y"])),
        None,
    ),
}
