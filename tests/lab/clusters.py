"""A whole daemon, its gateway and real engines over a lab's hosts."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import httpx

from llmgw_core.nodes.fleet import KNOWN_HOSTS
from llmgw_core.nodes.host_keys import HostKeyStore
from tests.e2e.cluster import Cluster, chat
from tests.lab.hosts import USER, Host, Process

GRACE_S = 8.0
"""How long a node may be away before its replicas are replaced."""
MODEL = "smol"
CLIENTS = 3
"""Who ask at once, so that each of two replicas is busy."""


def model_toml(source: Path, replicas: int) -> str:
    """A model that always has so many replicas; two never fit on one host."""
    return f"""
[[models]]
name = "{MODEL}"
source = "{source}"
scaling = {{ min = {replicas}, max = {replicas} }}
[[models.profiles]]
name = "cpu"
engine = "llamacpp"
args = ["--ctx-size", "1024", "--parallel", "1", "--threads", "1"]
min_memory_gb = 0.4
"""


def _node_toml(host: Host) -> str:
    return f"""
[[nodes]]
name = "{host.name}"
host = "{host.address}"
user = "{USER}"
identity_file = "{host.lab.client_key}"
[nodes.engines]
llamacpp = "{sys.executable}"
"""


class LabCluster(Cluster):
    """A cluster whose nodes are hosts of a lab, their keys known beforehand."""

    def __init__(self, folder: Path, hosts: Sequence[Host]) -> None:
        nodes = "".join(map(_node_toml, hosts))
        # the settings that come first still belong to the controller's section
        super().__init__(folder, f'node_grace = "{GRACE_S:.0f}s"\n{nodes}')
        self.hosts = {host.name: host for host in hosts}
        self.state.mkdir(mode=0o700)
        store = HostKeyStore(self.state / KNOWN_HOSTS)
        for host in hosts:
            store.add(host.name, host.host_key.convert_to_public())

    def engines(self) -> list[tuple[str, int]]:
        """Every engine that really runs: its host, and its pid there."""
        return sorted(
            (host.name, engine.inside)
            for host in self.hosts.values()
            for engine in engines_on(host)
        )

    async def told(self, kind: str) -> list[str]:
        """The sentences of all events of a kind, oldest first."""
        events = [event async for event in self.client.events(follow=False)]
        return [event.text for event in events if event.kind == kind]


def engines_on(host: Host) -> list[Process]:
    """The engines that run on a host; their children count as one with them."""
    found = [process for process in host.processes() if "--alias" in process.words]
    return [process for process in found if process.parent not in {other.pid for other in found}]


@asynccontextmanager
async def cluster_over(folder: Path, hosts: Sequence[Host]) -> AsyncIterator[LabCluster]:
    """A daemon over these hosts, ended with the block."""
    cluster = LabCluster(folder, hosts)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.end()


class Witness:
    """Looks at all hosts while the block lasts, and asks the gateway all the while.

    What it saw: ``most`` engines at once in all and ``most_on_one`` host, and every answer.
    """

    def __init__(self, cluster: LabCluster, url: str) -> None:
        self._cluster = cluster
        self._url = url
        self.most = 0
        self.most_on_one = 0
        self.answers: list[str] = []
        self.longest_s = 0.0

    async def __aenter__(self) -> Self:
        work = [self._look(), *(self._ask() for _ in range(CLIENTS))]
        self._tasks = [asyncio.create_task(one) for one in work]
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        print(self.report)
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _look(self) -> None:
        while True:
            engines = await asyncio.to_thread(self._cluster.engines)
            self.most = max(self.most, len(engines))
            by_host = Counter(host for host, _ in engines)
            self.most_on_one = max(self.most_on_one, *by_host.values(), 0)
            await asyncio.sleep(0.1)

    async def _ask(self) -> None:
        body = {**chat(MODEL, 4), "stream": False}
        async with httpx.AsyncClient(timeout=90) as http:
            while True:
                start = time.monotonic()
                try:
                    answer = await http.post(f"{self._url}/v1/chat/completions", json=body)
                    self.answers.append(f"{answer.status_code} {answer.text[:300]}")
                except httpx.HTTPError as error:
                    self.answers.append(f"{type(error).__name__} {error}")
                self.longest_s = max(self.longest_s, time.monotonic() - start)
                await asyncio.sleep(0.1)

    @property
    def report(self) -> str:
        """What it was like for the clients, in one line."""
        asked, failed = len(self.answers), len(self.failures)
        return f"{asked} requests, {failed} failed, the longest took {self.longest_s:.1f} s"

    @property
    def failures(self) -> list[str]:
        """Every answer that was not what the client asked for."""
        return [answer for answer in self.answers if not answer.startswith("200 ")]
