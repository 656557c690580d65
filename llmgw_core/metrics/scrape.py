"""Asks one engine over HTTP: its health, the models it names, its numbers. Every answer bounded."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum

import httpx
import msgspec

from llmgw_core.metrics.mapping import MetricsMapping
from llmgw_core.metrics.values import EngineNumbers, Slot, numbers_in

BODY_MOST = 2 * 1024 * 1024
SAID_MOST = 120


class Answer(StrEnum):
    """What came of a question."""

    OK = "ok"
    LOADING = "loading"
    """503: it lives, and is not ready."""
    KEY_REFUSED = "key refused"
    UNEXPECTED = "unexpected"
    """Something answers that is not this engine, or not as it should."""
    NO_CONNECTION = "no connection"
    TIMEOUT = "timeout"

    @property
    def came(self) -> bool:
        """Whether anything answered at all."""
        return self not in (Answer.NO_CONNECTION, Answer.TIMEOUT)


@dataclass(frozen=True, slots=True)
class ScrapeResult:
    """One round of questions."""

    answer: Answer
    """To the first question that was not answered with OK, or OK."""
    healthy: bool = False
    """Its own health check says that the model is loaded."""
    serves: bool | None = None
    """Whether the model list names the model; None where it was not asked or not answered."""
    numbers: EngineNumbers | None = None
    error: str = ""
    """What went wrong, for a person."""


class _Trouble(Exception):
    """A question that was not answered as it should be."""

    def __init__(self, answer: Answer, said: str) -> None:
        super().__init__(said)
        self.answer = answer


class _Model(msgspec.Struct):
    id: str = ""
    aliases: list[str] = []


class _ModelList(msgspec.Struct):
    data: list[_Model]


class _NextToken(msgspec.Struct):
    n_decoded: int = 0


class _Slot(msgspec.Struct):
    is_processing: bool = False
    n_prompt_tokens: int = 0
    n_prompt_tokens_processed: int = 0
    next_token: list[_NextToken] | _NextToken | None = None


class _Said(msgspec.Struct):
    message: str = ""


class _Error(msgspec.Struct):
    error: _Said | str = ""


@dataclass(slots=True)
class ReplicaScraper:
    """One replica's engine, asked through a client that many share."""

    client: httpx.AsyncClient
    base: str
    """``http://host:port``."""
    model: str
    """The name that the engine has to serve under."""
    names: MetricsMapping
    api_key: str = field(default="", repr=False)
    health_path: str = "/health"
    context_pool: int | None = None
    timeout_s: float = 5.0
    """For each question, from the first byte sent to the last received."""
    _serves: bool = False
    _slots: bool = True

    async def scrape(self) -> ScrapeResult:
        """Health; once healthy, whether it serves the model, and its numbers. Never raises for
        an engine that does not answer."""
        try:
            await self._get(self.health_path)
        except _Trouble as trouble:
            self._serves = False
            return ScrapeResult(trouble.answer, error=str(trouble))
        try:
            if not self._serves:
                self._serves = self.model in await self.served_models()
            if not self._serves:
                said = f"its model list does not name {self.model}"
                return ScrapeResult(Answer.UNEXPECTED, True, serves=False, error=said)
            numbers = await self.numbers()
        except _Trouble as trouble:
            return ScrapeResult(trouble.answer, True, self._serves or None, error=str(trouble))
        return ScrapeResult(Answer.OK, True, serves=True, numbers=numbers)

    async def served_models(self) -> frozenset[str]:
        """Names and aliases of its model list."""
        body = await self._get("/v1/models")
        try:
            listed = msgspec.json.decode(body, type=_ModelList).data
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _Trouble(Answer.UNEXPECTED, "/v1/models is not a list of models") from error
        return frozenset(name for item in listed for name in (item.id, *item.aliases) if name)

    async def numbers(self) -> EngineNumbers:
        """Its metrics, and after them its slots where it has them (see ``values.following``)."""
        text = (await self._get("/metrics")).decode(errors="replace")
        slots = await self._busy_slots() if self.names.slots_path and self._slots else None
        return numbers_in(text, self.names, slots, self.context_pool)

    async def one_token(self, timeout_s: float) -> str:
        """Ask for one token: why that failed, or nothing where any answer came.

        An engine that refuses such a request (one for embeddings, say) works as well.
        """
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        body = {"model": self.model, "prompt": "1", "max_tokens": 1, "temperature": 0}
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self.client.post(
                    f"{self.base}/v1/completions", json=body, headers=headers, timeout=timeout_s
                )
        except (TimeoutError, httpx.TimeoutException):
            return f"no answer within {timeout_s:g} s"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return str(error) or type(error).__name__
        broken = answer.status_code >= 500 and answer.status_code != httpx.codes.NOT_IMPLEMENTED
        return f"it answers {answer.status_code}" if broken else ""

    async def _busy_slots(self) -> tuple[Slot, ...] | None:
        try:
            body = await self._get(self.names.slots_path)
            slots = msgspec.json.decode(body, type=list[_Slot])
        except _Trouble as trouble:
            # 404 or 501: switched off for this engine, so not asked again
            self._slots = trouble.answer is not Answer.UNEXPECTED
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._slots = False
            return None
        return tuple(_slot(slot) for slot in slots if slot.is_processing)

    async def _get(self, path: str) -> bytes:
        """The body of an answer with 200."""
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        try:
            async with (
                asyncio.timeout(self.timeout_s),
                self.client.stream("GET", self.base + path, headers=headers) as response,
            ):
                body = await _read(response, path)
        except (TimeoutError, httpx.TimeoutException) as error:
            said = f"{path} does not answer within {self.timeout_s:g} s"
            raise _Trouble(Answer.TIMEOUT, said) from error
        except (httpx.RemoteProtocolError, httpx.DecodingError) as error:
            said = f"what answers on {path} does not speak HTTP as it should ({error})"
            raise _Trouble(Answer.UNEXPECTED, said) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            said = f"{path} cannot be reached ({str(error) or type(error).__name__})"
            raise _Trouble(Answer.NO_CONNECTION, said) from error
        _check(response.status_code, path, body)
        return body


async def _read(response: httpx.Response, path: str) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > BODY_MOST:
            raise _Trouble(Answer.UNEXPECTED, f"{path} answers more than {BODY_MOST} bytes")
    return bytes(body)


def _check(status: int, path: str, body: bytes) -> None:
    """Raise for an answer other than 200, with the engine's own words where it has some."""
    match status:
        case httpx.codes.OK:
            return
        case httpx.codes.SERVICE_UNAVAILABLE:
            answer = Answer.LOADING
        case httpx.codes.UNAUTHORIZED | httpx.codes.FORBIDDEN:
            answer = Answer.KEY_REFUSED
        case _:
            answer = Answer.UNEXPECTED
    words = _words(body)
    raise _Trouble(answer, f"{path} answers {status}" + (f" ({words})" if words else ""))


def _words(body: bytes) -> str:
    try:
        error = msgspec.json.decode(body, type=_Error).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
    text = error if isinstance(error, str) else error.message
    return "".join(char for char in text if char.isprintable())[:SAID_MOST]


def _slot(slot: _Slot) -> Slot:
    after = slot.next_token
    tokens = after if isinstance(after, list) else [after] if after is not None else []
    decoded = sum(token.n_decoded for token in tokens)
    held = slot.n_prompt_tokens or slot.n_prompt_tokens_processed + decoded
    return Slot(held, decoded, slot.n_prompt_tokens_processed)
