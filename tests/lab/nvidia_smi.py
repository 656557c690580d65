"""nvidia-smi of a lab's host: answers ``--query-gpu`` and ``-L`` from /etc/lab/gpus.

One line a GPU there: name|MiB in all|MiB used|utilisation in percent. A first line ``broken`` or
``hang`` makes it fail as without a driver, or never answer.
"""

from __future__ import annotations

import os
import sys
import time

DRIVER = "570.133.20"
UNITS = {"memory": " MiB", "utilization": " %"}


def cards() -> list[dict[str, str]]:
    """Every GPU by the fields that can be asked for."""
    with open("/etc/lab/gpus") as file:
        lines = [line.strip() for line in file if line.strip()]
    if lines[0] == "hang":
        time.sleep(86400)
    if lines[0] == "broken":
        print("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
        sys.exit(9)
    found = []
    for index, line in enumerate(lines):
        name, total, used, busy = line.split("|")
        found.append(
            {
                "index": str(index),
                "name": name,
                "uuid": f"GPU-{os.uname().nodename}-{index:04d}",
                "memory.total": total,
                "memory.used": used,
                "memory.free": str(int(total) - int(used)),
                "utilization.gpu": busy,
                "driver_version": DRIVER,
            }
        )
    return found


def answer(words: list[str]) -> int:
    """Print what is asked for; returns the exit status."""
    options = dict(word.lstrip("-").partition("=")[::2] for word in words)
    found = cards()
    if "L" in options:
        for card in found:
            print(f"GPU {card['index']}: {card['name']} (UUID: {card['uuid']})")
        return 0
    names = options.get("query-gpu", "index,name").split(",")
    unknown = [name for name in names if found and name not in found[0]]
    if unknown:
        print(f'Field "{unknown[0]}" is not a valid field to query.')
        return 2
    shape = options.get("format", "csv").split(",")
    if "noheader" not in shape:
        print(", ".join(names))
    for card in found:
        units = {} if "nounits" in shape else UNITS
        print(", ".join(card[name] + units.get(name.partition(".")[0], "") for name in names))
    return 0


if __name__ == "__main__":
    sys.exit(answer(sys.argv[1:]))
