"""From `llmgw` to the first painted frame, on a pseudo-terminal, with an engine that never answers.

    python -m tests.bench.bench_first_paint

The first paint is the first time that the console's frame stands in the output. CPU is that of the
process until then, from /proc/PID/stat. Byte code is kept, as an installed console keeps it, even
where PYTHONDONTWRITEBYTECODE is set: without, every start compiles all of our modules again.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 7
BOUND_S = 60.0
FRAME = "╭".encode()
PROGRAM = """
import sys
sys.argv = ["llmgw"]
from llmgw_core.cli import console
from llmgw_core.cli import main
import asyncio
async def never(self, progress):
    progress("starting the engine")
    await asyncio.Event().wait()
console.Connection.open = never
main()
"""


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, its children's not counted."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def once(folder: Path) -> tuple[float, float]:
    """(CPU, wall) seconds of one start to its first paint."""
    env = {**os.environ, "HOME": str(folder), "LLMGW_STATE": str(folder / "state"),
           "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "48",
           "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}  # fmt: skip
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(sys.executable, [sys.executable, "-c", PROGRAM], env)
    seen = b""
    try:
        while FRAME not in seen:
            ready, _, _ = select.select([terminal], [], [], BOUND_S)
            if not ready:
                raise TimeoutError(seen[-500:].decode(errors="replace"))
            seen += os.read(terminal, 65536)
        return cpu_s(pid), time.perf_counter() - began
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        once(Path(folder))  # the first writes the byte code
        figures = [once(Path(folder)) for _ in range(ROUNDS)]
    for name, values in (("CPU", [f[0] for f in figures]), ("wall", [f[1] for f in figures])):
        print(
            f"first paint {name:5} median {statistics.median(values) * 1000:6.0f} ms "
            f"[{min(values) * 1000:.0f}-{max(values) * 1000:.0f}], n={ROUNDS}"
        )
    print("aim: below 450 ms of CPU")


if __name__ == "__main__":
    main()
