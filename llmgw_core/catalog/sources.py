"""What a model's source means: where its weights come from. Pure.

``mirror:MODEL/VERSION[/FILE]``, ``hf:ORG/REPO[@REV][:FILE]``, ``http(s)://…``, or a path on the
node. A slash after ``mirror:`` changes nothing; a slash at the end means the whole folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

_MIRROR = re.compile(r"mirror:/?([^/\s]+)/([^/\s]+)(?:/(.*))?")
_HUB = re.compile(r"hf:([^/\s:@]+/[^/\s:@]+)(?:@([^\s:]+))?(?::(\S.*))?")


@dataclass(frozen=True, slots=True)
class MirrorSource:
    """A version in the mirror, or one file of it."""

    model: str
    version: str
    file: str = ""
    """Empty for the whole version."""

    @property
    def key(self) -> str:
        """``MODEL/VERSION``."""
        return f"{self.model}/{self.version}"


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository of the model hub; ``pattern`` picks files of it."""

    repo: str
    revision: str = ""
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class UrlSource:
    """A file on a web server."""

    url: str

    @property
    def file(self) -> str:
        """The last part of its path."""
        return self.url.partition("://")[2].partition("?")[0].partition("#")[0].rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class PathSource:
    """A file, or with a slash at its end a folder, that is on the node already."""

    path: str


Source = MirrorSource | HubSource | UrlSource | PathSource


@lru_cache(maxsize=4096)
def read_source(text: str) -> Source | None:
    """What a source says; None where its form is wrong."""
    if text.startswith("mirror:"):
        found = _MIRROR.fullmatch(text)
        parts = text.removeprefix("mirror:").split("/")
        if found is None or {".", ".."} & set(parts):
            return None
        return MirrorSource(found[1], found[2], found[3] or "")
    if text.startswith("hf:"):
        hub = _HUB.fullmatch(text)
        return HubSource(hub[1], hub[2] or "", hub[3] or "") if hub else None
    if text.lower().startswith(("http://", "https://")):
        from urllib.parse import urlsplit  # dear, and seldom needed

        try:
            return UrlSource(text) if urlsplit(text).hostname else None
        except ValueError:
            return None
    return PathSource(text)


def mirror_source(model: str, version: str, file: str = "") -> str:
    """The source that names a version in the mirror (``file`` empty: all of it)."""
    return f"mirror:/{model}/{version}/{file}"
