"""The gateway as one object: it owns the connections, the pool, the state, and the slow clock."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import time
from collections.abc import Callable, Sequence

from llmgw_core.gateway import body, endpoints
from llmgw_core.gateway.client import ClientProtocol, Running
from llmgw_core.gateway.errors import ApiError, bad_request
from llmgw_core.gateway.headers import Header, value_of
from llmgw_core.gateway.keys import Gate, Key, check_model, opened
from llmgw_core.gateway.limits import Limiter, Now
from llmgw_core.gateway.metrics import Metrics, Outcome, RequestRecord, render
from llmgw_core.gateway.policy import LeastOutstanding, RoutingPolicy
from llmgw_core.gateway.pool import Pool
from llmgw_core.gateway.relay import Exchange
from llmgw_core.gateway.request import Request
from llmgw_core.gateway.services import Entry
from llmgw_core.gateway.settings import GatewaySettings
from llmgw_core.gateway.state import GatewayState, Listening
from llmgw_core.gateway.table import Report, RouteModel, Table
from llmgw_core.gateway.tunnel import Tunnels
from llmgw_core.gateway.upstream import address_of

log = logging.getLogger(__name__)

CHECK_S = 0.25
"""How often deadlines are looked at, which is also how late they may be."""

_JSON: list[Header] = [(b"content-type", b"application/json")]
_TEXT: list[Header] = [(b"content-type", b"text/plain; version=0.0.4; charset=utf-8")]


class Gateway:
    """The running gateway, apart from sockets and signals.

    Args:
        settings: limits and timeouts.
        policy: how a replica is chosen.
        gate: asked first, for the key; None is open to all.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        *,
        policy: RoutingPolicy | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.settings = settings
        self.loop = asyncio.get_running_loop()
        self.metrics = Metrics()
        self.state = GatewayState(self.metrics)
        self.tunnels = Tunnels()
        self.pool = Pool(self.tunnels, connect_timeout_s=settings.connect_timeout_s)
        self.policy: RoutingPolicy = policy or LeastOutstanding()
        self.limiter = Limiter()
        self.gate = gate or Gate()
        self.observers: list[Callable[[RequestRecord], None]] = []
        self.draining = False
        self.buffered = 0
        self.address = ""
        self.clients: set[ClientProtocol] = set()
        self._started = time.time()

    # what the control line asks

    def set_table(self, table: Table) -> None:
        """Put another table in force; running requests go on where they are."""
        self.limiter.owners = table.owners
        self.state.set_table(table)
        self.tunnels.update(self.state.directory.table.tunnels)
        targets = self.state.directory.targets.values()
        self.pool.retain({address_of(target) for target in targets})
        self.state.lines.call_all()

    def report(self) -> Report:
        """The state now."""
        return self.state.report(
            Listening(os.getpid(), self.address, len(self.clients), self.draining)
        )

    # what the server asks

    def make_client(self) -> ClientProtocol:
        """A protocol for a connection that comes in."""
        return ClientProtocol(self, self.loop)

    def opened(self, client: ClientProtocol) -> bool:
        """A connection came; False where there is no room for it."""
        self.clients.add(client)
        return len(self.clients) <= self.settings.max_connections

    def closed(self, client: ClientProtocol) -> None:
        """A connection ended."""
        self.clients.discard(client)

    def misread(self, error: ApiError) -> None:
        """Something came that is no request."""
        self._count_refusal(None, error, 0.0)

    def unwanted(self, headers: Sequence[Header]) -> ApiError | None:
        """A key that opens nothing is refused before the whole of a large body is held."""
        try:
            self.gate.who(headers, time.time())
        except ApiError as error:
            return error
        return None

    def handle(self, client: ClientProtocol, request: Request) -> Running | None:
        """Answer now, or return the exchange that will."""
        try:
            endpoints.check_method(request.method, request.path)
            key = self._let_in(client, request)
            if request.path in endpoints.RELAYED:
                return self._relay(client, request, key)
            self._answer(client, request, key)
        except ApiError as error:
            self._count_refusal(None, error, self.loop.time() - request.received)
            client.refuse(error)
        return None

    def _let_in(self, client: ClientProtocol, request: Request) -> Key | None:
        """The request's key, where it needs one."""
        if request.path == endpoints.HEALTH:
            return None  # balancers ask, and it tells little
        if request.path == endpoints.METRICS and client.is_near:
            return None
        return self.gate.who(request.headers, time.time())

    def _relay(self, client: ClientProtocol, request: Request, key: Key | None) -> Running | None:
        encoding = value_of(request.headers, b"content-encoding")
        if encoding is not None and encoding.lower() != b"identity":
            raise ApiError(415, "Compressed request bodies are not read here; send plain JSON.")
        if not request.body:
            raise bad_request("The request has no body; send a JSON object.", code="invalid_json")
        ask = body.read(request.body)
        model = self._model_of(ask.model, key)
        try:
            check_model(key, model.name)
            body.check_limits(ask, model.name, model.max_output)
            owner = charged_to(key, model)
            ticket = self.limiter.admit(key, owner, Now(self.loop.time(), time.time()))
        except ApiError as error:
            self._count_refusal(model, error, self.loop.time() - request.received, key)
            client.refuse(error)
            return None
        exchange = Exchange(self, client, request, model, ask, Entry(key, owner, ticket))
        exchange.start()
        return exchange

    def _model_of(self, name: str, key: Key | None) -> RouteModel:
        """The model that is asked for; who has a key hears only of those that it opens."""
        directory = self.state.directory
        return directory.find(name) or directory.resolve(name, self._shown(key))

    def _shown(self, key: Key | None) -> frozenset[str]:
        return opened(key, (model.name for model in self.state.directory.table.models))

    def _answer(self, client: ClientProtocol, request: Request, key: Key | None) -> None:
        directory, shown = self.state.directory, self._shown(key)
        if request.path == endpoints.HEALTH:
            client.respond(200, _JSON, endpoints.health(directory, draining=self.draining))
        elif request.path == endpoints.METRICS:
            client.respond(200, _TEXT, self._metrics_text().encode())
        elif request.path.rstrip("/") == endpoints.MODELS:
            client.respond(200, _JSON, endpoints.models_list(directory, shown))
        else:
            client.respond(200, _JSON, endpoints.model_card(directory, shown, request.path))

    def _count_refusal(
        self,
        model: RouteModel | None,
        error: ApiError,
        duration_s: float,
        key: Key | None = None,
    ) -> None:
        record = RequestRecord(
            model=model.name if model is not None else None,
            requested=None,
            target=None,
            status=error.status,
            outcome=Outcome.REFUSED,
            stream=False,
            ttft_s=None,
            duration_s=duration_s,
            chunks=0,
            tries=0,
            key=key,
            owner=charged_to(key, model) if model is not None else None,
        )
        self.metrics.observe(record, wall=time.time())
        for observer in self.observers:
            observer(record)

    def _metrics_text(self) -> str:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        gauges = (
            ("llmgw_open_connections", "Client connections.", float(len(self.clients))),
            ("llmgw_idle_upstreams", "Kept connections.", float(self.pool.idle_count)),
            ("llmgw_buffered_bytes", "Request bodies held.", float(self.buffered)),
            ("llmgw_table_version", "Of the routes.", float(self.state.directory.table.version)),
            ("process_cpu_seconds_total", "CPU time.", usage.ru_utime + usage.ru_stime),
            ("process_start_time_seconds", "Unix time of the start.", self._started),
        )
        loads = {target: load.outstanding for target, load in self.state.loads.items()}
        return render(self.metrics, gauges, loads)

    # the slow clock and the end

    async def watch(self) -> None:
        """Look at every deadline and close what idles, until cancelled."""
        ticks = 0
        while True:
            await asyncio.sleep(CHECK_S)
            now = self.loop.time()
            for client in list(self.clients):
                client.check(now)
            ticks += 1
            if ticks % 4 == 0:
                self.pool.sweep(now)
                self.state.sample(now)

    async def drain(self, timeout_s: float) -> bool:
        """Let running requests finish; whether they all did in time. The listener is closed.

        Idle connections are closed at once, the others after their answer.
        """
        self.draining = True
        deadline = self.loop.time() + timeout_s
        while self.clients and self.loop.time() < deadline:
            for client in list(self.clients):
                client.close_idle()
            await asyncio.sleep(0.05)
        left = len(self.clients)
        for client in list(self.clients):
            client.abort()
        if left:
            log.warning("%d requests were cut after %g s of draining", left, timeout_s)
        return left == 0

    async def close(self) -> None:
        """Close every upstream connection."""
        await self.pool.close()
        await self.tunnels.close()


def charged_to(key: Key | None, model: RouteModel) -> str | None:
    """The owner whose use a request is: the key's, else the model's."""
    return (key.owner if key is not None else None) or model.owner
