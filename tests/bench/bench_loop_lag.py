"""How long the engine keeps its event loop from other work: a real node, snapshots being read.

    python -m tests.bench.bench_loop_lag

A task sleeps for 10 ms again and again and notes by how much it wakes too late: first on a loop
that does nothing else, then beside a controller with real nodes over SSH whose snapshots are read.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from llmgw_core.controller.engine import EngineRun

NAP_S = 0.01
SECONDS = 15.0
NODES = 8


async def lags_ms() -> list[float]:
    """Late wake-ups over the time of the bench."""
    found = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        began = time.perf_counter()
        await asyncio.sleep(NAP_S)
        found.append((time.perf_counter() - began - NAP_S) * 1000)
    return found


def show(name: str, values: list[float]) -> None:
    """One line of figures."""
    ordered = sorted(values)
    p99 = ordered[int(len(ordered) * 0.99)]
    print(
        f"{name:28} p50 {statistics.median(ordered):6.2f} ms  p99 {p99:6.2f} ms  "
        f"max {ordered[-1]:7.2f} ms  n={len(ordered)}"
    )


async def main() -> None:
    """Measure and print."""
    show("idle loop", await lags_ms())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nodes = "".join(
            f'[[nodes]]\nname = "n{i}"\nlocal = true\nstate_dir = "{folder}/n{i}"\n'
            for i in range(NODES)
        )
        config = folder / "config.toml"
        config.write_text(f"[gateway]\nport = 0\n{nodes}")
        engine = EngineRun(folder / "state", config, "bench")
        client = await engine.start()
        try:
            async for snapshot in client.snapshots():
                if all(node.state == "ready" for node in snapshot.nodes):
                    break
            show(f"controller, {NODES} nodes", await lags_ms())
        finally:
            await engine.controller.gateway.stop(drain_s=0)
            await client.aclose()


if __name__ == "__main__":
    asyncio.run(main())
