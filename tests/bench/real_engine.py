"""A real engine to measure over: xllamacpp with the small test model, started as on a node."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from llmgw_core.demo.model import ensure_model
from llmgw_core.engines.llamacpp import LlamaCpp
from tests.engines.requests import KEY, request, start

READY_WITHIN_S = 120.0


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


async def model_file() -> Path:
    """The model from $LLMGW_TEST_MODEL, else from $LLMGW_TEST_CACHE, where it is fetched to."""
    given, cache = os.environ.get("LLMGW_TEST_MODEL"), os.environ.get("LLMGW_TEST_CACHE")
    if given:
        return Path(given)
    if not cache:
        sys.exit("say where the model lies: set LLMGW_TEST_MODEL or LLMGW_TEST_CACHE")
    return await ensure_model(Path(cache).absolute(), progress=lambda _: None)


@asynccontextmanager
async def real_engine(folder: Path) -> AsyncIterator[tuple[int, str]]:
    """Port and key of a server with one slot and one thread that has loaded its model.

    One slot keeps the prompt in its cache, and one thread leaves a core to the gateway: what is
    measured is the way to the engine, not the engine.
    """
    port, source = free_port(), await model_file()
    asked = request("-c", "1024", "--parallel", "1", source=str(source), port=port, cores=1)
    started = start(LlamaCpp().launch(asked), folder)
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            while not await _is_ready(port):
                if started.process.poll() is not None:
                    sys.exit(f"the engine did not start:\n{started.text()[-2000:]}")
                await asyncio.sleep(0.1)
        yield port, KEY
    finally:
        started.end()


async def _is_ready(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    try:
        return b" 200 " in await reader.readline()
    except OSError:
        return False
    finally:
        writer.close()
