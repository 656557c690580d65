"""Values that must not be shown: what looks like a secret is replaced before it leaves. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "•••"
"""Stands for a value that must not be shown."""

_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
_OPTION = re.compile(r"--?(?:[\w-]*[-_])?(?:api[-_]?key|token|secret|password)", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/\s]*(?=@)")
_QUERY = re.compile(r"(?<=\?).*", re.DOTALL)


def masked_env(env: Mapping[str, str]) -> dict[str, str]:
    """Environment variables, the values of those that look like secrets hidden."""
    return {name: HIDDEN if _NAME.search(name) else value for name, value in env.items()}


def masked_args(args: tuple[str, ...]) -> tuple[str, ...]:
    """Arguments, with what follows an option for a key, token or password hidden."""
    shown: list[str] = []
    hide_next = False
    for arg in args:
        option, equals, _ = arg.partition("=")
        if hide_next:
            shown.append(HIDDEN)
        elif equals and _OPTION.fullmatch(option):
            shown.append(f"{option}={HIDDEN}")
        else:
            shown.append(arg)
        hide_next = not hide_next and _OPTION.fullmatch(arg) is not None
    return tuple(shown)


def masked_source(source: str) -> str:
    """A source, with the user and the query of a URL hidden: links signed for a day are secrets."""
    if "://" not in source:
        return source
    return _USER_INFO.sub(HIDDEN, _QUERY.sub(HIDDEN, source))
