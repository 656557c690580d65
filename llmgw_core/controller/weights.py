"""Where a model's weights are, and how they come to a node: over the mirror, or there already."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from urllib.parse import quote

from llmgw_core.catalog.model import Model
from llmgw_core.catalog.secrets import masked_source
from llmgw_core.catalog.sources import (
    HubSource,
    MirrorSource,
    PathSource,
    UrlSource,
    read_source,
)
from llmgw_core.controller.mirror_handle import MirrorHandle
from llmgw_core.controller.weights_handle import Fetched
from llmgw_core.errors import EngineFailed
from llmgw_core.gguf.splits import part_name, split_name
from llmgw_core.mirror.inspect import main_file
from llmgw_core.mirror.versions import FileState, MirrorFile, MirrorVersion
from llmgw_core.nodes.api import NodeHandle
from llmgw_core.nodes.fetching import ensure_weights, stop_fetch
from llmgw_core.nodes.pushing import Pusher
from llmgw_core.nodes.weights import FetchJob, FetchProgress, WeightsFile
from llmgw_core.placement.rooms import Weights

GIB = 1024**3
PUSHES_AT_ONCE = 2
UNREACHABLE = "http://unreachable.invalid"
"""Stands in the place of the mirror's address for nodes that cannot reach it."""


class WeightsKeeper:
    """Satisfies ``WeightsHandle``."""

    def __init__(self, mirror: MirrorHandle, cluster: str = "") -> None:
        self._mirror = mirror
        self._cluster = cluster
        self._pusher: Pusher | None = None

    def is_fetched(self, model: Model) -> bool:
        """Whether its weights come to nodes from elsewhere."""
        source = read_source(model.source)
        return source is not None and not isinstance(source, PathSource)

    def need(self, model: Model) -> Weights | None:
        """What a node must hold; None where the weights lie on the nodes in any case."""
        source = read_source(model.source)
        if source is None or isinstance(source, PathSource):
            return None
        version = self.version(model)
        if version is None:
            if not isinstance(source, MirrorSource):
                return None
            return Weights(source.key, missing=self._why_waiting(model))
        total = version.bytes_total
        missing = "" if version.complete or coming(version) else incomplete(version)
        return Weights(version.name, total / GIB if total else None, missing)

    def content(self, model: Model) -> str:
        """See ``WeightsHandle``."""
        source = read_source(model.source)
        if source is None or isinstance(source, PathSource):
            return ""
        version = self.version(model)
        if version is None or not version.complete:
            return ""
        names = set(set_names(source.file)) if isinstance(source, MirrorSource) else set()
        files = [f for f in version.files if not names or f.file in names]
        if not files or any(file.sha256 is None for file in files):
            return ""
        sums = "".join(sorted(f"{file.file} {file.sha256}\n" for file in files))
        return hashlib.sha256(sums.encode()).hexdigest()[:16]

    def contents(self, catalog: Iterable[Model]) -> dict[str, str]:
        """What replicas started now would load, by model, where it is known."""
        found = {model.name: self.content(model) for model in catalog}
        return {name: content for name, content in found.items() if content}

    def waiting(self, model: Model) -> str:
        """Why the model cannot start anywhere yet; empty where nothing keeps it, and where a node
        that holds the weights needs nothing else.
        """
        need = self.need(model)
        return "" if need is not None and need.missing else self._why_waiting(model)

    def _why_waiting(self, model: Model) -> str:
        """What keeps the weights from being fetched; empty where nothing does."""
        source = read_source(model.source)
        if source is None or isinstance(source, PathSource):
            return ""
        version = self.version(model)
        if version is not None and version.complete:
            return ""
        if isinstance(source, MirrorSource):
            if version is None:
                return (
                    f"the mirror has no {source.key}; "
                    f"pull it with `llmgw run mirror pull … --as {source.key}`"
                )
            return incomplete(version)
        shown = masked_source(model.source)
        how = self._mirror.pulling(model.source)
        return f"the mirror pulls {shown}: {how}" if how else f"the mirror has not pulled {shown}"

    def needs(self, catalog: Iterable[Model]) -> dict[str, Weights]:
        """What nodes must hold, by model."""
        found = {model.name: self.need(model) for model in catalog}
        return {name: need for name, need in found.items() if need is not None}

    def waits(self, catalog: Iterable[Model]) -> dict[str, str]:
        """Why models cannot start anywhere yet, for those that cannot."""
        found = {model.name: self.waiting(model) for model in catalog}
        return {name: why for name, why in found.items() if why}

    def want(self, catalog: Iterable[Model]) -> None:
        """Have the mirror pull what models that may run need and it lacks."""
        for model in catalog:
            source = read_source(model.source)
            if model.scaling.max == 0 or not isinstance(source, HubSource | UrlSource):
                continue
            version = self._mirror.find(model.source)
            if version is None or not version.complete:
                self._mirror.want(model.source)

    def users(self, catalog: Iterable[Model]) -> dict[str, tuple[str, ...]]:
        """The models that need each version, by ``MODEL/VERSION``."""
        found: dict[str, tuple[str, ...]] = {}
        for model in catalog:
            version = self.version(model)
            source = read_source(model.source)
            key = version.name if version else ""
            if isinstance(source, MirrorSource):
                key = source.key
            if key:
                found[key] = (*found.get(key, ()), model.name)
        return found

    def version(self, model: Model) -> MirrorVersion | None:
        """The mirror's version that a model's source means; None where there is none."""
        source = read_source(model.source)
        if isinstance(source, MirrorSource):
            return next((v for v in self._mirror.versions if v.name == source.key), None)
        return self._mirror.find(model.source)

    def look_at(self, model: Model) -> str:
        """Where its header is best read: what the mirror holds whole is not asked of the hub."""
        version = self.version(model)
        away = isinstance(read_source(model.source), HubSource | UrlSource)
        if not away or version is None or not version.complete:
            return model.source
        names = [file.file for file in version.files]
        main = main_file(names) if version.asked else None
        return f"mirror:{version.name}/{main or ''}"

    async def locate(
        self, node: NodeHandle, model: Model, progress: Callable[[Fetched], None]
    ) -> str:
        """See that the weights lie on the node, fetching what is missing; where."""
        source = read_source(model.source)
        if source is None or isinstance(source, PathSource):
            return await on_node(node, model)
        version = self.version(model)
        why = self._why_waiting(model)
        file = source.file if isinstance(source, MirrorSource) else ""
        if version is None or why:
            need = self.need(model)
            kept = await self._kept(node, need.key, version, file) if need else None
            if kept is None:
                raise EngineFailed(why or f"the mirror has no weights of {model.name}")
            return kept
        files = wanted_files(version, file)
        address = await self._mirror.address_for(node.config)
        job = FetchJob(
            key=version.name,
            files=tuple(_file(version, file, address or UNREACHABLE) for file in files),
            token=self._mirror.token(version.model, version.version),
            cluster=self._cluster,
        )
        path = await ensure_weights(
            node,
            job,
            progress=lambda said: progress(_told(said)),
            push=self._push(),
            reachable=address is not None,
        )
        return path if len(files) == 1 else f"{path}/"

    async def _kept(
        self, node: NodeHandle, key: str, version: MirrorVersion | None, file: str
    ) -> str | None:
        """Where a node holds whole what the mirror cannot give out; None where it does not."""
        held = (await node.weights()).get(key)
        if held is None or not held.complete:
            return None
        wanted = set_names(file) or tuple(held.files)
        if version is not None:  # what it has to be is known still
            known = {f.file: (f.bytes_total, f.sha256) for f in wanted_files(version, file)}
            wanted = tuple(known)
            if known != {n: (h.size, h.sha256) for n, h in held.files.items() if n in known}:
                return None
        if not wanted or not held.files.keys() >= set(wanted):
            return None
        path = node.weights_path(key, wanted[0] if len(wanted) == 1 else "")
        return path if path is None or len(wanted) == 1 else f"{path}/"

    def _push(self) -> Pusher:
        """One for all nodes, so that they take turns."""
        root = self._mirror.root
        if self._pusher is None or self._pusher.root != root:
            self._pusher = Pusher(root, at_once=PUSHES_AT_ONCE)
        return self._pusher

    async def abandon(self, node: NodeHandle, key: str) -> None:
        """End the fetch of a version that nobody waits for any longer; what has come is kept."""
        await stop_fetch(node, key)


def wanted_files(version: MirrorVersion, file: str) -> tuple[MirrorFile, ...]:
    """The files of a version that a source means: all, or one with the other parts of its set.

    Raises:
        EngineFailed: there is no such file.
    """
    if not file:
        return version.files
    names = set(set_names(file))
    found = tuple(f for f in version.files if f.file in names)
    if len(found) != len(names):
        raise EngineFailed(f"{version.name} in the mirror does not have all of {file}")
    return found


def set_names(file: str) -> tuple[str, ...]:
    """A file with the other parts of its split set; nothing for no file."""
    part = split_name(file)
    if part is None:
        return (file,) if file else ()
    return tuple(part_name(part.stem, n, part.count) for n in range(1, part.count + 1))


def coming(version: MirrorVersion) -> bool:
    """Whether files of it have not come yet, so that it may become another than nodes hold."""
    settled = (FileState.DONE, FileState.DAMAGED)
    return not version.files or any(file.state not in settled for file in version.files)


def _file(version: MirrorVersion, file: MirrorFile, address: str) -> WeightsFile:
    if file.sha256 is None or file.bytes_total is None:
        raise EngineFailed(
            f"{file.file} of {version.name} has no checksum; run `llmgw run mirror verify`"
        )
    path = quote(f"{version.model}/{version.version}/{file.file}")
    return WeightsFile(file.file, file.bytes_total, file.sha256, f"{address}/v1/files/{path}")


def _told(said: FetchProgress) -> Fetched:
    doing = {"push": "pushed over SSH", "wait": "waits for another", "check": "is checked"}
    return Fetched(said.bytes_done, said.bytes_total, said.rate, doing.get(said.phase, ""))


async def on_node(node: NodeHandle, model: Model) -> str:
    """The weights at a path that is on the node already.

    Raises:
        EngineFailed: nothing lies at the path.
    """
    source, name = model.source, node.config.name
    files = await node.list_files(source)
    if files is None:
        raise EngineFailed(
            f"there is no model file {source} on {name}; put it there or correct the model's source"
        )
    if set(files) == {""}:
        if files[""] == 0:
            raise EngineFailed(f"the model file {source} on {name} is empty")
        return source
    if not any(files.values()):
        raise EngineFailed(f"the folder {source} on {name} holds no weights")
    return f"{source.rstrip('/')}/"


def incomplete(version: MirrorVersion) -> str:
    """What a version lacks, in words."""
    failed = next((file for file in version.files if file.error), None)
    if failed is not None:
        return f"{version.name} in the mirror is not whole: {failed.file}: {failed.error}"
    total = version.bytes_total
    share = f"{100 * version.bytes_done / total:.0f} %" if total else _size(version.bytes_done)
    return f"{version.name} in the mirror is not whole yet ({share} of it is there)"


def _size(count: int) -> str:
    return f"{count / 10**9:.1f} GB"
