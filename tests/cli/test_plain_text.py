"""Nothing from outside reaches a terminal, a log or a script so that it is obeyed or misread."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
import unicodedata
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.cli import logs
from llmgw_core.cli.views import to_line
from llmgw_core.errors import LlmgwError
from llmgw_core.log_lines import PlainFormatter
from llmgw_core.plain_text import escaped_json, plain, plain_lines, sanitise
from tests.cli.test_light import llmgw

EVIL = "\x1b[31m\0\r\n\u202e\u2028\x9b2J"
HARMLESS = "·[31m······2J"
TEXTS = st.text(st.characters(), max_size=40)


class Row(msgspec.Struct):
    text: str


def test_a_text_is_one_line_and_short() -> None:
    assert sanitise(EVIL) == HARMLESS
    assert sanitise("x" * 500) == "x" * 119 + "…"
    assert sanitise("Grüße 你好") == "Grüße 你好"
    assert len(sanitise("\x1b" * 1_000_000, most=64)) == 64
    assert plain_lines("a\tb\n\x1b\r\n") == "a\tb\n··\n"


@given(TEXTS, st.integers(1, 50))
def test_whatever_it_is(text: str, most: int) -> None:
    assert len(sanitise(text, most=most)) <= most
    for shown in (plain(text), sanitise(text, most=most), *plain_lines(text).split("\n")):
        assert not any(
            unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl") for c in shown if c != "\t"
        )
    assert plain(plain(text)) == plain(text)


@given(st.recursive(TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)))
def test_json_says_the_same(value: object) -> None:
    document = escaped_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(document) == value
    assert all(plain(line) == line for line in document.split("\n"))
    document.encode()  # also where there was half a character


PRINTS = f"""
from llmgw_core.cli.output import emit_json, emit_line, emit_table, narrate
evil = {EVIL!r}
emit_line(evil)
emit_table(["A"], [[evil]], "")
narrate("note: " + evil)
emit_json({{"text": evil}})
"""


def test_commands_print_it_harmless() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRINTS], capture_output=True, timeout=60, check=True
    )
    assert done.stderr.decode() == f"note: {HARMLESS}\n"
    line, head, cell, document = done.stdout.decode().split("\n", 3)
    assert (line, head, cell) == (HARMLESS, "A", HARMLESS)
    assert json.loads(document) == {"text": EVIL}
    assert plain(document.replace("\n", "")) == document.replace("\n", "")


def test_a_view_is_one_line_of_json() -> None:
    line = to_line(Row(EVIL))
    assert json.loads(line) == {"text": EVIL}
    assert plain(line) == line


@pytest.mark.parametrize("words", [("--json",), ()])
def test_a_header_that_would_steer_the_terminal_is_described(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    seed = Path(__file__).parent.parent / "gguf" / "seeds" / "escape_in_architecture"
    path = tmp_path / "evil.gguf"
    path.write_bytes(seed.read_bytes())
    done = llmgw(tmp_path, "run", "gguf", str(path), *words)
    assert done.returncode == 0, done.stderr
    assert "·lama.block_count" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_an_error_is_one_harmless_line(tmp_path: Path) -> None:
    done = llmgw(tmp_path, "run", "gguf", str(tmp_path / "no\x1b[2J\nsuch.gguf"))
    assert done.returncode == 3
    assert done.stderr.startswith("llmgw: there is no file ")
    assert "no·[2J·such.gguf" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_record_is_one_line_whatever_is_in_it() -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(PlainFormatter(logs.TEXT))
    log = logging.Logger("x")
    log.addHandler(handler)
    log.warning("mirror.missing path=%s", "a\n2026-01-01 INFO root all.well\x1b[2J")
    assert written.getvalue().endswith("path=a·2026-01-01 INFO root all.well·[2J\n")
    assert written.getvalue().count("\n") == 1
    try:
        raise LlmgwError(EVIL)
    except LlmgwError:
        log.exception("it.broke")
    assert "\n  File " in written.getvalue()
    assert plain(written.getvalue().replace("\n", "")) == written.getvalue().replace("\n", "")
