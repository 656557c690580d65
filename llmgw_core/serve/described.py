"""A header and the memory of a replica, as one document with stable keys. Pure."""

from __future__ import annotations

from typing import Any

from llmgw_core.errors import InvalidInput
from llmgw_core.gguf.architectures import CHECKED_BUILD, architecture
from llmgw_core.gguf.facts import facts
from llmgw_core.gguf.hyper import HeaderUnusable, Hyper, hyper
from llmgw_core.gguf.memory import Memory, Settings, estimate, unheaded
from llmgw_core.mirror.looked import Looked
from llmgw_core.serve.plan import weights_bytes
from llmgw_core.serve.view import not_served


def described(looked: Looked, settings: Settings) -> dict[str, Any]:
    """The document with its stable keys.

    Raises:
        InvalidInput: there is no header to describe.
    """
    if looked.header is None:
        raise InvalidInput(
            looked.header_error or looked.unread or f"{looked.version.model} has no GGUF file"
        )
    told = facts(looked.header)
    total = weights_bytes(looked.version)
    weights = total - looked.mmproj_bytes if total and looked.mmproj_bytes else total
    shape: Hyper | None = None
    memory: Memory | None = None
    reason = not_served(looked)
    try:
        shape = hyper(looked.header)
        memory = estimate(shape, weights or 0, settings, mmproj_bytes=looked.mmproj_bytes)
    except HeaderUnusable as error:
        reason = reason or str(error)
    if not reason and architecture(told.architecture or "") is None:
        reason = f"llama.cpp {CHECKED_BUILD} does not know the architecture {told.architecture!r}"
    gb, basis = unheaded(weights)
    kv_heads = told.kv_heads if told.kv_heads is not None else told.heads
    return {
        "name": told.name or looked.version.model,
        "architecture": told.architecture,
        "file_type": told.file_type,
        "parameters": told.parameters,
        "layers": told.layers,
        "embedding": told.embedding,
        "heads": told.heads,
        "kv_heads": kv_heads,
        "key_length": shape.key_length if shape else told.key_length,
        "value_length": shape.value_length if shape else told.value_length,
        "context_length": told.context_length,
        "sliding_window": told.sliding_window,
        "experts": told.experts,
        "splits": told.split_count,
        "weights_bytes": weights,
        "kv_bytes": memory.kv_bytes if memory else None,
        "state_bytes": memory.state_bytes if memory else None,
        "compute_bytes": memory.compute_bytes if memory else None,
        "engine_bytes": memory.engine_bytes if memory else None,
        "memory_bytes": memory.memory_bytes if memory else None,
        "min_memory_gb": memory.min_memory_gb if memory else gb,
        "memory_basis": memory.basis if memory else basis,
        "servable": not reason,
        "reason": reason,
        "requests": looked.requests,
        "bytes_read": looked.bytes_read,
    }
