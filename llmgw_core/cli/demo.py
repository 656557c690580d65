"""``llmgw demo``: everything on this machine, with a real engine and a real small model."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from llmgw_core.cli.place import Place
from llmgw_core.errors import EngineFailed, InvalidInput, LlmgwError
from llmgw_core.plain_text import plain, plain_lines

if TYPE_CHECKING:
    from llmgw_core.api.client import Client
    from llmgw_core.demo.model import FetchProgress

READY_MOST_S = 180.0
ANSWER_MOST_S = 120.0
CONTEXT = 4096
SLOTS = 2


def demo(
    directory: Path | None, *, check: bool, question: str, port: int, theme: str | None
) -> int:
    """Fetch the model where it is missing, then open the console, or ask once with ``check``."""
    if not question.strip():
        raise InvalidInput("--question is empty; leave it out or ask something")
    folder = directory.expanduser().absolute() if directory else _default_folder()
    _need_engine()
    model = _fetch(folder)
    place = _prepare(folder, model, port)
    if check:
        return asyncio.run(_check(place, question))
    from llmgw_core.cli.console import Look, console

    return console(place, Look(theme=theme))


def _default_folder() -> Path:
    from llmgw_core.paths import state_dir

    return state_dir() / "demo"


def _need_engine() -> None:
    from llmgw_core.demo.model import engine_missing

    sentence = engine_missing()
    if sentence:
        raise EngineFailed(sentence)


def _fetch(folder: Path) -> Path:
    """The model's file, downloaded with a progress bar where it is not there yet."""
    from llmgw_core.demo.model import ensure_model

    bar = _Bar()
    try:
        return asyncio.run(ensure_model(folder / "models", progress=bar.show))
    finally:
        bar.end()


class _Bar:
    """One line on stderr: rewritten on a terminal, a few lines otherwise."""

    def __init__(self) -> None:
        self._tty = sys.stderr.isatty()
        self._last = ""
        self._open = False

    def show(self, progress: FetchProgress) -> None:
        """Draw how far the download is."""
        total = progress.bytes_total
        share = progress.bytes_done / total if total else 0.0
        filled = round(share * 30)
        done_mb = progress.bytes_done / 1e6
        of = f"/{total / 1e6:.0f}" if total else ""
        step = f"{share:4.0%}" if self._tty else f"{int(share * 4) * 25:3d}%"
        line = f"{progress.what}  {'━' * filled}{'╌' * (30 - filled)}  {step}"
        if line == self._last:
            return
        self._last = line
        text = f"{line}  {done_mb:.0f}{of} MB"
        if self._tty:
            sys.stderr.write(f"\r\x1b[2K{text}")
            self._open = True
        else:
            sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def end(self) -> None:
        """Leave the line."""
        if self._open:
            sys.stderr.write("\n")
            self._open = False


def _prepare(folder: Path, model: Path, port: int) -> Place:
    """Write the demo's configuration and catalog entry, where they are not there yet."""
    state = folder / "state"
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    config = folder / "config.toml"
    config.write_text(_config_text(folder, port or _old_port(config) or _free_port()))
    entry = state / "catalog.d"
    place = Place(config, state)
    if not entry.exists() or not any(entry.iterdir()):
        _add_model(place, model)
    return place


def _config_text(folder: Path, port: int) -> str:
    import tomli_w

    return "# Written by `llmgw demo` at every start.\n" + tomli_w.dumps(
        {
            "cluster": "demo",
            "gateway": {"host": "127.0.0.1", "port": port},
            "nodes": [{"name": "local", "local": True, "state_dir": str(folder / "node")}],
        }
    )


def _old_port(config: Path) -> int | None:
    """The port of the demo before, so that clients find the next one where they found it."""
    import tomllib

    try:
        port = tomllib.loads(config.read_text()).get("gateway", {}).get("port")
    except (OSError, ValueError):
        return None
    return port if isinstance(port, int) else None


def _free_port() -> int:
    import socket

    for port in (8080, 0):
        with socket.socket() as sock, suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", port))
            return int(sock.getsockname()[1])
    raise LlmgwError("no port is free on 127.0.0.1")


def _add_model(place: Place, model: Path) -> None:
    import time

    import tomli_w

    from llmgw_core.controller.keeper import Keeper
    from llmgw_core.demo.model import MODEL_NAME

    cores = max((os.cpu_count() or 2) // 2, 1)
    toml = tomli_w.dumps(
        {
            "models": [
                {
                    "name": MODEL_NAME,
                    "aliases": ["gpt-4o-mini"],
                    "description": "SmolLM2 135M Instruct, the demo's model (Apache-2.0)",
                    "context_length": CONTEXT // SLOTS,
                    "source": str(model),
                    "scaling": {"min": 1, "max": 1},
                    "profiles": [
                        {
                            "name": "cpu",
                            "engine": "llamacpp",
                            "args": ["--ctx-size", str(CONTEXT), "--parallel", str(SLOTS)],
                            "min_memory_gb": 0.5,
                            "cpu_cores": cores / 2,
                        }
                    ],
                }
            ]
        }
    )

    async def add() -> None:
        keeper = Keeper(place.state, place.config_file, time.time)
        await keeper.load()
        await keeper.change("add", {"toml": toml}, "demo")

    asyncio.run(add())


async def _check(place: Place, question: str) -> int:
    """Run the whole of it once: ready, one streamed answer, everything stopped again."""
    from llmgw_core.api.views import Command
    from llmgw_core.cli.logs import to_file
    from llmgw_core.controller.engine import EngineRun
    from llmgw_core.demo.model import MODEL_NAME

    to_file(place.state / "llmgw.log")
    task = asyncio.current_task()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, lambda: task.cancel() if task else None)
    engine = EngineRun(place.state, place.config_file, "demo")
    client = await engine.start(_say)
    try:
        address = await _ready(client, MODEL_NAME)
        _say(f"asking through http://{address}/v1: {question}")
        await _ask(address, MODEL_NAME, question)
    except asyncio.CancelledError:
        _say("interrupted")
        return 130
    finally:
        _say("stopping")
        stop = {"stop_replicas": True, "stop_gateway": True}
        try:
            await client.command(Command("shutdown", stop, "demo"))
        finally:
            await client.aclose()
    return 0


async def _ready(client: Client, name: str) -> str:
    """Wait until the model is ready and the gateway serves; the gateway's address."""
    said = ""
    try:
        async with asyncio.timeout(READY_MOST_S):
            async for snapshot in client.snapshots():
                replicas = [r for r in snapshot.replicas if r.model == name]
                states = ", ".join(f"{r.id} is {r.state}" for r in replicas) or "placing"
                if states != said:
                    said = states
                    _say(states)
                broken = [r for r in replicas if r.state == "failed"]
                if broken:
                    raise EngineFailed(f"{broken[0].id} failed: {broken[0].reason}")
                gateway = snapshot.gateway
                ready = any(r.state == "ready" for r in replicas)
                if ready and gateway.state == "serving" and gateway.address:
                    return gateway.address
    except TimeoutError:
        raise EngineFailed(f"{name} was not ready after {READY_MOST_S:.0f} s ({said})") from None
    raise LlmgwError("the engine ended before the model was ready")


async def _ask(address: str, model: str, question: str) -> None:
    """Stream one answer to stdout.

    Raises:
        EngineFailed: no answer came, or an empty one.
    """
    import json

    import httpx

    body = {
        "model": model,
        "stream": True,
        "max_tokens": 96,
        "temperature": 0,
        "messages": [{"role": "user", "content": question}],
    }
    pieces = 0
    url = f"http://{address}/v1/chat/completions"
    try:
        async with (
            asyncio.timeout(ANSWER_MOST_S),
            httpx.AsyncClient(timeout=ANSWER_MOST_S) as http,
            http.stream("POST", url, json=body) as response,
        ):
            if response.status_code != httpx.codes.OK:
                text = (await response.aread()).decode(errors="replace")
                raise EngineFailed(f"the gateway answered {response.status_code}: {text[:300]}")
            async for line in response.aiter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                choices = json.loads(line[6:]).get("choices") or [{}]
                piece = choices[0].get("delta", {}).get("content")
                if piece:
                    pieces += 1
                    sys.stdout.write(plain_lines(piece))
                    sys.stdout.flush()
    except (httpx.HTTPError, TimeoutError) as error:
        raise EngineFailed(f"the answer broke off: {type(error).__name__} {error}") from error
    sys.stdout.write("\n")
    if not pieces:
        raise EngineFailed("the answer was empty")


def _say(text: str) -> None:
    sys.stderr.write(f"· {plain(text)}\n")
    sys.stderr.flush()
