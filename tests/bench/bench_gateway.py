"""What the gateway adds to a request, measured against the bare engine.

A script, not a test: it prints a table. Direct and through the gateway take turns in short rounds,
so that whatever else the machine does hits both alike; medians over the rounds are shown with their
spread. CPU is the gateway process's own, from the scheduler.

    python -m tests.bench.bench_gateway [--rounds N]
    python -m tests.bench.bench_gateway --engine
    python -m tests.bench.bench_gateway --url http://HOST:PORT --model NAME [--key K]

The engine is a scripted one that answers at once; with ``--engine`` it is llama.cpp's server over
the small test model, started here, and with ``--url`` one that runs. A real engine's own answers
vary by far more than what a gateway adds: there, single requests take turns, short and one at a
time, and the difference of each pair is shown besides the percentiles of all.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import uvloop

from llmgw_core.gateway.link import GatewayLink, spawn
from llmgw_core.gateway.settings import GatewaySettings
from llmgw_core.gateway.table import RouteModel, Table, Target

STREAMS = 32
WORDS = 200
WORDS_REAL = 8
PAIRS_REAL = 150
WARM_UPS = 2


class Caller(asyncio.Protocol):
    """One kept connection that sends a request and waits for the end of its answer."""

    def __init__(self) -> None:
        self.chunks = 0
        self._done: asyncio.Future[None] | None = None
        self._tail = b""
        self._missing: int | None = None
        self._seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    async def ask(self, request: bytes) -> None:
        self._done = asyncio.get_running_loop().create_future()
        self._missing, self._seen, self._tail = None, b"", b""
        self.transport.write(request)
        async with asyncio.timeout(120):
            await self._done

    def data_received(self, data: bytes) -> None:
        self.chunks += 1
        if self._missing is None:
            self._seen += data
            head, split, body = self._seen.partition(b"\r\n\r\n")
            if not split:
                return
            if b" 200 " not in head[:16]:
                self._finish(RuntimeError(self._seen[:500].decode("latin-1")))
                return
            lower = head.lower()
            found = lower.find(b"content-length:")
            self._missing = int(lower[found + 15 :].split(b"\r\n", 1)[0]) if found >= 0 else -1
            data = body
        if self._missing >= 0:
            self._missing -= len(data)
            ended = self._missing == 0
        else:
            self._tail = (self._tail + data)[-5:]
            ended = self._tail == b"0\r\n\r\n"
        if ended:
            self._finish(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(ConnectionError("closed"))

    def _finish(self, error: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(error) if error else self._done.set_result(None)


@dataclass(frozen=True)
class Place:
    """Where requests go, and the process whose CPU is counted."""

    host: str
    port: int
    model: str
    key: str = ""
    pid: int | None = None

    def request(self, *, stream: bool, tokens: int, words: int = WORDS) -> bytes:
        body = json.dumps(
            {
                "model": self.model,
                "messages": [{"role": "user", "content": "word " * words}],
                "temperature": 0,
                "max_tokens": tokens,
                "stream": stream,
            },
            separators=(",", ":"),
        ).encode()
        key = f"authorization: Bearer {self.key}\r\n" if self.key else ""
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self.host}:{self.port}\r\n{key}"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def cpu_s(self) -> float | None:
        """CPU seconds of the process so far, from the scheduler where it tells."""
        if self.pid is None:
            return None
        try:
            return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0]) / 1e9
        except (OSError, ValueError, IndexError):
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _callers(place: Place, count: int) -> list[Caller]:
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(Caller, place.host, place.port) for _ in range(count)]
    return [caller for _, caller in made]


async def latencies(place: Place, requests: int, tokens: int) -> list[float]:
    """Milliseconds of each of these requests, one after the other."""
    (caller,) = await _callers(place, 1)
    raw = place.request(stream=False, tokens=tokens)
    found = []
    await caller.ask(raw)
    for _ in range(requests):
        began = time.perf_counter()
        await caller.ask(raw)
        found.append((time.perf_counter() - began) * 1000)
    caller.transport.close()
    return found


async def rate(
    place: Place, clients: int, requests: int, tokens: int
) -> tuple[float, float | None]:
    """Requests a second with so many clients at once, and CPU microseconds a request."""
    callers = await _callers(place, clients)
    raw = place.request(stream=False, tokens=tokens)

    async def work(caller: Caller) -> None:
        for _ in range(max(requests // clients, 1)):
            await caller.ask(raw)

    cpu, began = place.cpu_s(), time.perf_counter()
    await asyncio.gather(*(work(caller) for caller in callers))
    elapsed, after = time.perf_counter() - began, place.cpu_s()
    for caller in callers:
        caller.transport.close()
    done = max(requests // clients, 1) * clients
    spent = (after - cpu) / done * 1e6 if cpu is not None and after is not None else None
    return done / elapsed, spent


async def chunk_cost(place: Place, streams: int, tokens: int) -> float | None:
    """CPU microseconds of the process for each chunk, with so many streams at once."""
    callers = await _callers(place, streams)
    raw = place.request(stream=True, tokens=tokens)
    cpu = place.cpu_s()
    await asyncio.gather(*(caller.ask(raw) for caller in callers))
    after = place.cpu_s()
    chunks = sum(caller.chunks for caller in callers)
    for caller in callers:
        caller.transport.close()
    return (after - cpu) / chunks * 1e6 if cpu is not None and after is not None else None


@dataclass
class Figures:
    """One figure per round for each line of the table."""

    rows: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float | None) -> None:
        if value is not None:
            self.rows.setdefault(name, []).append(value)

    def show(self) -> None:
        print(f"{'':44}{'median':>10}{'min':>10}{'max':>10}")
        for name, values in self.rows.items():
            median = statistics.median(values)
            print(f"{name:44}{median:10.3g}{min(values):10.3g}{max(values):10.3g}")


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


async def measure(
    direct: Place, through: Place, rounds: int, requests: int, tokens: int
) -> Figures:
    """All rounds, direct and through in turn, the order changing each time."""
    figures = Figures()
    for number in range(rounds):
        order = [("direct", direct), ("gateway", through)]
        if number % 2:
            order.reverse()
        found: dict[str, list[float]] = {}
        for name, place in order:
            found[name] = await latencies(place, requests, tokens)
            for clients in (1, 32):
                per_s, cpu = await rate(place, clients, requests, tokens)
                figures.add(f"requests/s, {clients} at once, {name}", per_s)
                figures.add(f"CPU us a request, {clients} at once, {name}", cpu)
        for label, share in (("p50", 0.5), ("p99", 0.99)):
            for name, values in found.items():
                figures.add(f"latency {label} ms, {name}", percentile(values, share))
            added = percentile(found["gateway"], share) - percentile(found["direct"], share)
            figures.add(f"added {label} ms", added)
        cost = await chunk_cost(through, STREAMS, tokens)
        figures.add(f"CPU us a chunk, {STREAMS} streams", cost)
        figures.add(f"chunks per CPU second, {STREAMS} streams", 1e6 / cost if cost else None)
    return figures


async def _timed(
    callers: list[Caller], which: int, places: tuple[Place, Place], raw: bytes
) -> float:
    """Milliseconds of one request.

    A server may end a connection that was kept for long (llama.cpp after 5 s, and after 100
    requests): only the bare engine may, and is then asked again on a new one.
    """
    for last in (False, True):
        if callers[which].transport.is_closing():
            callers[which] = (await _callers(places[which], 1))[0]
        began = time.perf_counter()
        try:
            await callers[which].ask(raw)
            break
        except ConnectionError:
            if which or last:
                raise
    return (time.perf_counter() - began) * 1000


async def measure_pairs(
    direct: Place, through: Place, pairs: int, tokens: int, *, stream: bool
) -> list[tuple[float, float]]:
    """Milliseconds of direct requests and of those through the gateway, taking turns one by one."""
    places = (direct, through)
    raw = [place.request(stream=stream, tokens=tokens, words=WORDS_REAL) for place in places]
    callers = [(await _callers(place, 1))[0] for place in places]
    found: list[tuple[float, float]] = []
    for number in range(-WARM_UPS, pairs):
        took = [0.0, 0.0]
        for which in (0, 1) if number % 2 else (1, 0):
            took[which] = await _timed(callers, which, places, raw[which])
        if number >= 0:
            found.append((took[0], took[1]))
    for caller in callers:
        caller.transport.close()
    return found


def show_pairs(name: str, pairs: list[tuple[float, float]]) -> None:
    """Percentiles of both ways, and of what the gateway added within a pair."""
    columns = [
        ("direct", [d for d, _ in pairs]),
        ("gateway", [g for _, g in pairs]),
        ("added, in a pair", [g - d for d, g in pairs]),
    ]
    print(f"{f'{name}, ms, n={len(pairs)}':44}{'p25':>10}{'p50':>10}{'p75':>10}{'p99':>10}")
    for label, values in columns:
        cells = "".join(f"{percentile(values, s):10.3f}" for s in (0.25, 0.5, 0.75, 0.99))
        print(f"  {label:42}{cells}")


@asynccontextmanager
async def _engine(arguments: argparse.Namespace, folder: Path) -> AsyncIterator[Place]:
    """The engine that was asked for; ended if it was started here."""
    if arguments.url:
        parts = urlsplit(arguments.url)
        host, port = parts.hostname or "127.0.0.1", parts.port or 80
        yield Place(host, port, arguments.model, arguments.key)
    elif arguments.engine:
        from tests.bench.real_engine import real_engine

        async with real_engine(folder) as (port, key):
            yield Place("127.0.0.1", port, "smol", key)
    else:
        argv = [sys.executable, "-m", "tests.bench.scripted_engine"]
        engine = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        try:
            assert engine.stdout is not None
            yield Place("127.0.0.1", int(engine.stdout.readline()), arguments.model)
        finally:
            engine.kill()
            engine.wait()


async def run(arguments: argparse.Namespace) -> None:
    """Start what is needed, measure, print, and end what was started."""
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as folder:
        state = Path(folder) / "gateway"
        state.mkdir(mode=0o700)
        async with _engine(arguments, Path(folder) / "engine") as direct:
            gateway = spawn(state, GatewaySettings(port=0))
            try:
                await _measure(arguments, direct, await _route(state, direct))
            finally:
                gateway.kill()
                gateway.wait()


async def _measure(arguments: argparse.Namespace, direct: Place, through: Place) -> None:
    if arguments.url or arguments.engine:
        pairs, tokens = arguments.requests or PAIRS_REAL, arguments.tokens
        for name, stream in (("whole answers", False), ("streams to their end", True)):
            cpu = through.cpu_s()
            found = await measure_pairs(direct, through, pairs, tokens, stream=stream)
            after = through.cpu_s()
            show_pairs(f"{name}, {tokens} tokens", found)
            if cpu is not None and after is not None:
                asked = pairs + WARM_UPS
                print(f"  {'CPU us a request, gateway':42}{(after - cpu) / asked * 1e6:10.0f}")
    else:
        requests = arguments.requests or 500
        figures = await measure(direct, through, arguments.rounds, requests, arguments.tokens)
        figures.show()


async def _route(state: Path, direct: Place) -> Place:
    """Tell the gateway about the engine; where it listens."""
    async with asyncio.timeout(20):
        while True:
            try:
                link = await GatewayLink.connect(state)
                break
            except OSError:
                await asyncio.sleep(0.05)
    target = Target(id="bench", host=direct.host, port=direct.port, api_key=direct.key)
    model = RouteModel(name=direct.model, targets=(target,), state="ready")
    await link.send_table(Table(version=1, models=(model,)))
    async for message in link.messages():
        if message.report is not None and message.report.table_version == 1:
            await link.close()
            host, _, port = message.report.address.rpartition(":")
            return Place(host, int(port), direct.model, pid=message.report.pid)
    raise RuntimeError("the gateway hung up")


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", help="a real engine's address, as http://HOST:PORT")
    parser.add_argument("--model", default="m", help="the name that engine serves under")
    parser.add_argument("--key", default="", help="its API key")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--requests", type=int, default=0, help="in each part of a round; pairs over a real engine"
    )
    parser.add_argument("--tokens", type=int, default=4, help="asked of a real engine")
    parser.add_argument("--engine", action="store_true", help="start a real engine to measure over")
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
