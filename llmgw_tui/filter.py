"""What a filter line means: ``word``, ``!word``, ``column:word``, ``-f letters``. Pure."""

from __future__ import annotations

from collections.abc import Mapping


def matches(cells: Mapping[str, str], query: str) -> bool:
    """Whether a row's cells (by column key) satisfy every word of the query, case ignored."""
    words = query.split()
    lowered = {key: text.lower() for key, text in cells.items()}
    line = " ".join(lowered.values())
    fuzzy = False
    for word in words:
        if word == "-f":
            fuzzy = True
            continue
        wanted, word = not word.startswith("!"), word.removeprefix("!").lower()
        if word and _holds(lowered, line, word, fuzzy=fuzzy) is not wanted:
            return False
    return True


def _holds(cells: Mapping[str, str], line: str, word: str, *, fuzzy: bool) -> bool:
    column, colon, value = word.partition(":")
    if colon and column in cells:
        return value in cells[column]
    if not fuzzy:
        return word in line
    letters = iter(line)
    return all(letter in letters for letter in word)
