"""Make-believe hardware of a lab's host: GPUs that nvidia-smi tells of, cores and memory."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.lab.hosts import Host

GPUS, CORES, ONLINE = "gpus", "cores", "online"
KIB_PER_GIB = 1 << 20
APPLY = "/etc/lab/hardware"
_APPLY = """
# Shows what lies beside this file; run at each boot and after each change.
cd /etc/lab || exit 1
rm -f /usr/local/bin/nvidia-smi /usr/local/bin/nproc
mkdir -p /usr/local/bin
[ ! -s gpus ] || ln -s /etc/lab/nvidia-smi /usr/local/bin/nvidia-smi
show() { # FILE PLACE
  umount "$2" 2>/dev/null
  [ ! -s "$1" ] || mount --bind "$1" "$2"
}
show meminfo /proc/meminfo
show cpuinfo /proc/cpuinfo
show online /sys/devices/system/cpu/online
[ ! -s cores ] || ln -s /etc/lab/nproc /usr/local/bin/nproc
exit 0
"""


@dataclass(frozen=True, slots=True)
class Card:
    """A kind of GPU, as its tool names it; memory in MiB."""

    name: str
    memory_mib: int


CARDS = {
    "h100": Card("NVIDIA H100 80GB HBM3", 81559),
    "l4": Card("NVIDIA L4", 23034),
    "4090": Card("NVIDIA GeForce RTX 4090", 24564),
}


def prepare(folder: Path) -> None:
    """The host's folder /etc/lab, with no make-believe in it yet."""
    (folder / "hardware").write_text(_APPLY)
    (folder / "nproc").write_text("#!/bin/sh\ncat /etc/lab/cores\n")
    (folder / "nproc").chmod(0o755)
    tool = folder / "nvidia-smi"
    text = Path(__file__).with_name("nvidia_smi.py").read_text()
    real = Path(sys.executable).resolve()
    tool.write_text(f"#!{real} -IS\n{text}")
    tool.chmod(0o755)


def gpu(host: Host, spec: str) -> None:
    """Give the host GPUs: ``8xh100``, ``2xl4``; ``none``; ``broken`` (the tool fails as without a
    driver) or ``hang`` (it never answers)."""
    path = host.disk / "lab" / GPUS
    if spec == "none":
        path.unlink(missing_ok=True)
        host.undo.pop("gpu", None)
    else:
        path.write_text(f"{spec}\n" if spec in ("broken", "hang") else _cards(spec))
        host.undo["gpu"] = lambda: gpu(host, "none")
    host.run("sh", APPLY)


def _cards(spec: str) -> str:
    count, _, kind = spec.partition("x")
    card = CARDS[kind]
    return "".join(f"{card.name}|{card.memory_mib}|1|0\n" for _ in range(int(count)))


def hw(host: Host, cores: int | None, memory_gib: int = 0) -> None:
    """Let the host look as if it had so many cores and so much memory; None undoes it."""
    folder = host.disk / "lab"
    if cores is None:
        for name in (CORES, ONLINE, "cpuinfo", "meminfo"):
            (folder / name).unlink(missing_ok=True)
        host.undo.pop("hw", None)
    else:
        (folder / CORES).write_text(f"{cores}\n")
        (folder / ONLINE).write_text(f"0-{cores - 1}\n")
        one = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        rest = "\n".join(line for line in one if not line.startswith("processor"))
        text = "".join(f"processor\t: {number}\n{rest}\n\n" for number in range(cores))
        (folder / "cpuinfo").write_text(text)
        (folder / "meminfo").write_text(_meminfo(memory_gib))
        host.undo["hw"] = lambda: hw(host, None)
    host.run("sh", APPLY)


def _meminfo(gib: int) -> str:
    total = gib * KIB_PER_GIB
    said = {"MemTotal": total, "MemFree": total * 8 // 10, "MemAvailable": total * 9 // 10}
    lines = []
    for line in Path("/proc/meminfo").read_text().splitlines():
        key = line.partition(":")[0]
        lines.append(f"{key}: {said[key]:>14} kB" if key in said else line)
    return "\n".join([*lines, ""])
