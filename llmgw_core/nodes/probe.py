"""Everything that is asked of a node, in one round trip; there it is ``scripts/probe.sh``."""

from __future__ import annotations

import logging
import re
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from llmgw_core.errors import RemoteFailed
from llmgw_core.nodes import gpus
from llmgw_core.nodes.exec import Exec
from llmgw_core.nodes.facts import EngineFacts, Facts, GpuFacts
from llmgw_core.nodes.hardware import KIB_PER_GIB, count_cores, memory_gb
from llmgw_core.nodes.script import load, optional_word, word
from llmgw_core.nodes.weights import complete_keys
from llmgw_core.plain_text import sanitise

_log = logging.getLogger(__name__)

PROBE_TIMEOUT_S = 45.0
"""Bound on a probe; what hangs on the node is given up after 20 s there."""

_LLAMA_VERSION = re.compile(r"version:\s*(\S+(?: \([0-9a-f]+\))?)")
_PACKAGE_ENGINES = {"xllamacpp": "llamacpp", "vllm": "vllm"}


@dataclass(frozen=True, slots=True)
class ProbeHints:
    """What the configuration knows about a node beforehand."""

    state_dir: str | None = None
    """llmgw's directory on the node; the default where left out."""
    engine_paths: Mapping[str, str] = field(default_factory=dict)
    """By engine name: a program, or a Python that can import the engine's package."""
    engine_pythons: tuple[str, ...] = ()
    """More Python interpreters whose packages to look at."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When the question left and its answer came, in Unix seconds of this machine."""

    asked_at: float
    answered_at: float


async def probe(exec_: Exec, hints: ProbeHints, *, clock: Callable[[], float] = time.time) -> Facts:
    """Ask a node everything; what it does not answer is None.

    Raises:
        NodeLost: the link went away.
        RemoteFailed: the node's shell could not run the script at all.
    """
    args = [
        optional_word(hints.state_dir),
        optional_word(hints.engine_paths.get("llamacpp")),
        optional_word(hints.engine_paths.get("vllm")),
        *(word(python) for python in hints.engine_pythons),
    ]
    asked_at = clock()
    result = await exec_.script(
        load("lib.sh", "cgroup.sh", "held_list.sh", "probe.sh"), *args, timeout_s=PROBE_TIMEOUT_S
    )
    timing = Timing(asked_at, clock())
    said = result.stderr.decode(errors="replace").strip() or "nothing came back"
    if result.exit_status != 0:
        _log.warning("the probe ended with %d: %s", result.exit_status, said[-300:])
    if not result.stdout.strip():
        msg = f"the probe did not run on the node: {said}"
        raise RemoteFailed(msg, exit_status=result.exit_status, output=said)
    return parse_probe(result.stdout, timing)


class _Answers:
    """Lines of ``KEY<TAB>VALUE``, by key."""

    def __init__(self, output: bytes) -> None:
        self._lines: dict[str, list[str]] = defaultdict(list)
        for line in output.decode(errors="replace").splitlines():
            key, tab, value = line.partition("\t")
            if tab:
                self._lines[key].append(value)

    def one(self, key: str) -> str | None:
        values = self._lines.get(key)
        return values[0].strip() or None if values else None

    def all(self, key: str) -> list[str]:
        return self._lines.get(key, [])

    def flag(self, key: str) -> bool | None:
        return {"y": True, "n": False}.get(self.one(key) or "")

    def text(self, key: str) -> str:
        return "\n".join(self.all(key))

    def job(self, name: str) -> tuple[str | None, list[str]]:
        """How a job ended (``0``, ``127`` for a missing tool, ``hung``…) and what it printed."""
        return self.one(f"{name}.status"), self.all(f"{name}.out")

    @property
    def jobs_ran(self) -> bool:
        return "nvidia.status" in self._lines


def parse_probe(output: bytes, timing: Timing) -> Facts:
    """The facts in probe.sh's output."""
    answers = _Answers(output)
    logical, physical = count_cores(
        answers.one("cpus.allowed"),
        answers.all("cpus.siblings"),
        answers.one("nproc"),
        answers.all("cpu.quota"),
    )
    total, available = memory_gb(
        answers.one("MemTotal:"), answers.one("MemAvailable:"), answers.one("memory.limits") or ""
    )
    name = answers.one("os")
    boot = answers.one("boot")
    return Facts(
        os=name.strip("\"'") if name else answers.one("uname"),
        arch=answers.one("arch"),
        cores_logical=logical,
        cores_physical=physical,
        memory_gb=total,
        memory_available_gb=available,
        disk_free_gb=parse_df(answers.job("disk")[1]),
        gpus=_gpus(answers),
        engines=_engines(answers) if answers.jobs_ran else None,
        boot_id=None if boot == "unknown" else boot,
        clock_skew_s=clock_skew_s(answers.one("clock"), answers.one("took"), timing),
        home=answers.one("home"),
        state_dir=answers.one("state"),
        hostname=answers.one("hostname"),
        state_writable=answers.flag("state.writable"),
        state_there=answers.flag("state.there"),
        state_trouble=_words(answers.one("state.trouble")),
        state_executable=answers.flag("state.executable"),
        unusable=tuple(sanitise(text) for text in answers.all("unusable")),
        weights=_weights(answers),
        ephemeral_ports=_ports(answers.one("ports.ephemeral")),
    )


def _ports(said: str | None) -> tuple[int, int] | None:
    words = (said or "").split()
    if len(words) != 2 or not all(word.isascii() and word.isdecimal() for word in words):
        return None
    return int(words[0]), int(words[1])


def _words(text: str | None) -> str | None:
    return sanitise(text) if text else None


def clock_skew_s(clock: str | None, took_cs: str | None, timing: Timing) -> float | None:
    """The node's clock less ours at the moment that it was read.

    The node read it first of all and then worked for ``took_cs`` hundredths of a second; the rest
    of the time went to the two ways of the link, taken as equally long.
    """
    seconds, dot, fraction = (clock or "").partition(".")
    if not seconds.isdigit():
        return None
    # a date without fractions is half a second late on average
    node = float(f"{seconds}.{fraction}") if dot and fraction.isdigit() else int(seconds) + 0.5
    work_s = int(took_cs) / 100 if took_cs and took_cs.isdigit() else 0.0
    way_s = max(0.0, timing.answered_at - timing.asked_at - work_s) / 2
    return node - (timing.asked_at + way_s)


def parse_df(lines: list[str]) -> float | None:
    """Free GiB in the output of ``df -Pk DIR``."""
    for line in lines[1:]:
        match = re.search(r"\s(\d+)\s+(\d+)\s+(\d+)\s+\d+%\s", line)
        if match:
            return int(match[3]) / KIB_PER_GIB
    return None


def _weights(answers: _Answers) -> frozenset[str] | None:
    status, lines = answers.job("weights")
    return complete_keys(line.encode() for line in lines) if status == "0" else None


def _gpus(answers: _Answers) -> tuple[GpuFacts, ...] | None:
    if not answers.jobs_ran:
        return None
    found: list[GpuFacts] = []
    pci = gpus.parse_pci(answers.all("pci.out"))
    status, lines = answers.job("nvidia")
    cards = gpus.parse_nvidia(lines) if status == "0" else ()
    if cards or status == "0":
        found += cards
    else:
        on_bus = [gpu for gpu in pci if gpu.vendor == gpus.NVIDIA]
        # a driver that hangs or fails makes its cards unusable, and a card without driver is too
        found += gpus.unhealthy(on_bus)
        if not on_bus and status not in {"127", "6", "9"}:
            return None
    amd = _amd(answers)
    found += amd if amd is not None else [gpu for gpu in pci if gpu.vendor == gpus.AMD]
    return tuple(found)


def _amd(answers: _Answers) -> tuple[GpuFacts, ...] | None:
    status, _ = answers.job("rocm")
    if status == "0" and (cards := gpus.parse_rocm(answers.text("rocm.out"))) is not None:
        return cards
    if answers.job("amd_static")[0] == "0":
        cards = gpus.parse_amd_smi(answers.text("amd_static.out"), answers.text("amd_metric.out"))
        if cards is not None:
            return cards
    on_bus = tuple(g for g in gpus.parse_pci(answers.all("pci.out")) if g.vendor == gpus.AMD)
    # a tool that is there and does not answer is a driver in trouble
    if {status, answers.job("amd_static")[0]} - {"127"}:
        return gpus.unhealthy(on_bus)
    return on_bus or None


def _engines(answers: _Answers) -> tuple[EngineFacts, ...]:
    found = [
        *_llama(answers),
        *_packages(answers, "xllamacpp"),
        *_vllm(answers),
        *_packages(answers, "vllm"),
    ]
    unique = {(engine.kind, engine.path): engine for engine in reversed(found)}
    return tuple(engine for engine in found if unique[engine.kind, engine.path] is engine)


def _llama(answers: _Answers) -> list[EngineFacts]:
    status, lines = answers.job("llama")
    if not lines:
        return []
    if status != "0":
        _log.warning("llama-server at %s does not run: %s", lines[0], " ".join(lines[1:])[:300])
        return []
    match = _LLAMA_VERSION.search("\n".join(lines[1:]))
    return [EngineFacts("llamacpp", "llama-server", lines[0], match[1] if match else None)]


def _vllm(answers: _Answers) -> list[EngineFacts]:
    status, lines = answers.job("vllm")
    if not lines or status == "127":
        return []
    return [EngineFacts("vllm", "vllm", lines[0], _version("vllm", lines[1:]))]


def _packages(answers: _Answers, package: str) -> list[EngineFacts]:
    found = []
    number = 1
    while (job := answers.job(f"python{number}"))[0] is not None:
        number += 1
        status, lines = job
        version = _version(package, lines[1:]) if status == "0" else None
        if version is not None:
            found.append(EngineFacts(_PACKAGE_ENGINES[package], package, lines[0], version))
    return found


def _version(package: str, lines: list[str]) -> str | None:
    for line in lines:
        name, _, version = line.partition(" ")
        if name == package and version:
            return version.strip()
    return None
