"""CPU of `llmgw run --help` against a bare interpreter, interleaved in one run.

python -m tests.bench.bench_start
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys

ROUNDS = 15


def cpu_s(argv: list[str]) -> float:
    """CPU seconds, user and system, of one process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env=os.environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Measure and print."""
    bare, ours = [], []
    for _ in range(ROUNDS):
        bare.append(cpu_s([sys.executable, "-c", "pass"]))
        ours.append(cpu_s([sys.executable, "-m", "llmgw_core", "run", "--help"]))
    for name, values in (("bare interpreter", bare), ("llmgw run --help", ours)):
        print(
            f"{name:18} median {statistics.median(values) * 1000:6.1f} ms CPU "
            f"[{min(values) * 1000:.1f}-{max(values) * 1000:.1f}], n={ROUNDS}"
        )
    print(f"ratio {statistics.median(ours) / statistics.median(bare):.1f} (aim: below 12)")


if __name__ == "__main__":
    main()
