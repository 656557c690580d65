"""Clients that ask the gateway all the while, and take note of every answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import httpx

from tests.e2e.cluster import chat

PAUSE_S = 0.3
ANSWER_MOST_S = 100.0
"""A client that waits for longer was left without an answer."""
CLEAN = (429, 502, 503, 504)
"""Statuses that tell a client to try again."""


@dataclass(frozen=True, slots=True)
class Asker:
    """One client: what it asks for, and how often."""

    model: str
    stream: bool
    tokens: int = 4
    asks: int = 1
    """So many in a row, then a rest."""
    rest_s: float = PAUSE_S


@dataclass(slots=True)
class Answers:
    """What clients got."""

    asked: int = 0
    ok: Counter[str] = field(default_factory=Counter)
    """Whole answers, by model."""
    errors: Counter[str] = field(default_factory=Counter)
    """Clean errors, by status and code."""
    unclean: list[str] = field(default_factory=list)
    excused: int = 0
    """Requests that were cut while the gateway itself was killed."""
    longest_s: float = 0.0

    def minus(self, before: Answers) -> Answers:
        """What came since then."""
        return Answers(
            self.asked - before.asked,
            self.ok - before.ok,
            self.errors - before.errors,
            self.unclean[len(before.unclean) :],
            self.excused - before.excused,
            self.longest_s,
        )

    def copy(self) -> Answers:
        """As of now."""
        return Answers(self.asked, self.ok.copy(), self.errors.copy(), list(self.unclean),
                       self.excused, self.longest_s)  # fmt: skip


class Clients:
    """Ask while the block lasts. ``gateway_away`` excuses what breaks while the gateway is away."""

    def __init__(self, url: str, askers: Sequence[Asker]) -> None:
        self.url = url
        self.answers = Answers()
        self._askers = askers
        self._tasks: list[asyncio.Task[None]] = []
        self._away_since: float | None = None
        self._back_at = 0.0

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._ask_on(asker)) for asker in self._askers]
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    def gateway_killed(self) -> None:
        """From now on requests may break, until ``gateway_serves``."""
        self._away_since = time.monotonic()

    def gateway_serves(self) -> None:
        """It is back: requests that begin from now on are answered again."""
        self._away_since, self._back_at = None, time.monotonic()

    @property
    def gateway_away(self) -> bool:
        """Whether it was killed and is not back yet."""
        return self._away_since is not None

    async def _ask_on(self, asker: Asker) -> None:
        limits = httpx.Limits(max_keepalive_connections=1)
        async with httpx.AsyncClient(timeout=ANSWER_MOST_S, limits=limits) as http:
            while True:
                for _ in range(asker.asks):
                    await self._ask_once(http, asker)
                    await asyncio.sleep(PAUSE_S)
                await asyncio.sleep(asker.rest_s)

    async def _ask_once(self, http: httpx.AsyncClient, asker: Asker) -> None:
        began = time.monotonic()
        self.answers.asked += 1
        try:
            async with asyncio.timeout(ANSWER_MOST_S):
                trouble = await self._answer(http, asker)
        except (httpx.HTTPError, TimeoutError) as error:
            trouble = f"{type(error).__name__}: {error}"
        took = time.monotonic() - began
        self.answers.longest_s = max(self.answers.longest_s, took)
        if trouble and (self.gateway_away or began <= self._back_at):
            self.answers.excused += 1
        elif trouble:
            kind = "stream" if asker.stream else "whole"
            text = f"{asker.model} ({kind}) after {took:.1f} s: {trouble}"
            self.answers.unclean.append(text)

    async def _answer(self, http: httpx.AsyncClient, asker: Asker) -> str:
        """What is wrong with an answer; empty where it is whole, or a clean error."""
        body = {**chat(asker.model, asker.tokens), "stream": asker.stream}
        url = f"{self.url}/v1/chat/completions"
        async with http.stream("POST", url, json=body) as answer:
            if answer.status_code != 200:
                return self._refused(answer.status_code, await answer.aread())
            if asker.stream:
                return await self._streamed(answer, asker.model)
            choices = json.loads(await answer.aread()).get("choices")
            if not choices:
                return "200 without choices"
        self.answers.ok[asker.model] += 1
        return ""

    async def _streamed(self, answer: httpx.Response, model: str) -> str:
        last = ""
        # after its error event a stream has no proper end: nobody shall take it for complete
        with contextlib.suppress(httpx.RemoteProtocolError):
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    last = line.removeprefix("data: ")
        if last == "[DONE]":
            self.answers.ok[model] += 1
            return ""
        error = _error(last)
        if error is None:
            return f"a stream that just ended, with {last[:200]!r}"
        self.answers.errors[f"event {error}"] += 1
        return ""

    def _refused(self, status: int, body: bytes) -> str:
        error = _error(body.decode(errors="replace"))
        if status not in CLEAN or error is None:
            return f"{status} {body[:300]!r}"
        self.answers.errors[f"{status} {error}"] += 1
        return ""


def _error(text: str) -> str | None:
    """The code of an error in OpenAI's shape; None where it has none."""
    try:
        error = json.loads(text)["error"]
        return str(error["code"] or error["type"]) if error["message"] else None
    except (ValueError, KeyError, TypeError):
        return None
