"""Asks the engines of all ready nodes whether they can load an architecture."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from llmgw_core.controller.render import NodeSeen
from llmgw_core.engines.verdict import Opinion, Verdict, combine
from llmgw_core.errors import LlmgwError
from llmgw_core.gguf.architectures import architecture
from llmgw_core.nodes.api import NodeHandle
from llmgw_core.nodes.facts import NodeState
from llmgw_core.plain_text import sanitise

ASK_MOST_S = 30.0


async def ask_engines(
    name: str, nodes: Iterable[NodeSeen], handles: Mapping[str, NodeHandle]
) -> tuple[Opinion, dict[str, Verdict]]:
    """What the llama.cpp on each ready node says of an architecture, and what that adds up to."""
    verdicts: dict[str, Verdict] = {}

    async def ask(seen: NodeSeen) -> None:
        found = seen.facts.engine("llamacpp") if seen.facts else None
        handle = handles.get(seen.config.name)
        if found is None or handle is None:
            return
        try:
            async with asyncio.timeout(ASK_MOST_S):
                verdicts[seen.config.name] = await handle.knows_architecture(found, name)
        except (LlmgwError, TimeoutError) as error:
            verdicts[seen.config.name] = Verdict(
                None, sanitise(str(error), most=300) or "it did not answer"
            )

    if not name:
        return Opinion(), verdicts
    async with asyncio.TaskGroup() as group:
        for seen in nodes:
            if seen.state is NodeState.READY:
                group.create_task(ask(seen))
    known = architecture(name) is not None
    return combine(verdicts, architecture=name, known_to_table=known), verdicts
