"""Time from process start to the console's first painted frame, with an engine that never answers.

Run: ``python -m tests.bench.bench_first_paint``. It opens a terminal of its own for each run.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import statistics
import sys
import time

RUNS = 7
AIM_CPU_S = 0.6
WITHIN_S = 30.0
PROGRAM = """
import asyncio
from llmgw_tui.launch import LaunchOptions, launch

async def never(progress):
    await asyncio.Event().wait()

launch(LaunchOptions(connect=never, cluster="bench"))
"""
PAINTED = b"starting the engine"


def first_paint() -> tuple[float, float]:
    """Wall and CPU seconds until the panes stand on the terminal."""
    before = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS="120", LINES="36")
        os.execv(sys.executable, [sys.executable, "-c", PROGRAM])
    try:
        seen = b""
        while PAINTED not in seen:
            if not select.select([terminal], [], [], WITHIN_S)[0]:
                raise TimeoutError("nothing was painted")
            seen += os.read(terminal, 65536)
        return time.perf_counter() - before, cpu_of(child)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(terminal)


def cpu_of(pid: int) -> float:
    """CPU seconds a process has used, its threads included."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Print the medians."""
    first_paint()  # byte code is compiled once
    runs = [first_paint() for _ in range(RUNS)]
    wall = statistics.median(run[0] for run in runs)
    cpu = statistics.median(run[1] for run in runs)
    print(f"first paint, median of {RUNS}: {cpu * 1000:.0f} ms CPU, {wall * 1000:.0f} ms wall "
          f"(aim: below {AIM_CPU_S * 1000:.0f} ms CPU)")  # fmt: skip
    print(f"all: {', '.join(f'{cpu * 1000:.0f}' for _, cpu in runs)} ms CPU")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
