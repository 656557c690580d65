"""What each layer of a model keeps of its context. Pure.

Rules of llama.cpp b11549, see ``architectures`` for those that hang on the architecture's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from llmgw_core.gguf.architectures import Architecture, Indexed, Recurrent, Window, architecture
from llmgw_core.gguf.hyper import Hyper


class Kind(StrEnum):
    """What one layer keeps for each token or for each sequence."""

    FULL = "full"
    """Keys and values of every token."""
    WINDOW = "window"
    """Keys and values of the last tokens alone."""
    NOTHING = "nothing"
    """Nothing of its own: no attention, or the cache of another layer."""
    STATE = "state"
    """A state of fixed size for each sequence."""
    BOTH = "both"
    """A state, and keys and values of every token."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What all layers of a model keep."""

    layers: tuple[Kind, ...]
    window: int
    """Tokens that window layers look back; 0 where there are none."""
    indexed: tuple[bool, ...]
    """Layers with a row for an indexer."""
    indexer_has_values: bool
    state_floats: int
    """32-bit floats of one recurrent layer for one sequence."""
    instead_of_cache: str | None
    """What a model is that keeps no context at all, in one word."""
    is_known: bool
    """False where the table does not know the architecture."""
    is_upper_bound: bool
    """More than the engine takes is counted, for want of an exact rule."""

    def count(self, *kinds: Kind) -> int:
        """Number of layers of these kinds."""
        return sum(1 for kind in self.layers if kind in kinds)


def layout(hyper: Hyper) -> Layout:
    """What each layer of a model keeps; an unknown architecture has full attention."""
    known = architecture(hyper.architecture)
    row = known or Architecture(hyper.architecture)
    window = _window(hyper, row.window) if row.window else 0
    kinds = tuple(_kind(hyper, row, layer, window) for layer in range(hyper.layers))
    floats = _state_floats(hyper, row)
    if known is None:
        kinds = tuple(_guess(hyper, kind, layer, floats) for layer, kind in enumerate(kinds))
    return Layout(
        layers=kinds,
        window=window if Kind.WINDOW in kinds else 0,
        indexed=tuple(_is_indexed(hyper, row, layer) for layer in range(hyper.layers)),
        indexer_has_values=row.indexed is Indexed.AFTER_DENSE,
        state_floats=floats,
        instead_of_cache=row.instead_of_cache,
        is_known=known is not None,
        is_upper_bound=known is None or known.is_upper_bound,
    )


def _kind(hyper: Hyper, row: Architecture, layer: int, window: int) -> Kind:
    if row.instead_of_cache:
        return Kind.NOTHING
    if row.recurrent is Recurrent.BESIDE:
        return Kind.BOTH
    if _is_recurrent(hyper, row.recurrent, layer):
        return Kind.STATE
    own = row.own_cache_layers
    if row.shares_cache:
        own = hyper.block_count - hyper.shared_kv_layers
    if hyper.kv_heads[layer] == 0 or (own is not None and layer >= own):
        return Kind.NOTHING
    if window and row.window and _is_windowed(hyper, row.window, layer):
        return Kind.WINDOW
    return Kind.FULL


def _guess(hyper: Hyper, kind: Kind, layer: int, floats: int) -> Kind:
    """For an unknown architecture: a layer without KV heads has a state, if layers have any."""
    lacks_heads = hyper.kv_heads[layer] == 0
    return Kind.STATE if lacks_heads and floats else kind


def _is_recurrent(hyper: Hyper, rule: Recurrent, layer: int) -> bool:
    match rule:
        case Recurrent.ALL:
            return True
        case Recurrent.NO_KV_HEADS:
            return hyper.kv_heads[layer] == 0
        case Recurrent.NO_KV_HEADS_NO_FEED_FORWARD:
            size = hyper.feed_forward[layer] if hyper.feed_forward else 0
            return hyper.kv_heads[layer] == 0 and size == 0
        case Recurrent.INTERVAL:
            if hyper.recurrent_layers is not None:
                return hyper.recurrent_layers[layer]
            return (layer + 1) % hyper.attention_interval != 0
        case _:
            return False


def _window(hyper: Hyper, rule: Window) -> int:
    """The window in tokens; 0 where this model has none."""
    if rule.only_layers is not None and hyper.block_count != rule.only_layers:
        return 0
    named = rule.default if hyper.window is None else hyper.window
    return (rule.forced or named) if named else 0


def _is_windowed(hyper: Hyper, rule: Window, layer: int) -> bool:
    pattern = hyper.window_pattern
    if isinstance(pattern, tuple):
        return pattern[layer]
    every = rule.every if pattern is None else pattern
    if rule.every == 0:
        return True
    if not every:
        return False
    return layer % every != (0 if rule.full_first else every - 1)


def _is_indexed(hyper: Hyper, row: Architecture, layer: int) -> bool:
    if hyper.indexer is None or row.indexed is Indexed.NEVER:
        return False
    if row.indexed is Indexed.AFTER_DENSE:
        return layer >= hyper.leading_dense
    return hyper.indexer.layers is None or hyper.indexer.layers[layer]


def _state_floats(hyper: Hyper, row: Architecture) -> int:
    if row.square_state:
        return hyper.key_length * hyper.key_length * max(hyper.heads)
    return hyper.state.floats(hyper.embedding or 0, max(hyper.heads))
