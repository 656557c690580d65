"""How each architecture that llama.cpp knows keeps its context, as data. Pure.

Checked against the build below; ``scripts/check-architectures`` compares the names with those that
an installed xllamacpp knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

CHECKED_BUILD = "b11549"
"""The build of llama.cpp whose names and rules these are."""


@dataclass(frozen=True, slots=True)
class Window:
    """Which layers look back no further than a window."""

    every: int | None
    """Of so many layers one is full; None where the header lists the layers; 0: none is full."""
    full_first: bool = False
    """The full layer is the first of each group, not the last."""
    default: int | None = None
    """The window where the header names none; None: then there is no window."""
    forced: int | None = None
    """The window whatever the header says, where it has one at all."""
    only_layers: int | None = None
    """Only models of so many layers have windows."""


class Recurrent(StrEnum):
    """Which layers keep a state of fixed size instead of a cache."""

    NEVER = "never"
    ALL = "all"
    NO_KV_HEADS = "those without KV heads"
    NO_KV_HEADS_NO_FEED_FORWARD = "those with neither KV heads nor feed-forward"
    INTERVAL = "all but each n-th"
    BESIDE = "all, and all have a cache too"


class Indexed(StrEnum):
    """Which layers keep one more row for an indexer."""

    NEVER = "never"
    LISTED = "all, or those that the header lists"
    AFTER_DENSE = "those after the dense ones, with values"


@dataclass(frozen=True, slots=True)
class Architecture:
    """What cannot be read from a header but has to be known of its architecture."""

    name: str
    instead_of_cache: str | None = None
    """What a model is that keeps no context at all; None for all others."""
    window: Window | None = None
    recurrent: Recurrent = Recurrent.NEVER
    indexed: Indexed = Indexed.NEVER
    own_cache_layers: int | None = None
    """Layers from this one on use the caches of others."""
    shares_cache: bool = False
    """As many layers as ``attention.shared_kv_layers`` says use the caches of others."""
    square_state: bool = False
    """A state of head length squared for each head, which no key names."""
    is_upper_bound: bool = False
    """Its cache is smaller than is counted here."""


def _each(names: str, **rules: object) -> tuple[Architecture, ...]:
    return tuple(Architecture(name, **rules) for name in names.split())  # type: ignore[arg-type]


_FULL = _each("""
    llama deci falcon grok gpt2 gptneox mpt baichuan starcoder refact bloom stablelm qwen qwen2
    qwen2moe qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe phi2 phi3 phimoe plamo codeshell orion
    internlm2 minicpm minicpm3 gemma starcoder2 xverse command-r dbrx olmo olmoe openelm arctic
    deepseek chatglm glm4 glm4moe bitnet t5 t5encoder jais jais2 nemotron exaone granite granitemoe
    graniteswitch chameleon plm bailingmoe bailingmoe2 dots1 arcee ernie4_5 ernie4_5-moe hunyuan-moe
    hunyuan-dense hunyuan_vl hy_v3 smollm3 seed_oss grovemoe apertus hrm_text minimax-m2
    pangu-embedded mistral3 llama-embed maincoder cogvlm paddleocr talkie nanbeige qwen3tts
    pockettts k2-horizon gemma4-assistant gemma-embedding2 clef dflash eagle3
""")

_NO_CACHE = (
    *_each(
        """
        bert nomic-bert nomic-bert-moe jina-bert-v2 jina-bert-v3 neo-bert eurobert modern-bert
        gemma-embedding
        """,
        instead_of_cache="encoder",
    ),
    *_each("dream llada llada-moe rnd1", instead_of_cache="diffusion"),
    Architecture("wavtokenizer-dec", instead_of_cache="decoder of sound"),
)

_LATENT = (
    *_each("deepseek2 deepseek2-ocr mistral4"),
    *_each("deepseek32 glm-dsa dots3note hy_v4", indexed=Indexed.LISTED),
    Architecture("minimax-m3", indexed=Indexed.AFTER_DENSE),
    # window and two compressed caches; one row of a latent for each token is more than that
    Architecture("deepseek4", indexed=Indexed.LISTED, is_upper_bound=True),
)

_WINDOW = (
    Architecture("gemma2", window=Window(2, default=4096)),
    Architecture("gpt-oss", window=Window(2)),
    Architecture("gemma3", window=Window(6)),
    Architecture("gemma3n", window=Window(5), own_cache_layers=20),
    Architecture("gemma4", window=Window(None), shares_cache=True),
    Architecture("cohere2", window=Window(4)),
    Architecture("llama4", window=Window(4, default=8192, forced=8192)),
    Architecture("exaone4", window=Window(4, default=4096, only_layers=64)),
    Architecture("exaone-moe", window=Window(4, default=128)),
    Architecture("plamo3", window=Window(8)),
    *_each("olmo2 afmoe mellum muse-glimmer", window=Window(4)),
    *_each("cohere2moe laguna", window=Window(4, full_first=True)),
    Architecture("smallthinker", window=Window(4, full_first=True, forced=4096)),
    *_each("mimo2 step35 granite_swa maple spark2_5", window=Window(None)),
)

_RECURRENT = _each("mamba mamba2 rwkv6 rwkv7 arwkv7 rwkv6qwen2", recurrent=Recurrent.ALL)

_HYBRID = (
    *_each(
        "jamba granitehybrid plamo2 kimi-linear kimi-k3 bailingmoe3 glm5-next",
        recurrent=Recurrent.NO_KV_HEADS,
    ),
    *_each("lfm2 lfm2moe", recurrent=Recurrent.NO_KV_HEADS, window=Window(0)),
    *_each("nemotron_h nemotron_h_moe", recurrent=Recurrent.NO_KV_HEADS_NO_FEED_FORWARD),
    *_each("qwen3next qwen35 qwen35moe qwen4exp", recurrent=Recurrent.INTERVAL),
    Architecture("minimax-01", recurrent=Recurrent.INTERVAL, square_state=True),
    Architecture("falcon-h1", recurrent=Recurrent.BESIDE),
)

ARCHITECTURES = {
    row.name: row for row in (*_FULL, *_NO_CACHE, *_LATENT, *_WINDOW, *_RECURRENT, *_HYBRID)
}
"""Every known architecture by its name in ``general.architecture``."""


def architecture(name: str) -> Architecture | None:
    """The row of a name; None for one that the table does not know."""
    return ARCHITECTURES.get(name)
