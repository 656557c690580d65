"""What the controller asks of its mirror; the real one is in ``mirror_keeper``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from llmgw_core.api.views import MirrorView
from llmgw_core.config import NodeConfig
from llmgw_core.ledger.events import EventLog
from llmgw_core.mirror.versions import MirrorVersion


class MirrorHandle(Protocol):
    """A store of weights with its server process and its pulls."""

    @property
    def root(self) -> Path:
        """The store's folder."""
        ...

    @property
    def versions(self) -> tuple[MirrorVersion, ...]:
        """What it holds and pulls, as last looked at."""
        ...

    def view(self) -> MirrorView:
        """How it is, for people."""
        ...

    def find(self, source: str) -> MirrorVersion | None:
        """The newest version that was pulled from a source (as it was asked for)."""
        ...

    def pulling(self, source: str) -> str:
        """How the pull of a source is, in words; empty where there is none."""
        ...

    def want(self, source: str) -> None:
        """Begin to pull a source, where it is not pulled or tried already."""
        ...

    async def address_for(self, node: NodeConfig) -> str | None:
        """``http://HOST:PORT`` as a node reaches it; None where it does not serve or the node
        cannot reach it."""
        ...

    def token(self, model: str, version: str) -> str:
        """What opens one version to a node for a limited time."""
        ...

    def attach(self, events: EventLog, kick: Callable[[], None]) -> None:
        """Tell what happens there, and wake the controller by ``kick``; called before ``run``."""
        ...

    async def run(self) -> None:
        """Keep it running until cancelled; cancelling leaves the server running."""
        ...

    async def stop(self) -> None:
        """End its server and its pulls; what has come is kept."""
        ...
