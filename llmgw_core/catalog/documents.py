"""TOML files: read within bounds, and findings put to their file and line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from llmgw_core.catalog.findings import Finding
from llmgw_core.catalog.lines import LineIndex
from llmgw_core.catalog.model import CatalogProblem

LARGEST_FILE = 16 * 1024 * 1024

_POSITION = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")


@dataclass(frozen=True, slots=True)
class Document:
    """One TOML text, what it holds (None where it does not parse), and what is wrong with it."""

    file: str | None
    text: str
    table: Mapping[str, object] | None
    problem: CatalogProblem | None = None

    def problems(self, findings: Iterable[Finding]) -> list[CatalogProblem]:
        """The findings with file and line, in the order of their lines."""
        index = LineIndex(self.text)
        found = [(index.line(finding.place.path), finding) for finding in findings]
        found.sort(key=lambda pair: pair[0] or 0)
        return [finding.problem(self.file, line) for line, finding in found]


def read_document(path: Path) -> Document:
    """Read a TOML file; what keeps it from being read becomes the document's problem."""
    file = str(path)
    try:
        with path.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            return _bad(file, f"is larger than {LARGEST_FILE // 2**20} MiB: not a file of llmgw's")
        return parse_document(content.decode(), file)
    except FileNotFoundError:
        return _bad(file, "there is no such file")
    except OSError as error:
        return _bad(file, f"cannot be read: {error.strerror or error}")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        return _bad(file, f"line {line}: not UTF-8 text; TOML files must be")


def parse_document(text: str, file: str | None = None) -> Document:
    """Parse a TOML text; a syntax error becomes the document's problem, with its line."""
    try:
        text.encode()  # a lone surrogate could be read, but never be written again
        # tomllib.load does the same for files; tomllib.loads leaves it to us
        table = tomllib.loads(text.replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        return _bad(file, _syntax(str(error), text), text)
    except RecursionError:
        return _bad(file, "not valid TOML: nested too deeply", text)
    except ValueError:  # a number of thousands of digits, an impossible date
        return _bad(file, "not valid TOML: a number or date in it is out of range", text)
    return Document(file, text, table)


def _syntax(message: str, text: str) -> str:
    position = _POSITION.search(message)
    said = message[: position.start()] if position else message
    said = said[:1].lower() + said[1:]
    if position and position[1]:
        return f"line {position[1]}, column {position[2]}: not valid TOML: {said}"
    last = text.rstrip().count("\n") + 1
    return f"line {last}: not valid TOML: {said} at the end of the file"


def _bad(file: str | None, message: str, text: str = "") -> Document:
    return Document(file, text, None, CatalogProblem(message, file=file))
