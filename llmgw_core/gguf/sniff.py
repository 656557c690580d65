"""What a file is that should be a GGUF and is not. Pure."""

from __future__ import annotations

MAGIC = b"GGUF"

_MAGICS: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs.github.com/spec/", "a Git-LFS pointer, not the file it points to"),
    (b"FUGG", "a GGUF file whose bytes were swapped"),
    (b"lmgg", "a GGML file, older than GGUF; convert the model again"),
    (b"fmgg", "a GGMF file, older than GGUF; convert the model again"),
    (b"tjgg", "a GGJT file, older than GGUF; convert the model again"),
    (b"PK\x03\x04", "a zip archive, perhaps a PyTorch checkpoint"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x1f\x8b", "compressed with gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"\xfd7zXZ\x00", "compressed with xz"),
    (b"BZh", "compressed with bzip2"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"\x7fELF", "a program"),
    (b"%PDF", "a PDF document"),
    (b"\x80\x02", "a Python pickle, perhaps a PyTorch checkpoint"),
    (b"\x80\x04", "a Python pickle"),
)


def what_it_is(start: bytes) -> str:
    """A few words for a file that does not begin with GGUF's magic, by its first bytes."""
    if not start:
        return "empty"
    for magic, words in _MAGICS:
        if start.startswith(magic):
            return words
    if not start.strip(b"\0"):
        return "nothing but zeros so far, as a download that was only given its room"
    # safetensors: the length of a JSON object, then the object
    if len(start) > 9 and start[8:9] == b"{" and int.from_bytes(start[:8], "little") < 1 << 40:
        return "a safetensors file"
    return _text(start[:1024])


def _text(start: bytes) -> str:
    low = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if low.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return "an HTML page, as servers send for errors and logins"
    if low.startswith((b"<?xml", b"<error")):
        return "an XML document, as object stores send for errors"
    if low.startswith((b"{", b"[")):
        return "a JSON document, as servers send for errors"
    if all(byte >= 32 or byte in b"\t\r\n" for byte in start) and start.isascii():
        return "a text file"
    return "something else"
