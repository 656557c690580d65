"""Where a model's weights are, and how they come to a node: over the mirror, or there already."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
from llmgw_core.controller.weights_handle import Fetched, Located
from llmgw_core.errors import EngineFailed, Refused
from llmgw_core.mirror.versions import MirrorVersion
from llmgw_core.nodes.api import NodeHandle
from llmgw_core.placement.rooms import Weights

GIB = 1024**3


class WeightsKeeper:
    """Satisfies ``WeightsHandle``."""

    def __init__(self, mirror: MirrorHandle) -> None:
        self._mirror = mirror

    def need(self, model: Model) -> Weights | None:
        """What a node must hold; None where the weights lie on the nodes in any case."""
        source = read_source(model.source)
        if source is None or isinstance(source, PathSource):
            return None
        version = self.version(model)
        if version is None:
            return None
        total = version.bytes_total
        return Weights(version.name, total / GIB if total else None)

    def waiting(self, model: Model) -> str:
        """Why the model cannot start anywhere yet; empty where nothing keeps it."""
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

    async def locate(
        self, node: NodeHandle, model: Model, progress: Callable[[Fetched], None]
    ) -> Located:
        """See that the weights lie on the node, fetching what is missing; where."""
        source = read_source(model.source)
        if source is None or isinstance(source, PathSource):
            return await on_node(node, model)
        raise Refused(
            f"the source {model.source} of {model.name} has to be fetched, "
            "which this version cannot do",
            hint="give a path that exists on the node",
        )

    async def abandon(self, node: NodeHandle, model: Model) -> None:
        """End a fetch that nobody waits for any longer; what has come is kept."""


async def on_node(node: NodeHandle, model: Model) -> Located:
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
        return Located(source)
    if not any(files.values()):
        raise EngineFailed(f"the folder {source} on {name} holds no weights")
    return Located(f"{source.rstrip('/')}/", tuple(sorted(files)))


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
