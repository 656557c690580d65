"""Names in the mirror, and what a pull is told to fetch. Pure.

A name becomes part of a path here and on the nodes, and part of an address: what a file system, a
shell or a person could take for something else is refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from datetime import date
from urllib.parse import urlsplit

from llmgw_core.catalog.sources import (
    HubSource,
    MirrorSource,
    PathSource,
    UrlSource,
    read_source,
)
from llmgw_core.errors import InvalidInput

NAME_MOST = 96
"""Characters of a model's or a version's name."""
PART_MOST = 240
"""Bytes of one part of a file's path; file systems take 255 and our own suffixes come on top."""
FILE_MOST = 900
"""Bytes of a file's whole path."""
DEPTH_MOST = 8
COMMIT_SHOWN = 12

PullSource = HubSource | UrlSource | PathSource
"""Where a pull takes its files from."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_SPLIT_END = re.compile(r"-\d{5}-of-\d{5}$")
_ODD_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def check_model(name: str) -> str:
    """The name of a model, as it was.

    Raises:
        InvalidInput: it cannot be one.
    """
    return _check_name(name, "model")


def check_version(name: str) -> str:
    """The name of a version, as it was.

    Raises:
        InvalidInput: it cannot be one.
    """
    return _check_name(name, "version")


def _check_name(name: str, what: str) -> str:
    if len(name) > NAME_MOST:
        raise InvalidInput(f"a {what}'s name has at most {NAME_MOST} characters, not {len(name)}")
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{name!r} cannot be a {what}'s name in the mirror; take letters, digits and ._+- "
            "and begin with a letter or digit"
        )
    return name


def check_file(name: str) -> str:
    """The path of a file below its version, as it was.

    Raises:
        InvalidInput: it cannot be one.
    """
    trouble = file_trouble(name)
    if trouble:
        raise InvalidInput(f"{name[:PART_MOST]!r} cannot be a file's name in the mirror: {trouble}")
    return name


def file_trouble(name: str) -> str:
    """Why a path cannot be a file's name; empty where it can."""
    parts = name.split("/")
    if len(parts) > DEPTH_MOST:
        return f"it lies more than {DEPTH_MOST} folders deep"
    troubles = (_part_trouble(part) for part in parts)
    found = next((trouble for trouble in troubles if trouble), "")
    if not found and len(name.encode()) > FILE_MOST:
        return f"it is longer than {FILE_MOST} bytes"
    return found


def _part_trouble(part: str) -> str:
    if not part:
        return "a part of it is empty"
    if part[0] in ".-~":
        return f"a part of it begins with {part[0]!r}"
    if "\\" in part:
        return "it has a backslash"
    if any(unicodedata.category(char) in _ODD_CATEGORIES for char in part):
        return "it has control or invisible characters"
    if part != part.strip():
        return "a part of it begins or ends with a space"
    if len(part.encode()) > PART_MOST:
        return f"a part of it is longer than {PART_MOST} bytes"
    return ""


def folded(name: str) -> str:
    """What two names have in common that some file system takes for one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def check_files(names: Iterable[str]) -> tuple[str, ...]:
    """The files of one version, each a good name and none in the way of another.

    Raises:
        InvalidInput: one cannot be a name, or two differ only in case or form, or one file's name
            is another's folder.
    """
    listed = tuple(check_file(name) for name in names)
    seen: dict[str, str] = {}
    for name in listed:
        other = seen.setdefault(folded(name), name)
        if other != name:
            raise InvalidInput(f"{other!r} and {name!r} differ only in case; pull one of them")
    for name in listed:
        parts = folded(name).split("/")
        for depth in range(1, len(parts)):
            above = seen.get("/".join(parts[:depth]))
            if above is not None:
                raise InvalidInput(f"{above!r} would be a file and the folder of {name!r}")
    return listed


def read_pull(text: str) -> PullSource:
    """What ``hf:…``, ``http(s)://…`` or a local path says.

    Raises:
        InvalidInput: it says nothing that can be pulled.
    """
    source = read_source(text.strip())
    if source is None:
        raise InvalidInput(
            f"{shown(text)!r} is no source; write hf:ORG/REPO[@REV][:FILE or PATTERN], "
            "an http(s) address, or a path on this machine"
        )
    if isinstance(source, MirrorSource):
        raise InvalidInput(f"{text!r} is in the mirror already; pull from where it came from")
    if isinstance(source, PathSource) and not source.path:
        raise InvalidInput("say what to pull: hf:ORG/REPO, an http(s) address or a path")
    if isinstance(source, UrlSource) and not source.file:
        raise InvalidInput(f"{shown(text)!r} names no file; give the address of one")
    return source


def read_mirror(text: str) -> MirrorSource:
    """What ``mirror:MODEL/VERSION[/FILE]`` (or it without ``mirror:``) says, with good names.

    Raises:
        InvalidInput: its form or one of its names is wrong.
    """
    source = read_source(text if text.startswith("mirror:") else f"mirror:{text}")
    if not isinstance(source, MirrorSource):
        raise InvalidInput(f"{text!r} is no version in the mirror; write MODEL/VERSION")
    check_model(source.model)
    check_version(source.version)
    if source.file:
        check_file(source.file)
    return source


def shown(source: str) -> str:
    """A source or address as people may see it: without login, query and fragment."""
    if not source.lower().startswith(("http://", "https://")):
        return source
    scheme, _, rest = source.partition("://")
    address = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = address.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def file_of_url(url: str) -> str:
    """The name under which the file of an address is kept: its path's last part, decoded."""
    from urllib.parse import unquote

    return unquote(urlsplit(url).path.rpartition("/")[2])


def default_model(source: PullSource) -> str:
    """A model's name for what is pulled: the repository's, or the file's without its ending."""
    match source:
        case HubSource(repo=repo):
            said = repo.rpartition("/")[2]
        case UrlSource(url=url):
            said = _stem(file_of_url(url))
        case PathSource(path=path):
            said = _stem(path.rstrip("/").rpartition("/")[2])
    made = kebab(said)
    if not made:
        raise InvalidInput(f"{said!r} gives no name for a model; name one")
    return made


def _stem(file: str) -> str:
    stem, dot, ending = file.rpartition(".")
    known = dot and ending.lower() in {"gguf", "safetensors", "bin", "pt", "pth"}
    return _SPLIT_END.sub("", stem if known else file)


def kebab(text: str) -> str:
    """Lower case, with hyphens for what a name may not hold."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9.]+", "-", plain).strip("-.")[:NAME_MOST].rstrip("-.")


def default_version(commit: str, today: date) -> str:
    """A version's name: the beginning of the hub's commit, or the day where there is none."""
    return commit[:COMMIT_SHOWN] if commit else today.isoformat()
