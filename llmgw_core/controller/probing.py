"""Asks engines over HTTP, with one client for all, and turns their counters into rates."""

from __future__ import annotations

from dataclasses import dataclass

import httpx

from llmgw_core.controller.liveness import TRY_TIMEOUT_S, Pulse
from llmgw_core.controller.replica import Health, Replica
from llmgw_core.controller.watch import Numbers, Reading
from llmgw_core.engines.llamacpp import context_pool
from llmgw_core.engines.registry import ENGINES
from llmgw_core.metrics.mapping import VLLM
from llmgw_core.metrics.scrape import ReplicaScraper, ScrapeResult
from llmgw_core.metrics.values import EngineNumbers, following, rates
from llmgw_core.nodes.instance import Endpoint

CONNECTIONS_MOST = 200


class HttpProbers:
    """Makes probers that share one HTTP client (one more for each tunnel's socket)."""

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._clients: dict[str | None, httpx.AsyncClient] = {}

    def make(self, replica: Replica, endpoint: Endpoint) -> HttpProber:
        """A prober of one replica's present run."""
        client = self._clients.get(endpoint.uds)
        if client is None:
            limits = httpx.Limits(max_connections=CONNECTIONS_MOST)
            transport = httpx.AsyncHTTPTransport(uds=endpoint.uds, limits=limits)
            client = httpx.AsyncClient(transport=transport, timeout=self._timeout_s)
            self._clients[endpoint.uds] = client
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        engine = ENGINES.get(replica.engine)
        return HttpProber(
            ReplicaScraper(
                client,
                f"http://{host}:{endpoint.port}",
                replica.model,
                engine.metrics if engine else VLLM,
                api_key=replica.api_key,
                health_path=engine.health_path if engine else "/health",
                context_pool=context_pool(replica.argv),
                timeout_s=self._timeout_s,
            )
        )

    async def aclose(self) -> None:
        """Close every connection."""
        clients = list(self._clients.values())
        self._clients.clear()
        for client in clients:
            await client.aclose()


@dataclass(slots=True)
class HttpProber:
    """One replica's engine; keeps the last counters to turn them into rates."""

    scraper: ReplicaScraper
    _before: EngineNumbers | None = None
    _before_at: float = 0.0

    async def ask(self, *, at: float) -> Reading:
        """One round: health; once healthy, whether it serves the model, and its numbers."""
        result = await self.scraper.scrape()
        health = Health(at, result.healthy, _answered(result), bool(result.serves), result.error)
        return Reading(health, self._numbers(result, at), _pulse(result, at))

    async def one_token(self) -> str:
        """Ask for one token, within bounds: why that failed, or nothing."""
        return await self.scraper.one_token(TRY_TIMEOUT_S)

    def _numbers(self, result: ScrapeResult, at: float) -> Numbers | None:
        if result.numbers is None:
            return None
        now = following(self._before, result.numbers)
        grown = rates(self._before, now, at - self._before_at)
        self._before, self._before_at = now, at
        return Numbers(
            running=now.running,
            waiting=now.waiting,
            kv_usage=now.kv_usage,
            tokens_per_s=grown.output_tokens_per_s,
            prompt_tokens_per_s=grown.prompt_tokens_per_s,
        )


def _answered(result: ScrapeResult) -> bool:
    """Whether anything answered; a health check that was answered before counts."""
    return result.healthy or result.answer.came


def _pulse(result: ScrapeResult, at: float) -> Pulse | None:
    """Whether anything moves, as its numbers tell; None where its health is bad already."""
    if not result.healthy or not result.serves:
        return None
    numbers = result.numbers
    if numbers is None:
        return Pulse(at, told=False)
    known = [part for part in (numbers.running, numbers.waiting) if part is not None]
    return Pulse(at, True, sum(known) if known else None, numbers.work)
