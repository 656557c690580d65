"""What a header says of a model, for people and for plans. Pure.

Values that cannot be (a text for a number of layers, say) are left out like missing ones: the
memory estimate, which needs them, says what is wrong with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from llmgw_core.gguf.constants import file_type_name
from llmgw_core.gguf.header import Header, Value
from llmgw_core.gguf.tensors import sizes_in
from llmgw_core.plain_text import sanitise

_LAYERS_MOST = 512
_HEADS_MOST = 1 << 16
_WIDTH_MOST = 1 << 20
_CONTEXT_MOST = 1 << 31
_SPLITS_MOST = 1 << 16
_POOLING_RANK = 4
"""llama.cpp's number for a model that weighs documents; 0 is none, the others pool embeddings."""
_DIFFUSION = frozenset(("dream", "llada", "llada-moe", "rnd1"))
"""Architectures that are not causal and write texts all the same."""


class Kind(StrEnum):
    """What a file is for."""

    MODEL = "model"
    EMBEDDING = "embedding"
    RERANKER = "reranker"
    PROJECTOR = "mmproj"
    ADAPTER = "adapter"
    IMATRIX = "imatrix"
    CONTROL_VECTOR = "control vector"
    VOCABULARY = "vocabulary"

    @property
    def is_served(self) -> bool:
        """Whether an engine can serve it by itself."""
        return self in (Kind.MODEL, Kind.EMBEDDING, Kind.RERANKER)


_NAMED = {"adapter": Kind.ADAPTER, "imatrix": Kind.IMATRIX, "mmproj": Kind.PROJECTOR}
_ARCHITECTURES = {"clip": Kind.PROJECTOR, "controlvector": Kind.CONTROL_VECTOR}


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """One file's facts; None for what its header does not say, or what was not read of it."""

    kind: Kind
    name: str | None
    architecture: str | None
    file_type: str | None
    """Quantisation as people say it, such as ``Q4_K_M``."""
    parameters: int | None
    """Weights of all tensors in this file; of a split model in this part."""
    weights_bytes: int | None
    """Bytes of all tensors in this file, without padding."""
    layers: int | None
    embedding: int | None
    heads: int | tuple[int, ...] | None
    """One number, or one a layer."""
    kv_heads: int | tuple[int, ...] | None
    key_length: int | None
    value_length: int | None
    context_length: int | None
    sliding_window: int | None
    experts: int | None
    experts_used: int | None
    chat_template: str | None
    """As it stands in the file; not safe for a terminal."""
    split_count: int | None
    split_index: int | None
    """From 0."""
    tokenizer: str | None
    vocabulary: int | None
    complete: bool
    """Whether the whole header was read."""


def facts(header: Header) -> GgufFacts:
    """A header's facts. Texts are made safe for a terminal, but for the chat template."""
    keys = header.keys
    arch = header.architecture

    def whole(key: str, most: int, least: int = 1) -> int | None:
        return _whole(keys.get(key), least, most)

    def shape(key: str, most: int) -> int | None:
        return whole(f"{arch}.{key}", most)

    file_type = whole("general.file_type", 1 << 31, 0)
    weights, parameters = _weights(header)
    return GgufFacts(
        kind=_kind(header),
        name=_text(keys.get("general.name")),
        architecture=_text(keys.get("general.architecture")),
        file_type=None if file_type is None else file_type_name(file_type),
        parameters=parameters,
        weights_bytes=weights,
        layers=shape("block_count", _LAYERS_MOST),
        embedding=shape("embedding_length", _WIDTH_MOST),
        heads=_heads(keys.get(f"{arch}.attention.head_count")),
        kv_heads=_heads(keys.get(f"{arch}.attention.head_count_kv")),
        key_length=shape("attention.key_length", _WIDTH_MOST),
        value_length=shape("attention.value_length", _WIDTH_MOST),
        context_length=shape("context_length", _CONTEXT_MOST),
        sliding_window=shape("attention.sliding_window", _CONTEXT_MOST),
        experts=shape("expert_count", _WIDTH_MOST),
        experts_used=shape("expert_used_count", _WIDTH_MOST),
        chat_template=_raw(keys.get("tokenizer.chat_template")),
        split_count=whole("split.count", _SPLITS_MOST),
        split_index=whole("split.no", _SPLITS_MOST, 0),
        tokenizer=_text(keys.get("tokenizer.ggml.model")),
        vocabulary=header.vocabulary,
        complete=header.complete,
    )


def weights_bytes(header: Header, *, below_layer: int | None = None) -> int | None:
    """Bytes of the tensors, without padding; None for a prefix, or where a size is not known.

    Args:
        header: of one file; of a split model each part has its own.
        below_layer: leave out layers from this number on, such as those for multi-token prediction.
    """
    if not header.complete:
        return None
    total = 0
    for tensor, size in zip(header.tensors, sizes_in(header), strict=True):
        if size is None:
            return None
        if below_layer is None or (layer := _layer(tensor.name)) is None or layer < below_layer:
            total += size
    return total


def _weights(header: Header) -> tuple[int | None, int | None]:
    if not header.complete:
        return None, None
    return weights_bytes(header), sum(tensor.elements for tensor in header.tensors)


def _layer(name: str) -> int | None:
    """N of ``blk.N.…``."""
    parts = name.split(".", 2)
    if len(parts) == 3 and parts[0] == "blk" and parts[1].isascii() and parts[1].isdigit():
        return int(parts[1][:9])
    return None


def _kind(header: Header) -> Kind:
    keys, arch = header.keys, header.architecture
    said = _NAMED.get(str(keys.get("general.type"))) or _ARCHITECTURES.get(arch)
    if said is not None:
        return said
    if _is_vocabulary(header):
        return Kind.VOCABULARY
    pooling = _whole(keys.get(f"{arch}.pooling_type"), 0, _POOLING_RANK)
    if pooling == _POOLING_RANK:
        return Kind.RERANKER
    causal = keys.get(f"{arch}.attention.causal") is not False or arch in _DIFFUSION
    return Kind.EMBEDDING if pooling or not causal else Kind.MODEL


def _is_vocabulary(header: Header) -> bool:
    # the first part of a split model may have no tensors either
    split = _whole(header.keys.get("split.count"), 2, _SPLITS_MOST)
    alone = header.complete and not header.tensors and split is None
    return alone and header.vocabulary is not None


def _whole(value: Value | None, least: int, most: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if least <= value <= most else None


def _heads(value: Value | None) -> int | tuple[int, ...] | None:
    """A number, or one a layer; 0 is a layer without attention."""
    if not isinstance(value, tuple):
        return _whole(value, 0, _HEADS_MOST)
    found = tuple(_whole(item, 0, _HEADS_MOST) for item in value)
    numbers = tuple(number for number in found if number is not None)
    return numbers if numbers and len(numbers) == len(found) else None


def _raw(value: Value | None) -> str | None:
    return value if isinstance(value, str) and value else None


def _text(value: Value | None) -> str | None:
    text = _raw(value)
    return None if text is None else sanitise(text, most=300)
