"""In which line of a TOML text a key stands: found by a quick scan, for error messages only."""

from __future__ import annotations

import re

from llmgw_core.catalog.findings import Path

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]#]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_WORD = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")


class LineIndex:
    """Lines of headers and keys. Odd texts may give a neighbouring line, never an error."""

    def __init__(self, text: str) -> None:
        self._lines: dict[Path, int] = {}
        self._counts: dict[Path, int] = {}
        here: Path = ()
        inside: str | None = None  # the quotes of a string that runs over several lines
        for number, line in enumerate(text.split("\n"), start=1):
            if inside is None:
                here = self._read(line, number, here)
            for quotes in ('"""', "'''"):
                if inside in (None, quotes) and line.count(quotes) % 2:
                    inside = None if inside else quotes

    def _read(self, line: str, number: int, here: Path) -> Path:
        header = _HEADER.fullmatch(line)
        if header:
            here = self._enter(_words(header[2]), is_array=header[1] == "[[")
            self._lines.setdefault(here, number)
        elif key := _KEY.match(line):
            path = here
            for word in _words(key[1]):
                path = (*path, word)
                self._lines.setdefault(path, number)
        return here

    def _enter(self, words: list[str], *, is_array: bool) -> Path:
        path: Path = ()
        for depth, word in enumerate(words, start=1):
            path = (*path, word)
            if is_array and depth == len(words):
                self._counts[path] = self._counts.get(path, 0) + 1
            if path in self._counts:
                path = (*path, self._counts[path] - 1)
        return path

    def line(self, path: Path) -> int | None:
        """The line of the deepest part of this path that could be found, or None."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return None


def _words(dotted: str) -> list[str]:
    return [word.strip("\"'") for word in _WORD.findall(dotted)]
