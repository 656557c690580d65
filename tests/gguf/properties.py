"""What must hold for any bytes at all, for the fuzzers."""

from __future__ import annotations

from contextlib import suppress

from llmgw_core.gguf.errors import HeaderError
from llmgw_core.gguf.facts import facts
from llmgw_core.gguf.header import Header
from llmgw_core.gguf.hyper import HeaderUnusable, hyper
from tests.gguf.reading import Bytes, parse, parse_in_steps

SAID_MOST = 600


def outcome(data: bytes) -> Header | str:
    """The header, or the sentence; any other exception is a finding."""
    try:
        return parse(data)
    except HeaderError as error:
        return str(error)


def check(data: bytes, *, step: int = 7) -> Header | str:
    """Assert all of it; returns what came of the bytes."""
    found = outcome(data)
    if isinstance(found, str):
        _one_line(found)
    else:
        assert found.complete
        for warning in found.warnings:
            _one_line(warning)
        facts(found)
        with suppress(HeaderUnusable):
            hyper(found)
    _pieces(data, step, found)
    _prefix(data)
    return found


def _one_line(said: str) -> None:
    assert said.isprintable(), said
    assert len(said) < SAID_MOST


def _pieces(data: bytes, step: int, found: Header | str) -> None:
    """However it is cut into pieces, the same comes of it."""
    again: Header | str
    try:
        again = parse_in_steps(data, step)
    except HeaderError as error:
        again = str(error)
    if isinstance(found, str) and "is no GGUF file" in found:
        # from fewer bytes one cannot tell as well what it is instead
        assert "is no GGUF file" in str(again)
    else:
        assert again == found or "nan" in repr(found)  # which does not equal itself


def _prefix(data: bytes) -> None:
    """A prefix may be good where the whole is not, and never has an error of another kind."""
    for tells_size in (True, False):
        source = Bytes(data, tells_size=tells_size)
        try:
            facts(parse(source.data, whole=False, tells_size=tells_size))
        except HeaderError:
            continue
