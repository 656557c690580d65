"""What a header says of a model's shape, checked. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llmgw_core.gguf.architectures import architecture
from llmgw_core.gguf.errors import HeaderError
from llmgw_core.gguf.header import Header, SkippedArray, Value
from llmgw_core.plain_text import sanitise

SHOWN_MOST = 64
"""Characters of an architecture's name in a message."""
MOST_LAYERS = 512
MOST_HEADS = 65536
MOST_SIZE = 1 << 20
"""Of an embedding, a head, a window's pattern or a feed-forward layer divided by 16."""
MOST_FEED_FORWARD = 1 << 24
MOST_CONTEXT = 1 << 31
MOST_VOCABULARY = 1 << 26


class HeaderUnusable(HeaderError):
    """A header whose values cannot be those of a model."""


@dataclass(frozen=True, slots=True)
class StateShape:
    """Sizes of recurrent layers, as the keys name them; 0 where the header has no such key."""

    conv_kernel: int = 0
    inner_size: int = 0
    state_size: int = 0
    group_count: int = 0
    wkv_head_size: int = 0
    token_shift_count: int = 2
    shortconv_cache: int = 0
    kda_head_dim: int = 0

    def floats(self, embedding: int, heads: int) -> int:
        """Numbers that one layer keeps for one sequence: of its convolution and of its state.

        The first of these keys that is there says which kind of layer it is.
        """
        if self.wkv_head_size:
            return (self.token_shift_count + self.wkv_head_size) * embedding
        if self.shortconv_cache:
            return embedding * (self.shortconv_cache - 1)
        taps = max(0, self.conv_kernel - 1)
        if self.kda_head_dim:
            size = self.kda_head_dim * heads
            return 3 * taps * size + self.kda_head_dim * size
        groups = 2 * self.group_count * self.state_size
        return taps * (self.inner_size + groups) + self.state_size * self.inner_size


@dataclass(frozen=True, slots=True)
class Experts:
    """The feed-forward part of a mixture of experts; all 0 where there are none."""

    used: int = 0
    feed_forward: int = 0
    shared: int = 0
    """Feed-forward size of all shared experts together."""


@dataclass(frozen=True, slots=True)
class Indexer:
    """The small attention that picks tokens for the large one."""

    key_length: int
    layers: tuple[bool, ...] | None
    """Which layers have one; None where the header does not tell them apart."""


@dataclass(frozen=True, slots=True)
class Hyper:
    """A model's shape. Lists are by layer, those of multi-token prediction at their end."""

    architecture: str
    block_count: int
    nextn_layers: int
    """Layers for multi-token prediction, without a cache of their own."""
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    key_length: int
    value_length: int
    key_length_window: int
    value_length_window: int
    is_latent: bool
    """Multi-head latent attention, whose cache is one row for all heads and has no values."""
    context_length: int | None = None
    embedding: int | None = None
    embedding_per_layer: int = 0
    """Floats of the inputs that each layer has of its own, besides the embedding."""
    altup_inputs: int = 0
    """Copies of the embedding that go through the layers side by side."""
    feed_forward: tuple[int, ...] | None = None
    vocabulary: int | None = None
    window: int | None = None
    """Tokens of a sliding window; None where there is no such key."""
    window_pattern: int | tuple[bool, ...] | None = None
    shared_kv_layers: int = 0
    leading_dense: int = 0
    attention_interval: int = 4
    recurrent_layers: tuple[bool, ...] | None = None
    state: StateShape = StateShape()
    experts: Experts = Experts()
    indexer: Indexer | None = None

    @property
    def layers(self) -> int:
        """Layers that the main context computes."""
        return self.block_count - self.nextn_layers


def hyper(header: Header) -> Hyper:
    """The shape that a header describes.

    Raises:
        HeaderUnusable: a size that is missing, is no number, or cannot be a model's.
    """
    name = header.architecture
    if not name:
        raise HeaderUnusable(
            "the header cannot be used: it has no general.architecture; fetch the file again"
        )
    return _read(_Keys(name, header.keys), header.vocabulary)


def _read(keys: _Keys, vocabulary: int | None) -> Hyper:
    blocks = keys.number("block_count", 1, MOST_LAYERS)
    if blocks is None:
        raise keys.missing("block_count")
    nextn = keys.number("nextn_predict_layers", 0, blocks - 1) or 0
    embedding = keys.number("embedding_length", 1, MOST_SIZE)
    heads, kv_heads = _heads(keys, blocks)
    state = _state(keys)
    if not any(kv_heads) and not _keeps_no_keys(keys, state, embedding, heads):
        raise keys.missing("attention.head_count")
    key, value = _lengths(keys, embedding, heads)
    mla = [keys.number(f"attention.{what}_length_mla", 0, MOST_SIZE) for what in ("key", "value")]
    pattern = keys.numbers("attention.sliding_window_pattern", blocks, MOST_SIZE)
    return Hyper(
        architecture=keys.architecture,
        block_count=blocks,
        nextn_layers=nextn,
        heads=heads,
        kv_heads=kv_heads,
        key_length=key,
        value_length=value,
        key_length_window=keys.number("attention.key_length_swa", 1, MOST_SIZE) or key,
        value_length_window=keys.number("attention.value_length_swa", 1, MOST_SIZE) or value,
        is_latent=all(mla),
        context_length=keys.number("context_length", 1, MOST_CONTEXT),
        embedding=embedding,
        embedding_per_layer=keys.number("embedding_length_per_layer_input", 0, MOST_SIZE) or 0,
        altup_inputs=keys.number("altup.num_inputs", 0, MOST_HEADS) or 0,
        feed_forward=keys.per_layer("feed_forward_length", blocks, MOST_FEED_FORWARD),
        vocabulary=vocabulary or keys.number("vocab_size", 1, MOST_VOCABULARY),
        window=keys.number("attention.sliding_window", 0, MOST_CONTEXT),
        window_pattern=pattern if isinstance(pattern, int | None) else _flags(pattern),
        shared_kv_layers=keys.number("attention.shared_kv_layers", 0, blocks) or 0,
        leading_dense=keys.number("leading_dense_block_count", 0, MOST_LAYERS) or 0,
        attention_interval=keys.number("full_attention_interval", 1, MOST_LAYERS) or 4,
        recurrent_layers=_recurrent(keys, blocks),
        state=state,
        experts=_experts(keys),
        indexer=_indexer(keys, blocks),
    )


def _heads(keys: _Keys, blocks: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Heads and KV heads of each layer; a model that keeps no context may have neither."""
    heads = keys.per_layer("attention.head_count", blocks, MOST_HEADS)
    kv_heads = keys.per_layer("attention.head_count_kv", blocks, MOST_HEADS)
    known = heads or kv_heads or (0,) * blocks
    return heads or known, known if kv_heads is None else kv_heads


def _keeps_no_keys(
    keys: _Keys, state: StateShape, embedding: int | None, heads: tuple[int, ...]
) -> bool:
    """Whether a model may be without KV heads: no context is kept, or a state is."""
    row = architecture(keys.architecture)
    if row is not None and row.instead_of_cache:
        return True
    return state.floats(embedding or 0, max(heads)) > 0


def _lengths(keys: _Keys, embedding: int | None, heads: tuple[int, ...]) -> tuple[int, int]:
    """Floats in a key and in a value of one head."""
    key = keys.number("attention.key_length", 1, MOST_SIZE)
    value = keys.number("attention.value_length", 1, MOST_SIZE)
    count = next((number for number in heads if number), 0)
    if count == 0:
        return key or 0, value or 0
    if embedding is None and (key is None or value is None):
        raise keys.missing("embedding_length")
    usual = (embedding or 0) // count
    return key or usual, value or usual


def _state(keys: _Keys) -> StateShape:
    def size(name: str) -> int:
        return keys.number(name, 0, MOST_FEED_FORWARD) or 0

    shifts = keys.number("token_shift_count", 0, MOST_LAYERS)
    return StateShape(
        conv_kernel=size("ssm.conv_kernel"),
        inner_size=size("ssm.inner_size"),
        state_size=size("ssm.state_size"),
        group_count=size("ssm.group_count"),
        wkv_head_size=size("wkv.head_size"),
        token_shift_count=2 if shifts is None else shifts,
        shortconv_cache=size("shortconv.l_cache"),
        kda_head_dim=size("kda.head_dim"),
    )


def _experts(keys: _Keys) -> Experts:
    each = keys.number("expert_feed_forward_length", 0, MOST_FEED_FORWARD) or 0
    shared = keys.number("expert_shared_feed_forward_length", 0, MOST_FEED_FORWARD)
    count = keys.number("expert_shared_count", 0, MOST_HEADS) or 0
    used = keys.number("expert_used_count", 0, MOST_HEADS) or 0
    return Experts(used, each, count * each if shared is None else shared)


def _indexer(keys: _Keys, blocks: int) -> Indexer | None:
    length = keys.number("attention.indexer.key_length", 0, MOST_SIZE)
    if not length:
        return None
    types = keys.numbers("attention.indexer.types", blocks, MOST_SIZE)
    return Indexer(length, tuple(t == 1 for t in types) if isinstance(types, tuple) else None)


def _recurrent(keys: _Keys, blocks: int) -> tuple[bool, ...] | None:
    given = keys.numbers("attention.recurrent_layers", blocks, MOST_SIZE)
    return _flags(given) if isinstance(given, tuple) else None


def _flags(numbers: tuple[int, ...]) -> tuple[bool, ...]:
    return tuple(number != 0 for number in numbers)


@dataclass(frozen=True, slots=True)
class _Keys:
    """An architecture's keys, each checked as it is taken."""

    architecture: str
    values: Mapping[str, Value]

    def missing(self, name: str) -> HeaderUnusable:
        return HeaderUnusable(
            f"the header cannot be used: it tells no {self._shown(name)}; fetch the file again"
        )

    def number(self, name: str, least: int, most: int) -> int | None:
        """A whole number within bounds; None where the header has no such key."""
        value = self.values.get(self._full(name))
        return None if value is None else self._checked(name, value, least, most)

    def numbers(self, name: str, blocks: int, most: int) -> int | tuple[int, ...] | None:
        """One number, or one for each layer; true and false count as 1 and 0."""
        value = self.values.get(self._full(name))
        if isinstance(value, SkippedArray):
            raise self._bad(name, f"a list of {value.length}", f"a list of {blocks} numbers")
        if not isinstance(value, tuple):
            return None if value is None else self._checked(name, value, 0, most)
        if len(value) < blocks:
            raise self._bad(name, f"a list of {len(value)}", f"one number for each of {blocks}")
        return tuple(
            int(item) if isinstance(item, bool) else self._checked(name, item, 0, most)
            for item in value[:blocks]
        )

    def per_layer(self, name: str, blocks: int, most: int) -> tuple[int, ...] | None:
        """One number for each layer, also where the header has the same one for all."""
        numbers = self.numbers(name, blocks, most)
        return (numbers,) * blocks if isinstance(numbers, int) else numbers

    def _checked(self, name: str, value: Value, least: int, most: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            shown = ascii(value)
            shown = shown if len(shown) <= 40 else f"{shown[:40]}…"
            raise self._bad(name, shown, f"a whole number from {least} to {most}")
        return value

    def _bad(self, name: str, found: str, wanted: str) -> HeaderUnusable:
        return HeaderUnusable(
            f"the header cannot be used: {self._shown(name)} is {found} and not {wanted}; "
            "fetch the file again"
        )

    def _full(self, name: str) -> str:
        return f"{self.architecture}.{name}"

    def _shown(self, name: str) -> str:
        return f"{sanitise(self.architecture, most=SHOWN_MOST)}.{name}"
