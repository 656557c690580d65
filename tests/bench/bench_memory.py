"""Estimated memory of llama.cpp's server against what it takes, with the settings llmgw passes.

python -m tests.bench.bench_memory MODEL.gguf... [--ctx 2048,4096] [--slots 1,2u,4] [--fill]

For each context and number of slots (``u``: one pool for all) a server is started as on a node and
given a prompt as long as a slot may hold, or with ``--fill`` as many as fill its prompt cache. Then
its peak is read: VmHWM, into which the weights go once because they are not mapped, and what the
launcher's first process has for itself. Without ``--fill`` the estimate leaves the cache out.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from llmgw_core.catalog.model import Profile
from llmgw_core.engines.base import LaunchRequest
from llmgw_core.engines.llamacpp import LlamaCpp
from llmgw_core.gguf.hyper import Hyper, hyper
from llmgw_core.gguf.memory import Memory, Settings, estimate
from llmgw_core.gguf.reader import read_header_of_file
from llmgw_core.gguf.words import MIB
from llmgw_core.nodes.facts import EngineFacts

KEY = "bench"
MOST_OVER = 1.15
MOST_OVER_MIB = 150
LOAD_S, ANSWER_S = 120.0, 580.0
FIRST_TOKENS = 1000
"""Token ids below are control tokens in some vocabularies."""


@dataclass(frozen=True, slots=True)
class Row:
    """One server: what was estimated and what it took, in MiB."""

    settings: Settings
    memory: Memory
    is_filled: bool
    """Whether its prompt cache was filled; otherwise that is left out of the estimate."""
    loaded_mib: float
    peak_mib: float

    @property
    def estimated_mib(self) -> float:
        """What should have been enough."""
        unused = 0 if self.is_filled else self.memory.prompt_cache_bytes
        return (self.memory.memory_bytes - unused) / MIB

    @property
    def over_mib(self) -> float:
        """How much more was estimated than was taken."""
        return self.estimated_mib - self.peak_mib

    @property
    def is_good(self) -> bool:
        """Enough, and not much too much."""
        return 0 <= self.over_mib <= max(self.peak_mib * (MOST_OVER - 1), MOST_OVER_MIB)


class Server:
    """A server as llmgw starts it on a node, in a folder of its own."""

    def __init__(self, model: Path, settings: Settings, memory: Memory, folder: Path) -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port: int = sock.getsockname()[1]
        pool = "--kv-unified" if settings.unified else "--no-kv-unified"
        args = ("--ctx-size", str(settings.ctx), "--parallel", str(settings.parallel), pool)
        profile = Profile(
            "cpu", "llamacpp", args=args, cpu_cores=2, min_memory_gb=memory.min_memory_gb
        )
        found = EngineFacts(name="llamacpp", kind="xllamacpp", path=sys.executable)
        request = LaunchRequest("m", str(model), profile, found, "127.0.0.1", self.port, KEY)
        launch = LlamaCpp().launch(request)
        for name, content in launch.files.items():
            (folder / name).write_bytes(content)
        argv = [word.replace("{dir}", str(folder)) for word in launch.argv]
        self._log = (folder / "log").open("wb")
        self.process = subprocess.Popen(argv, stdout=self._log, stderr=subprocess.STDOUT)
        self._folder = folder

    def stop(self) -> None:
        """End both processes."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self._log.close()

    def wait_until_ready(self) -> None:
        """Until it answers; its log is the error where it does not."""
        until = time.monotonic() + LOAD_S
        while time.monotonic() < until and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise RuntimeError((self._folder / "log").read_text(errors="replace")[-4000:])

    def complete(self, tokens: list[int]) -> None:
        """One answer of one token to a prompt."""
        body = json.dumps({"prompt": tokens, "n_predict": 1, "cache_prompt": True}).encode()
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        url = f"http://127.0.0.1:{self.port}/completion"
        request = urllib.request.Request(url, body, headers)
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            answer.read()

    def taken_mib(self, field: str) -> float:
        """The server's own figure, and what its parent has for itself alone."""
        child = int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text())
        own = _status(Path(f"/proc/{child}/status"), field)
        parent = _status(Path(f"/proc/{self.process.pid}/smaps_rollup"), "Private_Dirty")
        return own + parent


def _status(path: Path, field: str) -> float:
    line = next(row for row in path.read_text().splitlines() if row.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


@contextmanager
def served(model: Path, settings: Settings, memory: Memory) -> Iterator[Server]:
    """A server that has loaded; it is ended afterwards."""
    folder = Path(tempfile.mkdtemp())
    server = Server(model, settings, memory, folder)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def measure(model: Path, shape: Hyper, weights: int, settings: Settings, given: Prompts) -> Row:
    """Start a server, give it prompts, and read what it took."""
    memory = estimate(shape, weights, settings)
    longest = memory.context_per_slot - 4
    length = min(given.length or longest, longest)
    numbers = random.Random(1)
    known = shape.vocabulary or 2 * FIRST_TOKENS
    with served(model, settings, memory) as server:
        loaded = server.taken_mib("VmRSS")
        for _ in range(_filling(memory, settings, length) if given.fill else 1):
            server.complete([numbers.randrange(FIRST_TOKENS, known) for _ in range(length)])
        return Row(settings, memory, given.fill, loaded, server.taken_mib("VmHWM"))


def _filling(memory: Memory, settings: Settings, length: int) -> int:
    """Prompts that overflow the prompt cache, after one for each slot."""
    tokens = memory.context_per_slot * (1 if settings.unified else settings.parallel)
    entry = max(1, memory.kv_bytes * length // tokens)
    return settings.parallel + -(-memory.prompt_cache_bytes // entry) + 1


@dataclass(frozen=True, slots=True)
class Prompts:
    """What a server is given."""

    length: int
    """Tokens; 0: as many as a slot holds."""
    fill: bool
    """As many as fill the prompt cache; otherwise one."""


def _slots(text: str) -> list[tuple[int, bool]]:
    return [(int(word.rstrip("u")), word.endswith("u")) for word in text.split(",")]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--ctx", default="2048,4096,8192,16384")
    parser.add_argument("--slots", default="1,2,2u,4,4u")
    parser.add_argument("--length", type=int, default=0, help="of a prompt; 0: a whole slot")
    parser.add_argument("--fill", action="store_true", help="fill the prompt cache too")
    given = parser.parse_args()
    for model in given.models:
        shape, weights = hyper(read_header_of_file(model)), model.stat().st_size
        print(f"{model.name}, {weights / MIB:.0f} MiB; all in MiB")
        print("  ctx slots |   KV engine cache | estimate loaded  peak | over")
        for ctx in map(int, given.ctx.split(",")):
            for slots, unified in _slots(given.slots):
                settings = Settings(ctx, slots, unified)
                prompts = Prompts(given.length, given.fill)
                print(_line(measure(model, shape, weights, settings, prompts)), flush=True)


def _line(row: Row) -> str:
    memory, settings = row.memory, row.settings
    slots = f"{settings.parallel}{'u' if settings.unified else ''}"
    cache = f"{memory.prompt_cache_bytes / MIB:.0f}" if row.is_filled else "–"
    kept = (memory.kv_bytes + memory.state_bytes) / MIB
    return (
        f"{settings.ctx:5} {slots:>5} | {kept:4.0f} {memory.engine_bytes / MIB:6.0f} {cache:>5} | "
        f"{row.estimated_mib:8.0f} {row.loaded_mib:6.0f} {row.peak_mib:5.0f} | "
        f"{row.over_mib:+5.0f} {row.over_mib / row.peak_mib:+4.0%}{'' if row.is_good else ' <<<'}"
    )


if __name__ == "__main__":
    main()
