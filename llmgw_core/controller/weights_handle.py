"""What the executor and the planner ask about weights; the real one is in ``weights``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from llmgw_core.catalog.model import Model
from llmgw_core.nodes.api import NodeHandle
from llmgw_core.placement.rooms import Weights


@dataclass(frozen=True, slots=True)
class Fetched:
    """How far a fetch is, in bytes; None where that is not known yet."""

    done: int
    total: int | None
    rate: float | None = None
    doing: str = ""
    """A few words: checking, pushed over SSH, waits for another fetch."""


class WeightsHandle(Protocol):
    """Knows where weights are and brings them to nodes."""

    def need(self, model: Model) -> Weights | None:
        """What a node must hold; None where the weights lie on the nodes in any case."""
        ...

    def content(self, model: Model) -> str:
        """What a replica started now would load, as 16 hex digits over the files' checksums; empty
        where that is not known, such as for weights that lie on the nodes."""
        ...

    def waiting(self, model: Model) -> str:
        """Why the model cannot start anywhere yet; empty where nothing keeps it."""
        ...

    async def locate(
        self, node: NodeHandle, model: Model, progress: Callable[[Fetched], None]
    ) -> str:
        """See that the weights lie on the node, fetching what is missing; the path of the file, or
        of the folder with a slash at its end.

        Raises:
            LlmgwError: they are not there and cannot be fetched, with what to do.
        """
        ...

    async def abandon(self, node: NodeHandle, key: str) -> None:
        """End the fetch of a version that nobody waits for any longer; what has come is kept."""
        ...
