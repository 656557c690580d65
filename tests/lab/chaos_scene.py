"""What chaos is done to: a daemon over a lab's hosts, its models, clients and strangers."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from llmgw_core.api.views import Command, Snapshot
from llmgw_core.errors import LlmgwError
from tests.lab.chaos_clients import Asker, Clients
from tests.lab.chaos_strangers import Strangers
from tests.lab.chaos_truth import Sight, Wanted, look, records, wrong
from tests.lab.clusters import LabCluster
from tests.lab.hosts import Host

GRACE_S = 5
SMOL, SPARE, WAKE = "smol", "spare", "wake"
COUNT = 2
"""Replicas of ``SMOL``; there is one of ``SPARE``, and at most one of ``WAKE``."""
CONTEXTS = ("1024", "1152")
"""Sizes of the context that an edit changes between."""
ASKERS = (
    Asker(SMOL, stream=False),
    Asker(SMOL, stream=True, tokens=24),
    Asker(SPARE, stream=True, tokens=8),
    # asks for a while, then rests for longer than the model stays
    Asker(WAKE, stream=False, asks=12, rest_s=12.0),
)
_SCALING = {
    SMOL: f"min = {COUNT}, max = {COUNT}",
    SPARE: "min = 1, max = 1",
    WAKE: 'min = 0, max = 1, idle_timeout = "6s"',
}


def model_toml(name: str, source: Path, context: str = CONTEXTS[0]) -> str:
    """One of the three models."""
    return f"""
[[models]]
name = "{name}"
source = "{source}"
scaling = {{ {_SCALING[name]} }}
[[models.profiles]]
name = "cpu"
engine = "llamacpp"
args = ["--ctx-size", "{context}", "--parallel", "1", "--threads", "1"]
min_memory_gb = 0.4
startup_timeout = "60s"
"""


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ChaosCluster(LabCluster):
    """A cluster that gives up on things sooner than one for people, so that a fault takes seconds.

    Its gateway keeps its address when it is killed.
    """

    program = ("-P", str(Path(__file__).with_name("chaos_daemon.py")))

    def __init__(self, folder: Path, hosts: Sequence[Host]) -> None:
        super().__init__(folder, hosts)
        text = self.config.read_text()
        for before, after in (
            ("port = 0", f'port = {free_port()}\nfirst_byte_timeout = "40s"\nidle_timeout = "30s"'),
            ('health_interval = "500ms"', 'health_interval = "500ms"\nunresponsive = "8s"'),
            ('node_grace = "8s"', f'node_grace = "{GRACE_S}s"'),
            ("[nodes.engines]", "port_range = [18000, 18019]\n[nodes.engines]"),
        ):
            assert before in text, before
            text = text.replace(before, after)
        self.config.write_text(text)


class Scene:
    """Everything that a fault may touch, and what should be there once all is well."""

    def __init__(
        self, cluster: ChaosCluster, source: Path, clients: Clients, strangers: Strangers
    ) -> None:
        self.cluster = cluster
        self.source = source
        self.clients = clients
        self.strangers = strangers
        self.hosts = cluster.hosts
        self.frozen: set[str] = set()
        """Hosts that were frozen in this round: everything there was stopped and continued."""
        self.touched: set[str] = set()
        """Hosts that were hit in this round: what runs there may have been replaced elsewhere."""
        self.surge = 0
        """Replicas of one model that there may be for a while beyond those wanted."""
        self.context = CONTEXTS[0]
        self.last: Snapshot | None = None
        """The newest snapshot that was seen."""

    @property
    def wanted(self) -> dict[str, Wanted]:
        """What each model should have."""
        return {
            SMOL: Wanted(COUNT, COUNT, self.context),
            SPARE: Wanted(1, 1),
            WAKE: Wanted(0, 1),
        }

    def sight(self) -> Sight:
        """What really runs now."""
        return look(self.hosts.values())

    async def command(self, name: str, /, **args: object) -> str:
        """Carry out a command; returns what was said, also where it was refused."""
        try:
            result = await self.cluster.client.command(Command(name, dict(args), "chaos"))
        except (LlmgwError, RuntimeError) as error:  # its client was closed as the daemon died
            return f"refused: {error}"
        return result.text

    async def snapshot(self) -> Snapshot | None:
        """What llmgw says now; None where no daemon answers."""
        try:
            self.last = await self.cluster.client.snapshot()
        except (LlmgwError, RuntimeError):  # its client was closed as the daemon died
            return None
        return self.last

    def wrong(self, snapshot: Snapshot, sight: Sight) -> list[str]:
        """Everything that is not as it should be."""
        kept = {name: records(host) for name, host in self.hosts.items()}
        return wrong(snapshot, sight, self.wanted, kept)
