"""The gateway under OpenAI's own client."""

from __future__ import annotations

from typing import Any

import pytest

from llmgw_core.gateway.table import RouteModel
from tests.gateway.lab import Lab, until
from tests.gateway.upstream import STREAM_HEAD, Conversation, Received, completes, event, hangs

openai = pytest.importorskip("openai")


def client_of(lab: Lab) -> Any:  # the package is not there everywhere
    return openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{lab.port}/v1", api_key="client-key", max_retries=0
    )


MESSAGES = [{"role": "user", "content": "hello"}]


async def test_chat_with_and_without_streaming() -> None:
    async with Lab() as lab:
        up = await lab.upstream(completes)
        lab.serve(up, aliases=["gpt-4"])
        async with client_of(lab) as client:
            whole = await client.chat.completions.create(model="gpt-4", messages=MESSAGES)
            assert whole.choices[0].message.content == "hello"
            stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            words = [chunk.choices[0].delta.content async for chunk in stream]
            assert words == ["one ", "two ", "three"]
        assert {r.headers["authorization"] for r in up.received} == {"Bearer replica-key"}


async def test_models_are_listed() -> None:
    async with Lab() as lab:
        lab.table(RouteModel(name="org/m", created=5), RouteModel(name="n"))
        async with client_of(lab) as client:
            assert [model.id async for model in client.models.list()] == ["org/m", "n"]
            assert (await client.models.retrieve("org/m")).created == 5


async def test_errors_have_the_classes_that_its_users_catch() -> None:
    async with Lab() as lab:
        lab.table(RouteModel(name="m", state="starting"))
        async with client_of(lab) as client:
            with pytest.raises(openai.NotFoundError, match="does not exist") as missing:
                await client.chat.completions.create(model="x", messages=MESSAGES)
            assert missing.value.code == "model_not_found"
            with pytest.raises(openai.InternalServerError, match="has no ready replica"):
                await client.chat.completions.create(model="m", messages=MESSAGES)


async def test_a_stream_that_breaks_off_raises() -> None:
    async def breaks(conversation: Conversation, request: Received) -> bool:
        await conversation.send(STREAM_HEAD)
        await conversation.chunk(event("one"))
        return False

    async with Lab() as lab:
        lab.serve(await lab.upstream(breaks))
        async with client_of(lab) as client:
            stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            seen = []
            with pytest.raises(openai.APIError, match="is incomplete"):
                async for chunk in stream:
                    seen.append(chunk.choices[0].delta.content)
            assert seen == ["one"]


async def test_closing_a_stream_stops_the_replica() -> None:
    async def endless(conversation: Conversation, request: Received) -> bool:
        await conversation.send(STREAM_HEAD)
        await conversation.chunk(event("one"))
        return await hangs(conversation, request)

    async with Lab() as lab:
        up = await lab.upstream(endless)
        lab.serve(up)
        async with client_of(lab) as client:
            stream = await client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            await anext(aiter(stream))
            await stream.close()
            await until(lambda: up.open == 0)
