"""Asks the engine for serve plans while a person types."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from llmgw_core.api.client import Client
from llmgw_core.api.serve_views import ServePlanView
from llmgw_core.api.views import Command
from llmgw_core.errors import LlmgwError, NoController

CALM_S = 0.3
"""Without another key for so long, the engine is asked."""
ANSWER_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Question:
    """A source, and the fields that a person has changed."""

    source: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """A plan, or the sentence that says why there is none."""

    question: Question
    view: ServePlanView | None = None
    error: str = ""


class Planner:
    """One question at a time; of those that come meanwhile only the newest is asked.

    So answers come in the order of their questions, and a slow engine is asked no more often than
    it answers. ``run`` belongs to one task; another source is a reason to start it anew.
    """

    def __init__(
        self,
        client: Callable[[], Client | None],
        told: Callable[[Answer], None],
        *,
        calm_s: float = CALM_S,
        within_s: float = ANSWER_WITHIN_S,
    ) -> None:
        self._client = client
        self._told = told
        self._calm_s = calm_s
        self._within_s = within_s
        self._question: Question | None = None
        self._asking: Question | None = None
        """What is on its way."""
        self._hurry = False
        self._new = asyncio.Event()

    def ask(self, question: Question, *, at_once: bool = False) -> None:
        """Ask this next, if it is not on its way already; anything that waits is forgotten."""
        self._question = question
        if question == self._asking:
            self._new.clear()
            return
        self._hurry = self._hurry or at_once
        self._new.set()

    async def run(self) -> None:
        """Ask as long as this task lives."""
        while True:
            await self._new.wait()
            await self._calm()
            self._asking = self._question
            if self._asking is not None:
                answer = await self._answer(self._asking)
                self._asking = None
                self._told(answer)

    async def _calm(self) -> None:
        """Until nothing new has come for a moment, or it is wanted at once."""
        self._new.clear()
        while not self._hurry:
            try:
                async with asyncio.timeout(self._calm_s):
                    await self._new.wait()
            except TimeoutError:
                break
            self._new.clear()
        self._hurry = False

    async def _answer(self, question: Question) -> Answer:
        client = self._client()
        try:
            if client is None:
                raise NoController(
                    "There is no connection to the engine", hint="wait until it is back"
                )
            args = {"source": question.source, "fields": dict(question.fields)}
            async with asyncio.timeout(self._within_s):
                result = await client.command(Command("serve.plan", args))
            return Answer(question, view=msgspec.convert(result.data, ServePlanView))
        except LlmgwError as error:
            return Answer(question, error=str(error))
        except TimeoutError:
            sentence = f"The engine has not answered for {self._within_s:g} s; ctrl+s asks again"
            return Answer(question, error=sentence)
        except msgspec.ValidationError as error:
            return Answer(question, error=f"The engine answers in another version's words: {error}")
