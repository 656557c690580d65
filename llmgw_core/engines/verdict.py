"""Whether an engine can load an architecture: the question, its answers, and what they add up to.

llama.cpp is asked itself: it is given a GGUF file that names the architecture and holds nothing
else. It looks the architecture up before anything other, so that one it does not know and one whose
figures are missing are different complaints. Pure; ``nodes.verdicts`` asks.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from llmgw_core.engines.words import last_line
from llmgw_core.gguf.architectures import CHECKED_BUILD
from llmgw_core.nodes.facts import EngineFacts
from llmgw_core.plain_text import sanitise

ASKED_S = 20
"""How long an engine may take over its answer on the node; measured are 0.1 to 0.2 s."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_STRING = 8
_PROJECTOR = re.compile(r"CLIP cannot be used as main model")
_KNOWN = re.compile(
    r"error loading model (?:hyperparameters|vocabulary)|key not found in model: |missing tensor '"
)
_SILENT = f"it gave no answer within {ASKED_S} s"
_WANTING = {
    69: "its Python cannot import xllamacpp",
    73: "no directory could be made for the question",
    124: _SILENT,
    126: "its program may not be executed",
    127: "its program is not there any more",
    132: "it was built for a newer processor than the node has",
    137: _SILENT,
    143: _SILENT,  # busybox's timeout
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one engine on one node says about an architecture."""

    known: bool | None
    """None where the engine did not or cannot say."""
    sentence: str
    """Why: ``unknown architecture 'foo'``, or what kept it from answering."""
    engine: str = ""
    """The engine and its version, as a person calls them."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a node's script is given: the kind and path of the engine, and a payload in parts."""

    kind: str
    path: str
    model: bytes
    """A GGUF file."""
    program: bytes
    """For the Python interpreter at ``path``; empty where the engine is a program itself."""


@dataclass(frozen=True, slots=True)
class Opinion:
    """What the engines of several nodes say together. Sentences; empty where there is none."""

    refusal: str = ""
    """Nobody can load it: a model of this architecture is not to be served."""
    warning: str = ""
    """Some cannot, or nobody could be asked and the table speaks against it."""
    unable: tuple[str, ...] = ()
    """The nodes whose engine does not know it; a replica there would not start."""


def is_askable(architecture: str) -> bool:
    """Whether this can be an architecture's name. Names come from files that nobody vouches for."""
    return _NAME.fullmatch(architecture) is not None


def tiny_gguf(architecture: str) -> bytes:
    """A GGUF file (version 3) with ``general.architecture`` and nothing else, 65 to 128 bytes.

    Raises:
        ValueError: no architecture can have this name.
    """
    if not is_askable(architecture):
        raise ValueError(f"{architecture!r} cannot be the name of an architecture")
    key, value = b"general.architecture", architecture.encode()
    return b"".join(
        (
            struct.pack("<4sIQQ", b"GGUF", 3, 0, 1),
            struct.pack("<Q", len(key)),
            key,
            struct.pack("<IQ", _STRING, len(value)),
            value,
        )
    )


def llamacpp_question(
    found: EngineFacts, architecture: str, asker: Callable[[], bytes]
) -> Question | None:
    """The question for a llama.cpp; None where it cannot be put.

    ``asker`` gives the program that lets xllamacpp load a file.
    """
    if found.kind not in ("llama-server", "xllamacpp") or not is_askable(architecture):
        return None
    program = asker() if found.kind == "xllamacpp" else b""
    return Question(found.kind, found.path, tiny_gguf(architecture), program)


def read_answer(found: EngineFacts, architecture: str, exit_status: int, output: str) -> Verdict:
    """The verdict in what an engine printed about the tiny file, and in how it ended."""
    engine, name = label(found), quoted(architecture)
    if f"unknown model architecture: '{architecture}'" in output:
        return Verdict(False, f"unknown architecture {name}", engine)
    if _PROJECTOR.search(output):
        what = f"{name} is a projector's, to be served beside its model and not by itself"
        return Verdict(False, what, engine)
    if _KNOWN.search(output):
        return Verdict(True, f"it knows {name}", engine)
    return Verdict(None, _WANTING.get(exit_status) or _strange(exit_status, output), engine)


def not_asked(found: EngineFacts, architecture: str) -> Verdict:
    """For an engine that has no question."""
    if is_askable(architecture):
        return Verdict(None, f"{found.name} cannot be asked for its architectures", label(found))
    return Verdict(None, f"{quoted(architecture)} is no name of an architecture", label(found))


def quoted(architecture: str) -> str:
    """A name as sentences have it, whatever a file calls itself."""
    return repr(sanitise(architecture, most=64))


def label(found: EngineFacts) -> str:
    """``llama.cpp 2026.10.11549``."""
    name = {"llamacpp": "llama.cpp", "vllm": "vLLM"}.get(found.name, found.name)
    return sanitise(f"{name} {found.version}" if found.version else name, most=80)


def combine(
    verdicts: Mapping[str, Verdict], architecture: str, *, known_to_table: bool | None = None
) -> Opinion:
    """What verdicts by node add up to.

    Args:
        verdicts: by node's name; of those nodes whose engine is the one in question.
        architecture: the name that was asked for.
        known_to_table: whether the built-in table has it, for where no engine answered.
    """
    unable = tuple(sorted(n for n, v in verdicts.items() if v.known is False))
    able = sorted(n for n, v in verdicts.items() if v.known)
    if unable:
        sentence = "; ".join(_cannot(verdicts, unable))
        if able:
            return Opinion(
                warning=f"{sentence}; it can run on {', '.join(able)} only", unable=unable
            )
        silent = sorted(verdicts.keys() - unable)
        rest = f" ({', '.join(silent)} could not be asked)" if silent else ""
        return Opinion(refusal=sentence + rest, unable=unable)
    if not able and known_to_table is False:
        return Opinion(
            warning=f"no node could be asked, and llama.cpp {CHECKED_BUILD} does not know the "
            f"architecture {quoted(architecture)}; it needs a newer build"
        )
    return Opinion()


def _cannot(verdicts: Mapping[str, Verdict], unable: Iterable[str]) -> list[str]:
    """One clause for each engine and reason, with its nodes."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for name in unable:
        verdict = verdicts[name]
        nodes.setdefault((verdict.engine, verdict.sentence), []).append(name)
    return [
        f"{engine or 'the engine'} on {', '.join(names)} cannot load it: {why}"
        for (engine, why), names in nodes.items()
    ]


def _strange(exit_status: int, output: str) -> str:
    said = last_line(output)
    tail = f"; its last line was: {said}" if said else ""
    if exit_status > 128:
        return f"it was ended by signal {exit_status - 128} when it was asked{tail}"
    return f"its answer (status {exit_status}) could not be understood{tail}"
