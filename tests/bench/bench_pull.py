"""How fast a pull is over loopback, and what the process spends. Printed, never asserted.

Run as ``python -m tests.bench.bench_pull [MB]``.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from llmgw_core.mirror.store import Store
from tests.mirror.origin import serving


def main() -> None:
    size = int(sys.argv[1]) * 10**6 if len(sys.argv) > 1 else 1_000_000_000
    with tempfile.TemporaryDirectory() as folder, serving() as origin:
        url = origin.put("/a.gguf", os.urandom(1 << 20) * (size >> 20))
        store = Store(Path(folder))
        request = {"root": folder, "source": url, "model": "m", "version": "v"}
        for what in ("pull", "again", "mend"):
            origin.sent = 0
            spent_s, wall_s = run(request)
            rate = origin.sent / wall_s / 1e6
            print(
                f"{what}: {origin.sent / 1e6:.0f} MB in {wall_s:.2f} s ({rate:.0f} MB/s), "
                f"{spent_s:.2f} s of CPU"
            )
            with store.path("m", "v", "a.gguf").open("r+b") as file:
                file.seek(size // 2)
                file.write(b"damage")
            if what == "again":
                began = time.perf_counter()
                findings = store.verify("m", "v")
                print(f"verify: {time.perf_counter() - began:.2f} s, {findings[0].bad_bytes} bad")


def run(request: object) -> tuple[float, float]:
    """CPU seconds and wall seconds of one pull."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "llmgw_core.mirror", "pull"],
        input=json.dumps(request).encode(), stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    if b"done" not in done.stdout.splitlines()[-1]:
        raise SystemExit(done.stdout.splitlines()[-1].decode())
    spent_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent_s, ended - began


if __name__ == "__main__":
    main()
