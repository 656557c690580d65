"""llama.cpp's server: ``llama-server`` where a node has it, else our launcher over xllamacpp."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from llmgw_core.catalog.model import CatalogProblem, Profile
from llmgw_core.engines.base import Launch, LaunchRequest
from llmgw_core.engines.llamacpp_options import BY_NAME, Trouble, parse
from llmgw_core.engines.llamacpp_signs import reason_in
from llmgw_core.engines.verdict import Question, llamacpp_question
from llmgw_core.engines.words import ended, option_name
from llmgw_core.errors import InvalidInput
from llmgw_core.metrics.mapping import LLAMACPP, MetricsMapping
from llmgw_core.nodes.facts import EngineFacts

OURS = frozenset(
    {
        "-m", "--model", "-a", "--alias", "--host", "--port", "--metrics",
        "--api-key", "--api-key-file", "--reuse-port", "--api-prefix",
        "--ssl-key-file", "--ssl-cert-file", "--models-dir", "--models-preset",
        "-mu", "--model-url", "-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-dr",
        "--docker-repo", "--log-file", "--log-disable",
    }
)  # fmt: skip
"""Options that llmgw sets, or that would take the engine out of its sight."""

CONTEXT_POOL = 16384
SLOTS = 4
CACHE_RAM_MOST_MIB = 512
CACHE_RAM_SHARE = 0.1
HTTP_THREADS = 128
"""A request holds one of them until its answer ends, so health checks need many to spare."""

KEY_FILE = "key"
LAUNCHER = "launcher.py"
SERVER_SCRIPT = "start.sh"
_PERCENT = re.compile(r"^llmgw: loaded (\d{1,3}) %", re.MULTILINE)
_DOTS = re.compile(r"^\.{2,100}\s*$", re.MULTILINE)
_OWN_IMPORT = re.compile(r"^from llmgw_core\S* import (?:\([^)]*\)|.*)\n", re.MULTILINE)
_FUTURE = "from __future__ import annotations\n"


@dataclass(slots=True)
class LlamaCpp:
    """llama.cpp's server on one node; it runs on the processor alone, or with GPUs."""

    name: str = "llamacpp"
    can_serve_on_cpu: bool = True
    stop_grace_s: float = 10.0
    metrics: MetricsMapping = LLAMACPP
    numbers_prove_life: bool = True
    health_path: str = "/health"

    def validate(self, profile: Profile) -> list[CatalogProblem]:
        """Degrees and nodes above 1, which llama.cpp would accept and not do; options of ours."""
        problems = [
            CatalogProblem(
                f"llamacpp cannot have {key} = {value}: it serves from one machine and splits over "
                f"that machine's GPUs by itself; leave {key} out",
                key=key,
            )
            for key, value in (("nodes", profile.nodes), ("tp", profile.tp), ("pp", profile.pp))
            if value > 1
        ]
        ours = [name for name in map(_plain_name, profile.args) if name in OURS]
        if ours:
            text = f"llamacpp is given {', '.join(ours)} by llmgw itself; remove it from args"
            problems.append(CatalogProblem(text, key="args"))
        return problems

    def launch(self, request: LaunchRequest) -> Launch:
        """The command for a replica, by what was found on the node.

        Raises:
            InvalidInput: an argument that llmgw sets itself, or that the launcher cannot map.
        """
        profile = request.profile
        where = f"profile {profile.name} of {request.model}"
        for problem in self.validate(profile):
            raise InvalidInput(f"{where}: {problem.message}")
        args = _split_values(profile.args)
        command = (*_fixed(request), *_chosen(profile, args), *args)
        files = {KEY_FILE: f"{request.api_key}\n".encode()}
        env = dict(profile.env)
        if request.gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(request.gpus)
        if request.found.kind == "llama-server":
            files[SERVER_SCRIPT] = _server_script()
            start = ("/bin/sh", f"{{dir}}/{SERVER_SCRIPT}", request.found.path, request.source)
            threads = () if "--threads" in command or "-t" in command else ("--own-threads",)
            return Launch((*start, *command, *threads), env, files)
        _refuse_unmapped(where, args, profile)
        files[LAUNCHER] = launcher_file()
        start = (request.found.path, f"{{dir}}/{LAUNCHER}", "--model", request.source)
        return Launch((*start, *command), env, files)

    def architecture_question(self, found: EngineFacts, architecture: str) -> Question | None:
        """A GGUF file that holds no more than the name, for it to complain about."""
        return llamacpp_question(found, architecture, _asker)

    def load_progress(self, log_tail: str) -> float | None:
        """As our launcher tells it, or by the dots that llama-server prints, one for a percent."""
        told = _PERCENT.findall(log_tail)
        if told:
            return min(int(told[-1]), 100) / 100
        dots = _DOTS.findall(log_tail)
        return len(dots[-1].strip()) / 100 if dots else None

    def failure_reason(self, log_tail: str, exit_status: int | None) -> str:
        """One sentence on why it ended."""
        return reason_in(log_tail, exit_status) or ended(
            "llama.cpp's server", exit_status, log_tail
        )


def context_pool(argv: Sequence[str]) -> int | None:
    """Tokens that all slots of a started engine can hold together; None where argv has none."""
    names = BY_NAME["--ctx-size"].names.split()
    given = [argv[i + 1] for i, word in enumerate(argv[:-1]) if word in names]
    return int(given[-1]) or None if given and given[-1].isdigit() else None


def slots_of(engine: str, argv: Sequence[str]) -> int | None:
    """Requests that a started engine works on at once; None where that is not known."""
    settings = settings_key(engine, argv)
    return settings.parallel if settings is not None and settings.parallel > 0 else None


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What of a command line decides how much memory the context takes."""

    context: int
    """Tokens that all slots hold together; 0 for what the model was trained with."""
    parallel: int
    kv_type: str
    """``f16``, or ``q8_0/f16`` where keys and values differ."""


def settings_key(engine: str, argv: Sequence[str]) -> MemorySettings | None:
    """The settings in a started engine's command line, or in a profile's args.

    What is not said there is what llmgw says in its place. None for another engine, and where a
    value does not read.
    """
    if engine != LlamaCpp().name:
        return None
    context = _last_value(argv, "--ctx-size", str(CONTEXT_POOL))
    parallel = _last_value(argv, "--parallel", str(SLOTS))
    keys, values = (_last_value(argv, f"--cache-type-{x}", "f16").lower() for x in "kv")
    if not (_is_count(context) and _is_count(parallel) and keys and values):
        return None
    return MemorySettings(
        int(context), int(parallel), keys if keys == values else f"{keys}/{values}"
    )


def _last_value(argv: Sequence[str], option: str, default: str) -> str:
    names = BY_NAME[option].names.split()
    found = default
    for i, word in enumerate(argv):
        if _plain_name(word) in names:
            _, equals, value = word.partition("=")
            found = value if equals else "".join(argv[i + 1 : i + 2])
    return found


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _plain_name(arg: str) -> str:
    name = option_name(arg)
    return name.replace("_", "-") if name.startswith("--") else name


def _split_values(args: tuple[str, ...]) -> tuple[str, ...]:
    """``--option=value`` as two words: llama-server takes nothing else."""
    words: list[str] = []
    for arg in args:
        name, equals, value = arg.partition("=")
        if equals and name.startswith("--") and " " not in name:
            words += [name, value]
        else:
            words.append(arg)
    return tuple(words)


def _fixed(request: LaunchRequest) -> tuple[str, ...]:
    """What llmgw has to know of an engine to find it again, and the key that protects it."""
    return (
        *("--alias", request.model, "--host", request.host, "--port", str(request.port)),
        *("--api-key-file", f"{{dir}}/{KEY_FILE}", "--metrics"),
    )


def _chosen(profile: Profile, args: tuple[str, ...]) -> tuple[str, ...]:
    """What the estimate assumes, said out loud, but for what the profile says itself.

    ``--try`` stands before what not every build knows.
    """
    said = {BY_NAME[name].fields for name in map(_plain_name, args) if name in BY_NAME}
    threads = () if profile.cpu_cores is None else (str(max(1, int(profile.cpu_cores))),)
    wanted: tuple[tuple[str, ...], ...] = (
        *(("--threads", count) for count in threads),
        *(("--threads-batch", count) for count in threads),
        ("--ctx-size", str(CONTEXT_POOL)),
        ("--parallel", str(SLOTS)),
        ("--threads-http", str(HTTP_THREADS)),
        ("--try", "--kv-unified"),
        ("--try", f"--cache-ram={_cache_ram_mib(profile)}"),
        ("--try", "--ctx-checkpoints=0"),
        ("--try", "--load-mode=none"),
        ("--try", "--fit=off"),
    )
    return tuple(word for row in wanted if _fields_of(row) not in said for word in row)


def _fields_of(row: tuple[str, ...]) -> str:
    return BY_NAME[option_name(row[1] if row[0] == "--try" else row[0])].fields


def _cache_ram_mib(profile: Profile) -> int:
    """A tenth of what the profile reserves, 512 MiB at most."""
    if not profile.min_memory_gb:
        return CACHE_RAM_MOST_MIB
    return min(CACHE_RAM_MOST_MIB, int(profile.min_memory_gb * 1024 * CACHE_RAM_SHARE))


def _refuse_unmapped(where: str, args: tuple[str, ...], profile: Profile) -> None:
    """Say now what the launcher would say on the node."""
    try:
        parse(list(args))
    except Trouble as trouble:
        raise InvalidInput(
            f"{where}: {trouble}; remove it from args, or install llama-server on the node"
        ) from trouble
    for name in profile.env:
        if name.startswith("LLAMA_ARG_"):
            raise InvalidInput(
                f"{where}: the variable {name} says nothing to the xllamacpp package; write it as "
                "an option in args"
            )


@cache
def launcher_file() -> bytes:
    """The launcher as it lies on a node: options and launcher in one file."""
    folder = Path(__file__).parent
    options = (folder / "llamacpp_options.py").read_text(encoding="utf-8")
    launcher = (folder / "llamacpp_launcher.py").read_text(encoding="utf-8")
    return (options + _OWN_IMPORT.sub("", launcher.replace(_FUTURE, ""))).encode()


@cache
def _asker() -> bytes:
    return (Path(__file__).parent / "verdict_ask.py").read_bytes()


@cache
def _server_script() -> bytes:
    return (Path(__file__).parent / "llamacpp_server.sh").read_bytes()
