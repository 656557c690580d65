"""The models added at run time: one TOML file each, and how they join the declared ones.

A file holds a ``[[models]]`` table that can be copied into config.toml. What llmgw remembers
besides stands in comments before it, each ``#: `` and a line of TOML:

    #: added = 3                  place in the order of adding
    #: changed_by = "ada"
    #: changed_at = 1790000000.0  # 2026-09-21 13:33:20 UTC
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from llmgw_core.catalog.canonical import model_toml
from llmgw_core.catalog.documents import Document, read_document
from llmgw_core.catalog.findings import Finding, Findings, Place, quoted
from llmgw_core.catalog.model import Catalog, CatalogProblem, Model
from llmgw_core.catalog.parse import parse_model
from llmgw_core.catalog.rules import check_fallbacks, check_model, known_words, model_place
from llmgw_core.catalog.tables import Table
from llmgw_core.errors import LlmgwError, NotFound
from llmgw_core.paths import make_private

if TYPE_CHECKING:
    from llmgw_core.config import Config
    from llmgw_core.engines.base import Engine

DIRECTORY = "catalog.d"
"""The overlay's folder inside the state directory."""

_SUFFIX = ".toml"
_MARK = "#: "
_LONGEST_STEM = 180
_NOTE = "# Added at run time and written by llmgw: change it there, or copy it into config.toml.\n"
_KEEPS = frozenset({"class", "owner", "fallbacks"})


class ModelStore(Protocol):
    """Where models added at run time are kept."""

    def load(self) -> tuple[tuple[Model, ...], tuple[CatalogProblem, ...]]:
        """All that can be read, in order of adding, and what is wrong with the rest."""
        ...

    def put(self, model: Model) -> None:
        """Add a model, or replace the one of that name."""
        ...

    def remove(self, name: str) -> None:
        """Forget a model."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the overlay: its model (None where it cannot be used) and what is wrong."""

    document: Document
    model: Model | None
    added: int | None
    problems: tuple[CatalogProblem, ...] = ()


class Overlay:
    """A folder of models added at run time. One writer at a time: the controller, or where none
    runs, the command that changes something.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def load(self) -> tuple[tuple[Model, ...], tuple[CatalogProblem, ...]]:
        """All models that can be read, in order of adding, and what is wrong with the rest."""
        entries, problems = self.entries()
        return tuple(entry.model for entry in entries if entry.model), problems

    def entries(self) -> tuple[tuple[Entry, ...], tuple[CatalogProblem, ...]]:
        """As ``load``, with the files. A second file for one name is a problem."""
        found, listing_problem = self._read_all()
        problems = [listing_problem] if listing_problem else []
        sound: dict[str, Entry] = {}
        for entry in found:
            problems += entry.problems
            if entry.model is None:
                continue
            if entry.model.name in sound:
                other = sound[entry.model.name].document.file or ""
                text = f"it stands in {Path(other).name} as well; remove one of the two"
                place = model_place(entry.model, ("models", 0))
                problems += entry.document.problems([Finding(text, place.at("name"), "name")])
            else:
                sound[entry.model.name] = entry
        return tuple(sound.values()), tuple(problems)

    def _read_all(self) -> tuple[list[Entry], CatalogProblem | None]:
        try:
            paths = sorted(p for p in self.directory.iterdir() if p.suffix == _SUFFIX)
        except FileNotFoundError:
            return [], None
        except OSError as error:
            text = f"the folder of added models cannot be read: {error.strerror or error}"
            return [], CatalogProblem(text, file=str(self.directory))
        entries = [read_entry(path) for path in paths if not path.name.startswith(".")]
        entries.sort(key=lambda e: (e.added is None, e.added or 0))
        return entries, None

    def put(self, model: Model) -> None:
        """Add a model, or replace the one of that name; all or nothing, even if power fails.

        Raises:
            LlmgwError: the file could not be written.
        """
        path, added = self._place(model.name)
        text = entry_text(model, added)
        try:
            make_private(make_private(self.directory.parent) / self.directory.name)
            _write(path, text)
        except OSError as error:
            raise LlmgwError(
                f"model {quoted(model.name)} could not be saved to {path}: "
                f"{error.strerror or error}"
            ) from error

    def remove(self, name: str) -> None:
        """Forget a model.

        Raises:
            NotFound: there is no file for it.
            LlmgwError: its file could not be removed.
        """
        path = self._existing(name)
        if path is None:
            raise NotFound(f"model {quoted(name)} is not among the added ones")
        try:
            path.unlink()
            _sync_folder(self.directory)
        except OSError as error:
            raise LlmgwError(
                f"model {quoted(name)} could not be removed from {path}: {error.strerror or error}"
            ) from error

    def path_for(self, name: str) -> Path:
        """The file that a model of this name is written to, whatever characters it holds."""
        stem = quote(name, safe="+,@=")
        if stem.startswith("."):
            stem = "%2E" + stem[1:]
        if len(stem) > _LONGEST_STEM:
            stem = f"{stem[:_LONGEST_STEM]}-{_digest(name)}"
        return self.directory / f"{stem}{_SUFFIX}"

    def _existing(self, name: str) -> Path | None:
        """The file of a model: its own, or one that a person put there under another name."""
        usual = self.path_for(name)
        if usual.exists():
            there = read_entry(usual).model
            if there is None or there.name == name:
                return usual
        entries, _ = self.entries()
        files = (e.document.file for e in entries if e.model and e.model.name == name)
        return next((Path(file) for file in files if file), None)

    def _place(self, name: str) -> tuple[Path, int]:
        """Where to write a model, and its number in the order of adding."""
        path = self._existing(name)
        if path is not None:
            added = read_entry(path).added
            if added is not None:
                return path, added
        found, _ = self._read_all()
        usual = self.path_for(name)
        if usual.exists():  # and a person put another model there
            usual = usual.with_stem(f"{usual.stem[:_LONGEST_STEM]}-{_digest(name)}")
        return path or usual, max((e.added or 0 for e in found), default=0) + 1


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:12]


def entry_text(model: Model, added: int) -> str:
    """What stands in a model's file."""
    import tomli_w

    notes: dict[str, object] = {"added": added}
    if model.changed_by is not None:
        notes["changed_by"] = model.changed_by
    if model.changed_at is not None:
        notes["changed_at"] = float(model.changed_at)
    # not splitlines(): it also splits at characters that TOML leaves inside a string
    lines = [_MARK + line for line in tomli_w.dumps(notes).rstrip("\n").split("\n")]
    if model.changed_at is not None:
        with contextlib.suppress(OverflowError, ValueError, OSError):  # a clock gone mad
            when = datetime.fromtimestamp(model.changed_at, tz=UTC)
            lines[-1] += f"  # {when:%Y-%m-%d %H:%M:%S} UTC"
    return _NOTE + "\n".join(lines) + "\n\n" + model_toml(model)


def read_entry(path: Path) -> Entry:
    """Read one file of the overlay; what is wrong with it is told, never raised."""
    document = read_document(path)
    if document.table is None:
        return Entry(document, None, None, (document.problem,) if document.problem else ())
    findings: Findings = []
    top = Table(document.table, Place(), findings)
    tables = top.tables("models")
    top.done()
    if len(tables) != 1 and not findings:
        text = f"it must hold one [[models]] table, and holds {len(tables)}"
        findings.append(Finding(text, Place(("models",)), "models"))
    model: Model | None = None
    if not findings:
        parsed = parse_model(tables[0][1], declared=False)
        findings += parsed.findings
        model = parsed.model
    added, by, at = _notes(document.text)
    if findings or model is None:
        return Entry(document, None, added, tuple(document.problems(findings)))
    return Entry(document, replace(model, changed_by=by, changed_at=at), added)


def _notes(text: str) -> tuple[int | None, str | None, float | None]:
    """Order, actor and time from the comments; None for what is not there or was spoilt."""
    head = takewhile(lambda line: line.startswith("#"), text.split("\n"))
    lines = [line[len(_MARK) :] for line in head if line.startswith(_MARK)]
    try:
        notes = tomllib.loads("\n".join(lines))
    except ValueError:
        return None, None, None
    added, by, at = notes.get("added"), notes.get("changed_by"), notes.get("changed_at")
    return (
        added if isinstance(added, int) and not isinstance(added, bool) else None,
        by if isinstance(by, str) else None,
        at if isinstance(at, float) and math.isfinite(at) else None,
    )


def _write(path: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".new")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True)
class LoadedCatalog:
    """All models that can be used, and what is wrong with the added ones."""

    catalog: Catalog
    problems: tuple[CatalogProblem, ...] = ()


def load_catalog(
    config: Config, overlay: Overlay, engines: Mapping[str, Engine] | None = None
) -> LoadedCatalog:
    """Declared models first, then added ones in order of adding.

    An added model that cannot be used is told of and left out. One whose class, owner or fallback
    has gone from the configuration is told of and kept: it may be serving.
    """
    known = known_words(config, engines)
    entries, found = overlay.entries()
    problems = list(found)
    names = {model.name for model in config.models}
    aliases = {alias: model.name for model in config.models for alias in model.aliases}
    kept: list[Entry] = []
    for entry in entries:
        model = entry.model
        if model is None:
            continue
        wrong = [*_clashes(model, names, aliases), *check_model(model, known)]
        problems += entry.document.problems(wrong)
        if all(finding.key in _KEEPS for finding in wrong):
            kept.append(entry)
            names.add(model.name)
            aliases |= dict.fromkeys(model.aliases, model.name)
    models = config.models + tuple(entry.model for entry in kept if entry.model)
    for finding in check_fallbacks(models):
        index = finding.place.path[1]
        entry_index = index - len(config.models) if isinstance(index, int) else -1
        if entry_index >= 0:
            at = replace(finding.place, path=("models", 0, "fallbacks"))
            problems += kept[entry_index].document.problems([replace(finding, place=at)])
    return LoadedCatalog(Catalog(models), tuple(problems))


def _clashes(model: Model, names: set[str], aliases: Mapping[str, str]) -> Iterator[Finding]:
    """Whether a name or alias of an added model is taken by one that came before."""
    place = model_place(model, ("models", 0))
    if model.name in names:
        text = "it is declared in the configuration too, which counts; remove one of the two"
        yield Finding(text, place.at("name"), "name")
    elif model.name in aliases:
        text = f"its name is already an alias of model {quoted(aliases[model.name])}"
        yield Finding(text, place.at("name"), "name")
    seen: set[str] = set()
    for alias in model.aliases:
        if alias in names or alias == model.name:
            text = f"alias {quoted(alias)} is also a model's name"
        elif alias in aliases:
            text = f"alias {quoted(alias)} is claimed by model {quoted(aliases[alias])} as well"
        elif alias in seen:
            text = f"alias {quoted(alias)} is listed twice"
        else:
            seen.add(alias)
            continue
        yield Finding(text, place.at("aliases"), "aliases")
