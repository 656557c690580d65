"""The store of weights: ``MODEL/VERSION/FILE…`` under one folder. Blocks: for threads or processes
of their own.

Beside the models lie ``.manifests`` (what each version holds), ``.partial`` (half files) and
``.locks``. A file is in its version's folder only once it was checked; the manifest says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from llmgw_core.errors import InvalidInput, LlmgwError, NotFound, Refused
from llmgw_core.mirror import locks, manifest
from llmgw_core.mirror.halves import Half
from llmgw_core.mirror.manifest import Entry, Manifest, ManifestDamaged
from llmgw_core.mirror.names import check_file, check_model, check_version, folded
from llmgw_core.mirror.sums import Sums, bad_pieces
from llmgw_core.mirror.tree import listed, prune, remove_tree, size_of, tree_bytes
from llmgw_core.mirror.versions import FileState, MirrorFile, MirrorVersion
from llmgw_core.plain_text import sanitise

MANIFESTS, PARTIAL, LOCKS = ".manifests", ".partial", ".locks"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check of the store found wrong with one file."""

    model: str
    version: str
    file: str
    problem: str
    bad_bytes: int | None = None
    """How much of it a mending has to fetch again; None where that is unknown."""


Checked = Callable[[str, int, int], None]
"""Hears of a check: the file, the bytes read of it, its size. Raising ends the check."""


class Store:
    """The versions below ``root``; several processes may have one store open.

    Every method that takes names raises ``InvalidInput`` for those that cannot be any, and
    ``LlmgwError`` where the disk does not do its part.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()

    # -- where things lie

    def folder(self, model: str, version: str) -> Path:
        """The folder of a version's files."""
        return self.root / check_model(model) / check_version(version)

    def path(self, model: str, version: str, file: str) -> Path:
        """Where a file of a version lies, whether it is there or not.

        Raises:
            Refused: the way there leads over a symbolic link out of its version.
        """
        path = self.folder(model, version) / check_file(file)
        home = self.root.resolve() / model / version
        try:
            real = path.resolve()
        except (OSError, RuntimeError) as error:  # a loop of links
            raise Refused(f"{path} leads nowhere ({error})") from error
        if not real.is_relative_to(home):
            raise Refused(f"{path} leads out of the mirror over a symbolic link; remove the link")
        return path

    def half(self, model: str, version: str, file: str) -> Half:
        """Where the half of a file lies."""
        check_file(file)
        base = self.partial(model, version)
        return Half(base / "files" / file, base / "notes" / f"{file}.json")

    def partial(self, model: str, version: str) -> Path:
        """The folder of a version's half files."""
        return self.root / PARTIAL / check_model(model) / check_version(version)

    def manifest_path(self, model: str, version: str) -> Path:
        """Where a version's manifest lies."""
        return self.root / MANIFESTS / check_model(model) / f"{check_version(version)}.json"

    # -- who works on it

    def lock_path(self, model: str, version: str) -> Path:
        """The lock file of a version."""
        return self.root / LOCKS / check_model(model) / f"{check_version(version)}.lock"

    @contextmanager
    def locked(self, model: str, version: str, doing: str) -> Iterator[None]:
        """Have a version to oneself.

        Args:
            model: Its model.
            version: Its name.
            doing: What is done, such as ``a pull``, for others to read.

        Raises:
            Refused: another process works on it.
        """
        with locks.exclusive(self.lock_path(model, version), doing, f"{model}/{version}"):
            yield

    def is_busy(self, model: str, version: str) -> bool:
        """Whether some process works on a version now."""
        return locks.is_held(self.lock_path(model, version))

    # -- what is there

    def manifest(self, model: str, version: str) -> Manifest | None:
        """What is written down about a version; None where nothing is.

        Raises:
            ManifestDamaged: it cannot be understood.
        """
        path = self.manifest_path(model, version)
        found = manifest.read(path)
        if found is not None and (found.model, found.version) != (model, version):
            name = sanitise(f"{found.model}/{found.version}", most=200)
            raise ManifestDamaged(f"the manifest {path} is of {name}")
        return found

    def write_manifest(self, made: Manifest) -> None:
        """Write down a version; for whoever holds its lock."""
        manifest.write(self.manifest_path(made.model, made.version), made)

    def names(self) -> list[tuple[str, str]]:
        """Model and version of every manifest, sorted."""
        base = self.root / MANIFESTS
        found = []
        for model in listed(base):
            for entry in listed(base / model):
                version, dot, ending = entry.rpartition(".")
                if dot and ending == "json" and is_name(model, version):
                    found.append((model, version))
        return found

    def versions(self) -> tuple[MirrorVersion, ...]:
        """Every version; one whose manifest cannot be read says so in its ``trouble``."""
        found = []
        for model, name in self.names():
            try:
                version = self.version(model, name)
            except LlmgwError as error:
                version = MirrorVersion(model, name, (), trouble=str(error))
            if version is not None:  # one just removed
                found.append(version)
        return tuple(found)

    def version(self, model: str, version: str) -> MirrorVersion | None:
        """One version as it lies on the disk; None where there is none.

        Raises:
            ManifestDamaged: its manifest cannot be understood.
        """
        found = self.manifest(model, version)
        if found is None:
            return None
        return MirrorVersion(
            model=model,
            version=version,
            files=tuple(self._file(found, entry) for entry in found.files),
            source=found.source,
            revision=found.revision,
            created=found.created,
            asked=found.asked,
        )

    def _file(self, found: Manifest, entry: Entry) -> MirrorFile:
        state = entry.state
        if state is FileState.WAITING:
            done = size_of(self.half(found.model, found.version, entry.file).data) or 0
        else:
            done = size_of(self.folder(found.model, found.version) / entry.file) or 0
            if done != entry.size:
                state = FileState.DAMAGED
        error = ""
        if state is FileState.DAMAGED:
            error = "its content is not what was stored; pull it again to mend it"
        return MirrorFile(entry.file, done, entry.size, state, entry.sha256, error=error)

    def need(self, model: str, version: str) -> MirrorVersion:
        """One version.

        Raises:
            NotFound: there is none; the message says which there are.
        """
        found = self.version(model, version)
        if found is not None:
            return found
        others = [name for of, name in self.names() if of == model]
        raise NotFound(
            f"the mirror has no {model}/{version}",
            hint=f"of {model} it has {', '.join(others)}"
            if others
            else "see llmgw run mirror list",
        )

    def check_new(self, model: str, version: str) -> None:
        """Refuse names that a file system may take for those of another version.

        Raises:
            InvalidInput: one differs only in case from one that is there.
        """
        for other, name in self.names():
            same_model = folded(other) == folded(model)
            if same_model and other != model:
                raise InvalidInput(f"{model} differs only in case from {other}, which is there")
            if same_model and name != version and folded(name) == folded(version):
                raise InvalidInput(f"{model}/{version} differs only in case from {model}/{name}")

    def free_bytes(self) -> int | None:
        """What the disk of the store can still take; None where it cannot be told."""
        for folder in (self.root, *self.root.parents):
            try:
                status = os.statvfs(folder)
            except OSError:
                continue
            return status.f_bavail * status.f_frsize
        return None

    # -- changes

    def remove(self, model: str, version: str, used_by: Sequence[str] = ()) -> int:
        """Remove a version with all that belongs to it.

        Args:
            model: Its model.
            version: Its name.
            used_by: The models that use it now.

        Returns:
            The bytes that were freed.

        Raises:
            Refused: models use it, or somebody works on it.
            NotFound: there is none.
        """
        if used_by:
            word = "the model" if len(used_by) == 1 else "the models"
            raise Refused(
                f"{model}/{version} is used by {word} {', '.join(used_by)}",
                hint="give them another source or remove them first",
            )
        path = self.manifest_path(model, version)
        places = (self.folder(model, version), self.partial(model, version))
        if not path.exists() and not any(os.path.lexists(place) for place in places):
            self.need(model, version)
        with self.locked(model, version, "a removal"):
            freed = sum(tree_bytes(place) for place in places)
            # the manifest first: what an interruption leaves is then nobody's, and tidied away
            remove_tree(path)
            for place in places:
                remove_tree(place)
                prune(place.parent, self.root)
            prune(path.parent, self.root)
            remove_tree(self.lock_path(model, version))
        return freed

    def verify(
        self, model: str, version: str, progress: Checked | None = None
    ) -> tuple[Finding, ...]:
        """Read every file of a version and compare size and SHA-256; reads all of it.

        What is damaged is marked so, and a new pull mends it; what was marked and is sound again
        is unmarked.

        Raises:
            NotFound: there is none.
            Refused: somebody works on it.
        """
        self.need(model, version)
        with self.locked(model, version, "a check"):
            found = self.manifest(model, version)
            if found is None:
                raise NotFound(f"{model}/{version} was removed meanwhile")
            findings = []
            changed = []
            for entry in found.files:
                if entry.state is FileState.WAITING:
                    continue
                finding = self._check(found, entry, progress)
                state = FileState.DONE if finding is None else FileState.DAMAGED
                if finding is not None:
                    findings.append(finding)
                if state is not entry.state:
                    changed.append(msgspec.structs.replace(entry, state=state))
            if changed:
                self.write_manifest(found.put(changed))
        return tuple(findings)

    def _check(self, found: Manifest, entry: Entry, progress: Checked | None) -> Finding | None:
        def say(problem: str, bad: int | None) -> Finding:
            return Finding(found.model, found.version, entry.file, problem, bad)

        try:
            path = self.path(found.model, found.version, entry.file)
        except Refused as error:
            return say(str(error), entry.size)
        size = size_of(path)
        if size is None:
            return say("it is missing", entry.size)
        if size != entry.size:
            return say(f"it has {size} bytes and should have {entry.size}", None)
        try:
            sums = Sums(entry.piece_bytes)
            with path.open("rb") as file:
                while chunk := file.read(1024 * 1024):
                    sums.update(chunk)
                    if progress is not None:
                        progress(entry.file, sums.count, size)
        except OSError as error:
            return say(f"it cannot be read: {error.strerror}", None)
        if sums.sha256() == entry.sha256:
            return None
        bad = bad_pieces(sums.pieces(), entry.pieces)
        bytes_bad = sum(min(entry.piece_bytes, size - n * entry.piece_bytes) for n in bad)
        return say("its content is not what was stored", bytes_bad or None)


def is_name(model: str, version: str) -> bool:
    """Whether the two can name a version."""
    try:
        check_model(model)
        check_version(version)
    except InvalidInput:
        return False
    return True
