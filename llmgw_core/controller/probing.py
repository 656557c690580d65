"""Asks engines over HTTP: health, the model list, and their numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import httpx
import msgspec

from llmgw_core.controller.replica import Health, Replica
from llmgw_core.controller.watch import Numbers, Reading
from llmgw_core.engines.base import Engine
from llmgw_core.engines.registry import ENGINES
from llmgw_core.metrics.exposition import parse_samples, pick
from llmgw_core.nodes.instance import Endpoint

BODY_MOST = 2 * 1024 * 1024
CONNECTIONS_MOST = 200


class _Model(msgspec.Struct):
    id: str = ""
    aliases: list[str] = []


class _ModelList(msgspec.Struct):
    data: list[_Model] = []


class HttpProbers:
    """Makes probers that share one HTTP client (one more for each tunnel's socket)."""

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout = httpx.Timeout(timeout_s)
        self._clients: dict[str | None, httpx.AsyncClient] = {}

    def make(self, replica: Replica, endpoint: Endpoint) -> HttpProber:
        """A prober of one replica's present run."""
        client = self._clients.get(endpoint.uds)
        if client is None:
            limits = httpx.Limits(max_connections=CONNECTIONS_MOST)
            transport = httpx.AsyncHTTPTransport(uds=endpoint.uds, limits=limits)
            client = httpx.AsyncClient(transport=transport, timeout=self._timeout)
            self._clients[endpoint.uds] = client
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        return HttpProber(
            client,
            f"http://{host}:{endpoint.port}",
            replica.api_key,
            replica.model,
            ENGINES.get(replica.engine),
        )

    async def aclose(self) -> None:
        """Close every connection."""
        clients = list(self._clients.values())
        self._clients.clear()
        for client in clients:
            await client.aclose()


@dataclass(slots=True)
class _Counters:
    at: float
    prompt: float | None
    output: float | None


@dataclass(slots=True)
class HttpProber:
    """One replica's engine; keeps the last counters to turn them into rates."""

    client: httpx.AsyncClient
    base: str
    api_key: str = field(repr=False)
    model: str
    engine: Engine | None
    _counters: _Counters | None = None
    _serves: bool = False

    async def ask(self, *, at: float) -> Reading:
        """One round: health; once healthy, whether it serves the model, and its numbers."""
        path = self.engine.health_path if self.engine else "/health"
        try:
            response = await self._get(path)
            if response.status_code != httpx.codes.OK:
                self._serves = False
                said = f"{path} answers {response.status_code}"
                return Reading(Health(at, False, True, False, said), None)
            if not self._serves:
                self._serves = await self._names_model()
            numbers = await self._numbers(at) if self._serves else None
        except httpx.HTTPError as error:
            said = str(error) or type(error).__name__
            return Reading(Health(at, False, False, False, said), None)
        return Reading(Health(at, True, True, self._serves), numbers)

    async def _get(self, path: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.api_key}"}
        return await self.client.get(self.base + path, headers=headers)

    async def _names_model(self) -> bool:
        response = await self._get("/v1/models")
        if response.status_code != httpx.codes.OK or len(response.content) > BODY_MOST:
            return False
        try:
            listed = msgspec.json.decode(response.content, type=_ModelList).data
        except msgspec.MsgspecError:
            return False
        return any(self.model == item.id or self.model in item.aliases for item in listed)

    async def _numbers(self, at: float) -> Numbers | None:
        if self.engine is None:
            return None
        response = await self._get("/metrics")
        if response.status_code != httpx.codes.OK or len(response.content) > BODY_MOST:
            return None
        samples = parse_samples(response.text)
        names = self.engine.metrics
        now = _Counters(at, pick(samples, names.prompt_tokens), pick(samples, names.output_tokens))
        before, self._counters = self._counters, now
        return Numbers(
            running=pick(samples, names.running),
            waiting=pick(samples, names.waiting),
            kv_usage=pick(samples, names.kv_usage),
            tokens_per_s=_rate(before, now, "output"),
            prompt_tokens_per_s=_rate(before, now, "prompt"),
        )


def _rate(before: _Counters | None, now: _Counters, name: str) -> float | None:
    """Growth a second; None for the first reading and where a counter started again."""
    if before is None or now.at <= before.at:
        return None
    first, last = getattr(before, name), getattr(now, name)
    if first is None or last is None or last < first or not math.isfinite(last - first):
        return None
    return float(last - first) / (now.at - before.at)
