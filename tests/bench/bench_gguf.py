"""What reading a GGUF header costs: bytes, requests, CPU and memory, from a file and over HTTP.

python -m tests.bench.bench_gguf [FILE.gguf …]

The files given, a made-up header with 262,144 tokens, and the dearest headers that are accepted.
The web server is a process of its own, so that its CPU does not count.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx

from llmgw_core.gguf import limits
from llmgw_core.gguf.facts import facts
from llmgw_core.gguf.http_source import HttpSource
from llmgw_core.gguf.parse import Type
from llmgw_core.gguf.reader import read_header
from llmgw_core.gguf.sources import ByteSource, FileSource
from tests.gguf.web import serving
from tests.gguf.writer import File, array, numbers, tensor, text, vocabulary

ROUNDS = 5
MIB = 1 << 20


def many_tensors() -> bytes:
    """As many tensors as are accepted."""
    file = File(tensors=[tensor(f"blk.{n}.{'x' * 50}", (0,)) for n in range(limits.TENSORS_MOST)])
    return bytes(file)


def many_texts() -> bytes:
    """As many texts in lists as are accepted, all empty."""
    count = limits.STRINGS_MOST
    return bytes(File().raw("x", Type.ARRAY, array(Type.STRING, count, bytes(8 * count))))


def much_kept() -> bytes:
    """Nearly as much metadata as is kept, in its most expensive form."""
    file = File()
    for number in range(limits.KEPT_MOST // (8 * limits.ARRAY_KEPT_MOST + 80)):
        values = [300 + n for n in range(limits.ARRAY_KEPT_MOST)]
        file.raw(f"k{number}", Type.ARRAY, numbers(Type.UINT16, values))
    return bytes(file)


def many_keys() -> bytes:
    """As many keys as are accepted."""
    head = [text(f"k{n}") + b"\7\0\0\0\1" for n in range(limits.KEYS_MOST)]
    return bytes(File(keys=head))


async def measure(make: Callable[[], ByteSource], *, whole: bool) -> str:
    """One line of figures."""
    best = float("inf")
    for _ in range(ROUNDS):
        source = make()
        before = time.process_time()
        header = await read_header(source, whole=whole)
        facts(header)
        best = min(best, time.process_time() - before)
    tracemalloc.start()
    await read_header(make(), whole=whole)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    share = "" if not header.header_bytes else f" {source.bytes_read / header.header_bytes:5.2f}"
    return (
        f"{source.requests:3} requests {source.bytes_read:10,} bytes{share:6} of the header, "
        f"{best * 1000:7.1f} ms CPU, peak {peak / MIB:5.1f} MiB"
    )


async def over_http(path: Path) -> None:
    """The same from a server in a process of its own."""
    argv = [sys.executable, "-m", "tests.bench.bench_gguf", "--serve", str(path)]
    server = await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE)
    assert server.stdout is not None
    try:
        url = (await server.stdout.readline()).decode().strip()
        async with httpx.AsyncClient(trust_env=False) as client:
            for whole in (False, True):
                figures = await measure(partial(HttpSource, client, url), whole=whole)
                print(f"  http {'whole ' if whole else 'prefix'} {figures}")
    finally:
        server.terminate()
        await server.wait()


async def serve(path: Path) -> None:
    """Serve one file until terminated."""
    async with serving(path.read_bytes()) as web:
        print(f"{web.base}/m.gguf", flush=True)
        await asyncio.Event().wait()


async def bench(paths: list[Path]) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made-up, 262144 tokens")
        made.write_bytes(vocabulary(262_144, merges=100_000, tensors=300))
        for path in [*paths, made]:
            print(path.name)
            for whole in (False, True):
                figures = await measure(partial(FileSource, path), whole=whole)
                print(f"  file {'whole ' if whole else 'prefix'} {figures}")
            await over_http(path)
        for make in (many_tensors, many_texts, much_kept, many_keys):
            path = Path(folder, make.__name__)
            path.write_bytes(make())
            figures = await measure(partial(FileSource, path), whole=True)
            print(f"{make.__name__}\n  file whole  {figures}")


def main() -> None:
    """As called."""
    given = sys.argv[1:]
    if given[:1] == ["--serve"]:
        asyncio.run(serve(Path(given[1])))
    else:
        asyncio.run(bench([Path(name) for name in given]))


if __name__ == "__main__":
    main()
