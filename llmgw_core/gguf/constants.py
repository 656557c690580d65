"""ggml's types and llama.cpp's names for quantisations, out of the ``gguf`` package."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

_GUESSED = 1024
"""A bit that llama.cpp sets where the file type was guessed."""


@dataclass(frozen=True, slots=True)
class GgmlType:
    """How one type of tensor lies in memory: ``size`` bytes for every ``block`` elements."""

    name: str
    block: int
    size: int


@cache
def ggml_types() -> Mapping[int, GgmlType]:
    """ggml's types by number, those that the installed ``gguf`` package knows."""
    sizes = _constants().GGML_QUANT_SIZES
    return {int(kind): GgmlType(kind.name, *sizes[kind]) for kind in sizes}


def file_type_name(number: int) -> str | None:
    """A file's quantisation as people say it, such as ``Q4_K_M``; None where it is not known."""
    return _file_types().get(number & ~_GUESSED)


@cache
def _file_types() -> Mapping[int, str]:
    kinds = _constants().LlamaFileType
    return {int(kind): kind.name.removeprefix("MOSTLY_").removeprefix("ALL_") for kind in kinds}


@cache
def _constants() -> ModuleType:
    """The module of constants alone: its package would import numpy, 20 MB for a few tables."""
    package = importlib.util.find_spec("gguf")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        path = Path(folder, "constants.py")
        spec = importlib.util.spec_from_file_location("_llmgw_gguf_constants", path)
        if path.is_file() and spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    import gguf.constants

    return gguf.constants
