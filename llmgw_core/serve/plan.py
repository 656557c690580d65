"""``plan_serve``: from weights to what a catalog entry needs, with what is wrong. Pure.

Everything that can be known is filled in and says where it comes from; nothing here blocks but
``refusal``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from llmgw_core.catalog.sources import mirror_source
from llmgw_core.gguf.header import Header
from llmgw_core.gguf.hyper import HeaderUnusable, hyper
from llmgw_core.gguf.memory import Memory, Settings, estimate, unheaded
from llmgw_core.gguf.splits import grouped
from llmgw_core.mirror.versions import MirrorVersion
from llmgw_core.plain_text import sanitise

CONTEXT_POOL = 16384
SLOTS = 4
MIB = 1024**2

ENGINE_OF = {".gguf": "llamacpp", ".safetensors": "vllm", ".bin": "vllm"}
"""Which engine reads a file, by its extension in lower case."""
ENGINE_NAMES = {"llamacpp": "llama.cpp", "vllm": "vLLM"}
GPU_ENGINES = frozenset({"vllm"})
READY = "ready"


@dataclass(frozen=True, slots=True)
class FleetNode:
    """What a serve plan looks at in a node; None is unknown."""

    name: str
    state: str = READY
    memory_gb: float | None = None
    cores: float | None = None
    engines: tuple[str, ...] | None = None
    gpus_total: int | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person may choose of the estimate; the rest follows."""

    ctx_pool: int = CONTEXT_POOL
    parallel: int | None = None
    """None takes 4 slots, or 1 where each slot holds a state of its own."""
    unified: bool = True
    kv_type: str = "f16"
    name: str = ""
    """Under which it is to be served; empty takes the mirror's name of the model."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known beside the weights themselves."""

    fleet: tuple[FleetNode, ...] = ()
    declared: Collection[str] = ()
    """Names and aliases that stand in the configuration."""
    added: Collection[str] = ()
    engine_refuses: str = ""
    """Why the nodes' engine cannot load this file, where it said so."""
    header: Header | None = None
    header_error: str = ""
    mmproj_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ServePlan:
    """What a form is filled with. Memory in GiB; empty texts where there is nothing to say."""

    model: str
    version: str
    source: str
    engine: str
    profile: str
    files: int
    ctx_pool: int
    min_memory_gb: int
    memory_basis: str
    cpu_cores: int
    refusal: str
    warning: str
    already: bool
    weights_bytes: int | None = None
    parallel: int = SLOTS
    kv_type: str = "f16"
    unified: bool = True
    cache_ram_mib: int = 0
    context_length: int | None = None
    """What the model was trained for."""
    memory: Memory | None = field(default=None, repr=False)
    cores_basis: str = ""


def plan_serve(version: MirrorVersion, known: Known, wish: Wish | None = None) -> ServePlan:
    """Everything that can be known of serving a version.

    Args:
        version: what the mirror holds, or will hold.
        known: the fleet, the catalog's names, the header and what the engine said of it.
        wish: context pool, slots and cache type, where they were chosen.
    """
    wish = wish or Wish()
    name = wish.name or version.model
    engine, extension = _engine(version)
    total = weights_bytes(version)
    weights = total - known.mmproj_bytes if total and known.mmproj_bytes else total
    size = _Size.of(version, known, wish, weights, llamacpp=engine == "llamacpp")
    cores, cores_basis = _cores(known.fleet, size.min_memory_gb)
    return ServePlan(
        model=version.model,
        version=version.version,
        source=mirror_source(version.model, version.version, _only_file(version)),
        engine=engine,
        profile="cpu" if engine == "llamacpp" else "gpu" if engine else "",
        files=len(version.files),
        ctx_pool=wish.ctx_pool,
        min_memory_gb=size.min_memory_gb,
        memory_basis=size.basis,
        cpu_cores=cores,
        refusal=_refusal(version, known, engine, extension, name),
        warning=_warning(known.fleet, engine, extension, size),
        already=name in known.declared or name in known.added,
        weights_bytes=total,
        parallel=size.parallel,
        kv_type=wish.kv_type,
        unified=wish.unified,
        cache_ram_mib=size.cache_ram_mib,
        context_length=size.context_length,
        memory=size.memory,
        cores_basis=cores_basis,
    )


def weights_bytes(version: MirrorVersion) -> int | None:
    """Sum of the final sizes, what has come so far where one is unknown; None for nothing."""
    total = sum(file.bytes_total or file.bytes_done for file in version.files)
    return total or None


def _only_file(version: MirrorVersion) -> str:
    return version.files[0].file if len(version.files) == 1 else ""


def _engine(version: MirrorVersion) -> tuple[str, str]:
    """The engine for the first file that says one, and that file's extension or name."""
    suffixes = [PurePosixPath(file.file).suffix for file in version.files]
    for suffix in suffixes:
        engine = ENGINE_OF.get(suffix.lower())
        if engine:
            return engine, suffix.lower()
    first = version.files[0].file if version.files else version.model
    return "", (suffixes[0] if suffixes else "") or first


def _refusal(version: MirrorVersion, known: Known, engine: str, extension: str, name: str) -> str:
    if name in known.declared:
        return (
            f"{name} is declared in the configuration: change it there, "
            "or serve this under another name"
        )
    if not engine:
        return f"nothing here reads {sanitise(extension, most=40)} files"
    if known.header_error:
        return known.header_error
    for parts in grouped(file.file for file in version.files).sets:
        if not parts.is_whole:
            lacking = ", ".join(map(str, parts.missing[:5]))
            stem = sanitise(parts.stem, most=200)
            return f"{stem} is not whole: of its {parts.count} parts {lacking} is missing"
    if known.engine_refuses:
        named = ENGINE_NAMES[engine]
        said = known.engine_refuses
        return said if named in said else f"{named} cannot load it: {said}"
    return ""


def _warning(fleet: tuple[FleetNode, ...], engine: str, extension: str, size: _Size) -> str:
    """What would keep it from running today; of a fleet without any engine, nothing."""
    warnings = [size.unusable] if size.unusable else []
    if engine and any(node.engines for node in fleet):
        warnings += _fleet_warnings(fleet, engine, extension, size.min_memory_gb)
    return ", and ".join(warnings)


def _fleet_warnings(
    fleet: tuple[FleetNode, ...], engine: str, extension: str, needed_gb: int
) -> list[str]:
    warnings = []
    if not any(engine in (node.engines or ()) for node in fleet):
        text = f"no node reports {engine}, which reads {extension} files"
        if engine in GPU_ENGINES and not any(node.gpus_total for node in fleet):
            text += (
                ", nor has any a GPU (a GGUF build of the same model would run on the CPU nodes)"
            )
        warnings.append(text)
    largest = max((n.memory_gb for n in fleet if n.memory_gb is not None), default=None)
    unsure = any(n.state == READY and n.memory_gb is None for n in fleet)
    if largest is not None and largest < needed_gb and not unsure:
        warnings.append(f"the largest node has {largest:.3g} GiB where {needed_gb} are needed")
    return warnings


def _cores(fleet: tuple[FleetNode, ...], needed_gb: int) -> tuple[int, str]:
    """Half the cores of the smallest ready node that has the memory, and that in words."""
    fits = [
        (node.cores, node.name)
        for node in fleet
        if node.state == READY
        and node.cores is not None
        and (node.memory_gb is None or node.memory_gb >= needed_gb)
    ]
    if not fits:
        return 0, "no ready node with that memory says how many cores it has"
    cores, name = min(fits)
    return max(1, int(cores // 2)), f"half of {name}'s {cores:g}, the smallest node that fits"


@dataclass(frozen=True, slots=True)
class _Size:
    """Memory, and how it was found."""

    min_memory_gb: int
    basis: str
    parallel: int
    cache_ram_mib: int = 0
    memory: Memory | None = None
    context_length: int | None = None
    unusable: str = ""

    @classmethod
    def of(
        cls,
        version: MirrorVersion,
        known: Known,
        wish: Wish,
        weights: int | None,
        *,
        llamacpp: bool,
    ) -> _Size:
        parallel = wish.parallel or SLOTS
        if known.header is None or not llamacpp or weights is None:
            gb, basis = unheaded(weights)
            return cls(gb, basis, parallel)
        try:
            shape = hyper(known.header)
        except HeaderUnusable as error:
            gb, basis = unheaded(weights)
            return cls(gb, basis, parallel, unusable=str(error))
        settings = settings_of(wish, parallel)
        memory = estimate(shape, weights, settings, mmproj_bytes=known.mmproj_bytes)
        if wish.parallel is None and memory.state_bytes:
            # each slot holds a state of its own, and a quarter of it is rarely wanted
            parallel = 1
            settings = settings_of(wish, parallel)
            memory = estimate(shape, weights, settings, mmproj_bytes=known.mmproj_bytes)
        return cls(
            memory.min_memory_gb,
            memory.basis,
            parallel,
            memory.prompt_cache_bytes // MIB,
            memory,
            shape.context_length,
        )


def settings_of(wish: Wish, parallel: int) -> Settings:
    """How the server would be started."""
    return Settings(
        ctx=wish.ctx_pool,
        parallel=parallel,
        unified=wish.unified,
        kv_type_k=wish.kv_type,
        kv_type_v=wish.kv_type,
    )
