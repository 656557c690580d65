"""Which files of a repository or folder a pull takes. Pure."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections.abc import Iterable, Sequence

from llmgw_core.errors import NotFound, Refused
from llmgw_core.gguf.splits import is_projector, part_name, split_name
from llmgw_core.plain_text import sanitise

SHOWN_MOST = 8
_QUANT = re.compile(r"[-._]((?:UD-)?(?:I?Q\d\w*|TQ\d\w*|B?F16|F32|MXFP4\w*))$", re.IGNORECASE)
_WEIGHTS_OF_OTHERS = (
    "*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.ot", "*.onnx", "*.onnx_data", "*.tflite",
    "*.ckpt", "original/*", "onnx/*", "openvino/*", "coreml/*",
)  # fmt: skip


def split_parts(name: str) -> tuple[str, ...]:
    """All parts of the split set that a file belongs to; only itself where it is no part."""
    part = split_name(name)
    if part is None:
        return (name,)
    return tuple(part_name(part.stem, number, part.count) for number in range(1, part.count + 1))


def whole_sets(chosen: Iterable[str], there: Iterable[str], where: str) -> tuple[str, ...]:
    """The files, with all other parts of the sets that some are of.

    Raises:
        Refused: a set is not complete there.
    """
    have = set(there)
    wanted: dict[str, None] = {}
    for name in chosen:
        parts = split_parts(name)
        missing = [part for part in parts if part not in have]
        if missing:
            raise Refused(
                f"{where} has only {len(parts) - len(missing)} of the {len(parts)} parts of "
                f"{_said(name)}: {_said(missing[0])} is missing; nothing was fetched"
            )
        wanted.update(dict.fromkeys(parts))
    return tuple(wanted)


def _is_gguf(name: str) -> bool:
    return name.lower().endswith(".gguf")


def choose(names: Sequence[str], pattern: str, where: str) -> tuple[str, ...]:
    """The files that a pull takes.

    Args:
        names: What is there.
        pattern: File names or patterns of the shell, between commas; a folder with a slash at its
            end; empty for what the engine needs.
        where: How the source is called in messages, as it is written (``hf:ORG/REPO``).

    Raises:
        NotFound: nothing matches; the message names the nearest.
        Refused: it is not clear which files are meant, or a split set is not complete.
    """
    plain = [name for name in names if not any(p.startswith(".") for p in name.split("/"))]
    if not plain:
        raise NotFound(f"{where} has no files")
    chosen = _matching(plain, pattern, where) if pattern else _needed(plain, where)
    return whole_sets(chosen, plain, where)


def _matching(names: Sequence[str], pattern: str, where: str) -> list[str]:
    found: dict[str, None] = {}
    for part in filter(None, (word.strip() for word in pattern.split(","))):
        matches = _match(names, part)
        if not matches:
            raise NotFound(f"{where} has no file that matches {part}", hint=_nearest(names, part))
        found.update(dict.fromkeys(matches))
    if not found:
        raise NotFound(f"{where} has no file that matches {pattern!r}")
    return list(found)


def _match(names: Sequence[str], pattern: str) -> list[str]:
    if pattern in names:
        return [pattern]
    if pattern.endswith("/"):
        return [name for name in names if name.startswith(pattern)]
    # a projector is taken for the main model by whoever asks for "*Q8_0*": it has to be named
    if pattern != "*" and "mmproj" not in pattern.lower():
        names = [name for name in names if not is_projector(name)]
    exact = [name for name in names if _fits(name, pattern)]
    return exact or [name for name in names if _fits(name.lower(), pattern.lower())]


def _fits(name: str, pattern: str) -> bool:
    last = name.rpartition("/")[2]
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(last, pattern)


def _nearest(names: Sequence[str], pattern: str) -> str:
    word = pattern.strip("*").lower()
    near = [name for name in names if word and word in name.lower()]
    if not near:
        near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.3)
    listed = near or sorted(names, key=lambda name: not _is_gguf(name))
    return f"the nearest {'is' if len(listed[:3]) == 1 else 'are'} {_some(listed, 3)}"


def _needed(names: Sequence[str], where: str) -> list[str]:
    """Without a pattern: the one GGUF model, or all that an engine for safetensors reads."""
    models = [name for name in names if _is_gguf(name) and not is_projector(name)]
    if not models:
        if any(name.lower().endswith(".safetensors") for name in names):
            return [name for name in names if not any(_fits(name, p) for p in _WEIGHTS_OF_OTHERS)]
        return list(names)
    sets = dict.fromkeys(split_parts(name)[0] for name in models)
    others = any(name.lower().endswith(".safetensors") for name in names)
    if len(sets) == 1 and not others:
        return models
    patterns = [_pattern_for(first, list(sets)) for first in sets]
    if others:
        patterns.append("*.safetensors,*.json")
    raise Refused(
        f"{where} has {len(patterns)} models to choose from: {_some(patterns, SHOWN_MOST)}",
        hint=f"say which, such as {where}:{_said(patterns[0])}",
    )


def _pattern_for(first: str, all_first: Sequence[str]) -> str:
    """A short pattern that only this one of the sets matches, else its name."""
    part = split_name(first)
    stem = part.stem if part else first.rpartition(".")[0]
    quant = _QUANT.search(stem)
    if quant is not None:
        pattern = f"*{quant[1]}*"
        if sum(_fits(name, pattern) for name in all_first) == 1:
            return pattern
    return first


def _some(words: Sequence[str], most: int) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(map(_said, words[:most])) + more


def _said(name: str) -> str:
    """A name as a message has it: a hub may give any."""
    return sanitise(name, most=200)
