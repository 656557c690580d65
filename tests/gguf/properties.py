"""What must hold for any bytes at all, for the fuzzers."""

from __future__ import annotations

from dataclasses import asdict

from llmgw_core.gguf.errors import HeaderError
from llmgw_core.gguf.facts import GgufFacts, facts
from llmgw_core.gguf.header import Header
from llmgw_core.gguf.hyper import HeaderUnusable, hyper
from llmgw_core.gguf.memory import Settings, estimate
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
        _facts(facts(found))
        _hyper(found)
    _pieces(data, step, found)
    _prefix(data)
    return found


def _facts(told: GgufFacts) -> None:
    for name, value in asdict(told).items():
        if isinstance(value, str) and name != "chat_template":
            _one_line(value)


def _hyper(header: Header) -> None:
    """What is said of a shape, usable or not."""
    try:
        shape = hyper(header)
    except HeaderUnusable as error:
        _one_line(str(error))
    else:
        _one_line(estimate(shape, 1 << 30, Settings(ctx=4096, parallel=1, unified=True)).basis)


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
