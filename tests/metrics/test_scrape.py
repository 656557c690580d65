"""The scraper against a loopback server that answers as told."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from llmgw_core.metrics.mapping import LLAMACPP
from llmgw_core.metrics.scrape import BODY_MOST, Answer, ReplicaScraper

KEY = "sk-secret"
MODELS = json.dumps({"object": "list", "data": [{"id": "smol", "aliases": ["small"]}]})
METRICS = "llamacpp:requests_processing 1\nllamacpp:tokens_predicted_total 100\n"
SLOTS = json.dumps(
    [
        {"is_processing": True, "n_prompt_tokens": 64, "next_token": [{"n_decoded": 10}]},
        {"is_processing": True, "n_prompt_tokens_processed": 60, "next_token": {"n_decoded": 4}},
        {"is_processing": False, "n_prompt_tokens": 900},
    ]
)
LOADING = json.dumps({"error": {"message": "Loading model", "code": 503}})

Reply = tuple[int, str]


class Upstream:
    """Answers each path as told, and remembers what was asked."""

    def __init__(self) -> None:
        self.replies: dict[str, Reply] = {
            "/health": (200, "{}"),
            "/v1/models": (200, MODELS),
            "/metrics": (200, METRICS),
            "/slots": (200, SLOTS),
        }
        self.asked: list[str] = []
        self.raw: bytes | None = None
        self.hang: Callable[[asyncio.StreamWriter], object] | None = None
        self.base = ""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                await self._answer(head, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: str, writer: asyncio.StreamWriter) -> None:
        path = head.split(" ", 2)[1]
        self.asked.append(path)
        if self.raw is not None:
            writer.write(self.raw)
            await writer.drain()
            writer.close()
            return
        if self.hang is not None:
            self.hang(writer)
            await asyncio.Event().wait()
        status, body = self.replies[path]
        if path != "/health" and f"authorization: bearer {KEY}" not in head.lower():
            status, body = 401, '{"error":{"message":"Invalid API Key"}}'
        text = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        writer.write(text.encode())
        await writer.drain()


@asynccontextmanager
async def serving() -> AsyncIterator[Upstream]:
    upstream = Upstream()
    server = await asyncio.start_server(upstream.handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    upstream.base = f"http://127.0.0.1:{port}"
    try:
        yield upstream
    finally:
        server.close()


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with serving() as made:
        yield made


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient() as made:
        yield made


def scraper(
    client: httpx.AsyncClient, base: str, *, model: str = "smol", key: str = KEY
) -> ReplicaScraper:
    return ReplicaScraper(client, base, model, LLAMACPP, api_key=key, context_pool=256)


async def test_a_ready_engine_gives_its_numbers(
    upstream: Upstream, client: httpx.AsyncClient
) -> None:
    result = await scraper(client, upstream.base).scrape()
    assert (result.answer, result.healthy, result.serves) == (Answer.OK, True, True)
    assert result.numbers is not None
    assert result.numbers.running == 1
    assert result.numbers.output_tokens_total == 114
    assert result.numbers.kv_usage == 0.5
    assert result.error == ""


async def test_an_alias_is_a_name_too(upstream: Upstream, client: httpx.AsyncClient) -> None:
    assert (await scraper(client, upstream.base, model="small").scrape()).serves is True


async def test_a_model_list_that_was_right_is_not_asked_again(
    upstream: Upstream, client: httpx.AsyncClient
) -> None:
    asks = scraper(client, upstream.base)
    await asks.scrape()
    await asks.scrape()
    assert upstream.asked.count("/v1/models") == 1
    assert upstream.asked.count("/metrics") == 2


async def test_one_that_loads_says_so_in_its_own_words(
    upstream: Upstream, client: httpx.AsyncClient
) -> None:
    upstream.replies["/health"] = (503, LOADING)
    result = await scraper(client, upstream.base).scrape()
    assert (result.answer, result.healthy, result.serves) == (Answer.LOADING, False, None)
    assert result.error == "/health answers 503 (Loading model)"
    assert upstream.asked == ["/health"]


async def test_one_that_serves_something_else_is_not_ours(
    upstream: Upstream, client: httpx.AsyncClient
) -> None:
    result = await scraper(client, upstream.base, model="other").scrape()
    assert (result.healthy, result.serves, result.numbers) == (True, False, None)
    assert "does not name other" in result.error


async def test_one_that_refuses_the_key_is_told_apart(
    upstream: Upstream, client: httpx.AsyncClient
) -> None:
    result = await scraper(client, upstream.base, key="wrong").scrape()
    assert result.answer is Answer.KEY_REFUSED
    assert result.error == "/v1/models answers 401 (Invalid API Key)"
    assert "wrong" not in repr(scraper(client, upstream.base, key="wrong"))


async def test_nobody_there(client: httpx.AsyncClient) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    result = await scraper(client, f"http://127.0.0.1:{port}").scrape()
    assert result.answer is Answer.NO_CONNECTION
    assert not result.answer.came
    assert "/health cannot be reached" in result.error


@pytest.mark.parametrize(
    "raw", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"]
)
async def test_something_else_that_answers(
    upstream: Upstream, client: httpx.AsyncClient, raw: bytes
) -> None:
    upstream.raw = raw
    result = await scraper(client, upstream.base).scrape()
    assert result.answer is Answer.UNEXPECTED
    assert not result.healthy


@pytest.mark.parametrize("models", ["<html>", "[]", '{"data": 1}', '{"error": "no"}'])
async def test_a_model_list_that_is_none(
    upstream: Upstream, client: httpx.AsyncClient, models: str
) -> None:
    upstream.replies["/v1/models"] = (200, models)
    result = await scraper(client, upstream.base).scrape()
    assert (result.answer, result.healthy, result.serves) == (Answer.UNEXPECTED, True, None)


@pytest.mark.parametrize("begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"])
async def test_one_that_never_finishes_its_answer_is_bounded(
    upstream: Upstream, client: httpx.AsyncClient, begun: bytes
) -> None:
    upstream.hang = lambda writer: writer.write(begun)
    asks = scraper(client, upstream.base)
    asks.timeout_s = 0.05
    result = await asks.scrape()
    assert result.answer is Answer.TIMEOUT
    assert "/health does not answer within 0.05 s" in result.error


async def test_an_answer_without_an_end_is_not_read_to_it(
    upstream: Upstream, client: httpx.AsyncClient
) -> None:
    upstream.replies["/metrics"] = (200, "x" * (BODY_MOST + 1))
    result = await scraper(client, upstream.base).scrape()
    assert (result.answer, result.serves, result.numbers) == (Answer.UNEXPECTED, True, None)


async def test_numbers_that_fail_leave_a_ready_engine_ready(
    upstream: Upstream, client: httpx.AsyncClient
) -> None:
    asks = scraper(client, upstream.base)
    await asks.scrape()
    upstream.replies["/metrics"] = (500, "")
    result = await asks.scrape()
    assert (result.healthy, result.serves, result.numbers) == (True, True, None)


@pytest.mark.parametrize("reply", [(501, ""), (404, "{}"), (200, "{}")])
async def test_an_engine_without_slots_keeps_its_other_numbers_and_is_not_asked_again(
    upstream: Upstream, client: httpx.AsyncClient, reply: Reply
) -> None:
    upstream.replies["/slots"] = reply
    asks = scraper(client, upstream.base)
    for _ in range(2):
        result = await asks.scrape()
        assert result.numbers is not None
        assert (result.numbers.output_tokens_total, result.numbers.kv_usage) == (100, None)
    assert upstream.asked.count("/slots") == 1
