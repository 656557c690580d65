"""Typed reading of one TOML table: says everything that is wrong, and reads on. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar, overload

from llmgw_core.catalog.durations import parse_duration
from llmgw_core.catalog.findings import Finding, Findings, Place, bare, closest, listed, quoted

Choice = TypeVar("Choice", bound=StrEnum)

LARGEST = 2**53
"""Above this, JSON readers lose digits; nothing here counts that far."""


class Table:
    """One table. A value that cannot be used is reported and read as the default.

    Call ``done()`` once every key was asked for: it reports the keys that nobody asked for.
    """

    def __init__(
        self, raw: Mapping[str, object], place: Place, findings: Findings, prefix: str = ""
    ) -> None:
        self.raw = raw
        self.place = place
        self.findings = findings
        self.prefix = prefix
        """How sentences call this table's keys: ``scaling.`` for ``scaling.min``."""
        self.asked: list[str] = []

    def wrong(self, key: str, phrase: str) -> None:
        """Report a key: ``phrase`` goes on from its name."""
        self.report(key, f"{bare(self.prefix + key)} {phrase}")

    def report(self, key: str, sentence: str) -> None:
        """Report something about a key in a sentence of its own."""
        self.findings.append(Finding(sentence, self.place.at(key), self.prefix + key))

    def has(self, key: str) -> bool:
        """Whether the key is written out."""
        return key in self.raw

    def _get(self, key: str) -> object:
        self.asked.append(key)
        return self.raw.get(key)

    @overload
    def text(self, key: str, default: str, *, lines: bool = False) -> str: ...
    @overload
    def text(self, key: str, default: None = None, *, lines: bool = False) -> str | None: ...
    def text(self, key: str, default: str | None = None, *, lines: bool = False) -> str | None:
        """A string that is not empty, on one line unless ``lines``."""
        value = self._get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.wrong(key, "must be a string")
        elif not value.strip():
            self.wrong(key, "must not be empty")
        elif not lines and not value.isprintable():
            self.wrong(key, "must be one line of printable characters")
        elif value != value.strip() and not lines:
            self.wrong(key, f"must not begin or end with a space: {quoted(value)}")
        else:
            return value
        return default

    def flag(self, key: str, *, default: bool = False) -> bool:
        """true or false."""
        value = self._get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(key, "must be true or false")
            return default
        return value

    @overload
    def whole(
        self, key: str, default: int, *, least: int | None = 0, most: int = LARGEST
    ) -> int: ...
    @overload
    def whole(
        self, key: str, default: None = None, *, least: int | None = 0, most: int = LARGEST
    ) -> int | None: ...
    def whole(
        self, key: str, default: int | None = None, *, least: int | None = 0, most: int = LARGEST
    ) -> int | None:
        """A whole number within bounds; ``least`` None admits negative ones."""
        value = self._get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.wrong(key, "must be a whole number")
        elif self._within(key, value, -LARGEST if least is None else least, most):
            return value
        return default

    @overload
    def number(self, key: str, default: float) -> float: ...
    @overload
    def number(self, key: str, default: None = None) -> float | None: ...
    def number(self, key: str, default: float | None = None) -> float | None:
        """A number, whole or not, that is not negative."""
        value = self._get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.wrong(key, "must be a number")
        elif not math.isfinite(value) if isinstance(value, float) else False:
            self.wrong(key, "must be a finite number")
        elif self._within(key, value, 0, LARGEST):
            return float(value)
        return default

    def _within(self, key: str, value: int | float, least: int, most: int) -> bool:
        if value < least:
            said = f"not {value:g}" if abs(value) < LARGEST else "not less"
            rule = "must not be negative" if least == 0 else f"must be at least {least}"
            self.wrong(key, f"{rule}, {said}")
        elif value > most:
            self.wrong(key, f"is too large (at most {most})")
        else:
            return True
        return False

    @overload
    def seconds(self, key: str, default: float, *, zero: bool = True) -> float: ...
    @overload
    def seconds(self, key: str, default: None = None, *, zero: bool = True) -> float | None: ...
    def seconds(self, key: str, default: float | None = None, *, zero: bool = True) -> float | None:
        """A duration in seconds; with ``zero`` False it must be more than nothing."""
        value = self._get(key)
        if value is None:
            return default
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            self.wrong(key, str(error))
            return default
        if seconds > LARGEST or (seconds == 0 and not zero):
            self.wrong(key, "is too long" if seconds else "must be more than 0")
            return default
        return seconds

    def choice(self, key: str, default: Choice) -> Choice:
        """One of an enumeration's words."""
        value = self._get(key)
        if value is None:
            return default
        words = [str(word) for word in type(default)]
        if isinstance(value, str) and value in words:
            return type(default)(value)
        said = f", not {quoted(value)}" if isinstance(value, str) else ""
        hint = closest(value, words) if isinstance(value, str) else ""
        self.wrong(key, f"must be one of {listed(words)}{said}{hint}")
        return default

    def texts(self, key: str, *, numbers: bool = False) -> tuple[str, ...]:
        """A list of strings; with ``numbers``, numbers in it are taken as they are written."""
        value = self._get(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.wrong(key, "must be a list of strings")
            return ()
        found: list[str] = []
        for position, item in enumerate(value, start=1):
            text = _word(item) if numbers else item
            if not isinstance(text, str):
                self.report(key, f"item {position} of {key} must be a string")
            elif "\0" in text or not (numbers or (text.strip() == text != "")):
                self.report(key, f"item {position} of {key} is empty or not plain text")
            else:
                found.append(text)
        return tuple(found)

    def mapping(self, key: str) -> dict[str, str]:
        """A table of words, such as labels or environment variables. Values are never quoted."""
        table = self.table(key)
        found: dict[str, str] = {}
        for name, value in table.raw.items():
            word = _word(value)
            if word is None or "\0" in word:
                table.wrong(name, "must be a string")
            elif not name.strip():
                self.wrong(key, "has an empty name")
            else:
                found[name] = word
        return found

    def table(self, key: str) -> Table:
        """A table inside this one; empty where it is missing or no table."""
        value = self._get(key)
        if value is not None and not isinstance(value, dict):
            self.wrong(key, "must be a table")
        raw = value if isinstance(value, dict) else {}
        return Table(raw, self.place.at(key), self.findings, f"{self.prefix}{key}.")

    def tables(self, key: str) -> list[tuple[int, Mapping[str, object]]]:
        """The tables of a ``[[key]]`` list with their index; what is no table is reported."""
        value = self._get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.wrong(key, f"must be a list of tables, each headed [[{key}]]")
            return []
        found: list[tuple[int, Mapping[str, object]]] = []
        for index, item in enumerate(value):
            if isinstance(item, dict):
                found.append((index, item))
            else:
                self.report(key, f"item {index + 1} of {key} must be a table")
        return found

    def done(self) -> None:
        """Report every key that nobody asked for."""
        for key in self.raw:
            if key not in self.asked:
                hint = closest(key, self.asked) or f"; the keys are {', '.join(self.asked)}"
                self.report(key, f"unknown key {bare(self.prefix + key)}{hint}")


def _word(value: object) -> str | None:
    """A string, or a number or truth value as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) <= LARGEST:
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    return value if isinstance(value, str) else None
