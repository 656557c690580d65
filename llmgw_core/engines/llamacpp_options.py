"""llama-server's options as fields of xllamacpp's CommonParams. Pure.

The controller checks a profile's arguments with this before it starts anything, and the launcher
reads its command line with it on the node: there the two are one file, and run on Python 3.9 with
the standard library alone.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

USAGE, NO_INPUT, UNAVAILABLE = 64, 66, 69
"""Exit statuses: an option that cannot be used, a file that cannot, no xllamacpp."""


class Trouble(Exception):
    """What a person has to correct, and the exit status that says so."""

    def __init__(self, message: str, status: int = USAGE) -> None:
        super().__init__(message)
        self.status = status


class Option(NamedTuple):
    """One of llama-server's options: its names, CommonParams' fields for it, and how it reads."""

    names: str
    """Separated by spaces, the one for messages last."""
    fields: str
    """Separated by spaces; all are set. Older spellings of one follow it after ``|``."""
    kind: str
    """``int``, ``float``, ``str``, ``yes`` and ``no`` (flags) or a name in ``READERS``."""


class Setting(NamedTuple):
    """One option as given. The value is plain; enum members are named, not yet looked up."""

    option: Option
    name: str
    value: Any
    optional: bool = False


class EnumWord(NamedTuple):
    """A member of one of xllamacpp's enums."""

    enum: str
    member: str


OPTIONS = tuple(
    Option(*row)
    for row in (
        # the server
        ("-m --model", "model.path", "str"),
        ("-a --alias", "model_alias", "words"),
        ("--host", "hostnames|hostname", "words"),
        ("--port", "port", "int"),
        ("--api-key-file", "api_keys", "keys"),
        ("--metrics", "endpoint_metrics", "yes"),
        ("--slots", "endpoint_slots", "yes"),
        ("--no-slots", "endpoint_slots", "no"),
        ("--props", "endpoint_props", "yes"),
        ("--ui --webui", "ui", "yes"),
        ("--no-ui --no-webui", "ui", "no"),
        ("-to --timeout", "timeout_read timeout_write", "int"),
        ("--threads-http", "n_threads_http", "int"),
        ("--sse-ping-interval", "sse_ping_interval", "int"),
        ("-lv --log-verbosity --verbosity", "verbosity", "int"),
        ("-v --log-verbose --verbose", "verbosity", "loud"),
        ("--slot-save-path", "slot_save_path", "str"),
        ("--media-path", "media_path", "str"),
        ("-sps --slot-prompt-similarity", "slot_prompt_similarity", "float"),
        # processor
        ("-t --threads", "cpuparams.n_threads", "int"),
        ("-tb --threads-batch", "cpuparams_batch.n_threads", "int"),
        ("--poll", "cpuparams.poll", "int"),
        ("--poll-batch", "cpuparams_batch.poll", "int"),
        ("--numa", "numa", "enum:ggml_numa_strategy:GGML_NUMA_STRATEGY_"),
        # context and caches
        ("-c --ctx-size", "n_ctx", "int"),
        ("-np --parallel", "n_parallel", "int"),
        ("-kvu --kv-unified", "kv_unified", "yes"),
        ("-no-kvu --no-kv-unified", "kv_unified", "no"),
        ("--kv-unified-per-slot", "kv_unified_per_slot", "int"),
        ("-b --batch-size", "n_batch", "int"),
        ("-ub --ubatch-size", "n_ubatch", "int"),
        ("-cb --cont-batching", "cont_batching", "yes"),
        ("-nocb --no-cont-batching", "cont_batching", "no"),
        ("-ctk --cache-type-k", "cache_type_k", "enum:ggml_type:GGML_TYPE_"),
        ("-ctv --cache-type-v", "cache_type_v", "enum:ggml_type:GGML_TYPE_"),
        ("-cram --cache-ram", "cache_ram_mib", "int"),
        ("-ctxcp --swa-checkpoints --ctx-checkpoints", "n_ctx_checkpoints", "int"),
        ("-cms --checkpoint-min-step", "checkpoint_min_step", "int"),
        ("--cache-prompt", "cache_prompt", "yes"),
        ("--no-cache-prompt", "cache_prompt", "no"),
        ("--cache-idle-slots", "cache_idle_slots", "yes"),
        ("--no-cache-idle-slots", "cache_idle_slots", "no"),
        ("--cache-reuse", "n_cache_reuse", "int"),
        ("--context-shift", "ctx_shift", "yes"),
        ("--no-context-shift", "ctx_shift", "no"),
        ("--swa-full", "swa_full", "yes"),
        ("--keep", "n_keep", "int"),
        ("-fa --flash-attn", "flash_attn_type", "flash"),
        # loading and devices
        ("-lm --load-mode", "load_mode", "enum:llama_load_mode:LLAMA_LOAD_MODE_"),
        ("--mmap", "load_mode", "is:llama_load_mode:LLAMA_LOAD_MODE_MMAP"),
        ("--no-mmap", "load_mode", "is:llama_load_mode:LLAMA_LOAD_MODE_NONE"),
        ("--mlock", "load_mode", "is:llama_load_mode:LLAMA_LOAD_MODE_MLOCK"),
        ("-lzm --lazy-mode", "lazy_mode", "enum:llama_lazy_mode:LLAMA_LAZY_MODE_"),
        ("-fit --fit", "fit_params", "switch"),
        ("-fitc --fit-ctx", "fit_params_min_ctx", "int"),
        ("--check-tensors", "check_tensors", "yes"),
        ("--warmup", "warmup", "yes"),
        ("--no-warmup", "warmup", "no"),
        ("--repack", "no_extra_bufts", "no"),
        ("-nr --no-repack", "no_extra_bufts", "yes"),
        ("--no-host", "no_host", "yes"),
        ("-kvo --kv-offload", "no_kv_offload", "no"),
        ("-nkvo --no-kv-offload", "no_kv_offload", "yes"),
        ("--op-offload", "no_op_offload", "no"),
        ("--no-op-offload", "no_op_offload", "yes"),
        ("-ngl --gpu-layers --n-gpu-layers", "n_gpu_layers", "layers"),
        ("-sm --split-mode", "split_mode", "enum:llama_split_mode:LLAMA_SPLIT_MODE_"),
        ("-ts --tensor-split", "tensor_split", "shares"),
        ("-mg --main-gpu", "main_gpu", "int"),
        ("-ot --override-tensor", "tensor_buft_overrides", "str"),
        ("--lora", "lora_adapters", "lora"),
        ("--lora-scaled", "lora_adapters", "lora"),
        ("--lora-init-without-apply", "lora_init_without_apply", "yes"),
        # position
        ("--rope-scaling", "rope_scaling_type",
         "enum:llama_rope_scaling_type:LLAMA_ROPE_SCALING_TYPE_"),
        ("--rope-scale", "rope_freq_scale", "inverse"),
        ("--rope-freq-base", "rope_freq_base", "float"),
        ("--rope-freq-scale", "rope_freq_scale", "float"),
        ("--yarn-orig-ctx", "yarn_orig_ctx", "int"),
        ("--yarn-ext-factor", "yarn_ext_factor", "float"),
        ("--yarn-attn-factor", "yarn_attn_factor", "float"),
        ("--yarn-beta-slow", "yarn_beta_slow", "float"),
        ("--yarn-beta-fast", "yarn_beta_fast", "float"),
        # pictures and sound
        ("-mm --mmproj", "mmproj.path", "str"),
        ("--no-mmproj-auto --no-mmproj", "no_mmproj", "yes"),
        ("--mmproj-offload", "mmproj_use_gpu", "yes"),
        ("--no-mmproj-offload", "mmproj_use_gpu", "no"),
        ("--image-min-tokens", "image_min_tokens", "int"),
        ("--image-max-tokens", "image_max_tokens", "int"),
        # chat
        ("--jinja", "use_jinja", "yes"),
        ("--no-jinja", "use_jinja", "no"),
        ("--chat-template", "chat_template", "str"),
        ("--chat-template-file", "chat_template", "file"),
        ("--chat-template-kwargs", "default_template_kwargs", "template"),
        ("--prefill-assistant", "prefill_assistant", "yes"),
        ("--no-prefill-assistant", "prefill_assistant", "no"),
        ("--reasoning-format", "reasoning_format",
         "enum:common_reasoning_format:COMMON_REASONING_FORMAT_"),
        ("-rea --reasoning", "enable_reasoning", "three"),
        ("--reasoning-budget", "sampling.reasoning_budget_tokens", "int"),
        ("-sp --special", "special", "yes"),
        # embeddings
        ("--embedding --embeddings", "embedding", "yes"),
        ("--rerank --reranking", "embedding pooling_type", "rerank"),
        ("--pooling", "pooling_type", "enum:llama_pooling_type:LLAMA_POOLING_TYPE_"),
        ("--embd-normalize", "embd_normalize", "int"),
        # what a request that names none is sampled with
        ("-n --predict --n-predict", "n_predict", "int"),
        ("-s --seed", "sampling.seed", "seed"),
        ("--temperature --temp", "sampling.temp", "float"),
        ("--top-k", "sampling.top_k", "int"),
        ("--top-p", "sampling.top_p", "float"),
        ("--min-p", "sampling.min_p", "float"),
        ("--typical-p --typical", "sampling.typ_p", "float"),
        ("--repeat-last-n", "sampling.penalty_last_n", "int"),
        ("--repeat-penalty", "sampling.penalty_repeat", "float"),
        ("--presence-penalty", "sampling.penalty_present", "float"),
        ("--frequency-penalty", "sampling.penalty_freq", "float"),
        ("--samplers", "sampling.samplers", "str"),
    )
)  # fmt: skip

BY_NAME = {name: option for option in OPTIONS for name in option.names.split()}
FLAGS = ("yes", "no", "is", "loud", "rerank")
"""Kinds that take no value."""


def parse(argv: list[str]) -> list[Setting]:
    """The settings that a command line makes, in its order.

    Raises:
        Trouble: an option that has no field here, a missing value, or one that does not read.
    """
    words = list(argv)
    settings = []
    while words:
        word = words.pop(0)
        optional = word == "--try"
        if optional:
            if not words:
                raise Trouble("the option --try needs another option after it")
            word = words.pop(0)
        settings.append(_setting(word, words, optional))
    return settings


def _setting(word: str, words: list[str], optional: bool) -> Setting:
    given, equals, value = word.partition("=")
    # llama-server takes underscores for hyphens in long options, and so does this
    name = given.replace("_", "-") if given.startswith("--") else given
    option = BY_NAME.get(name)
    if option is None:
        if not given.startswith("-"):
            raise Trouble(f"the word {word!r} belongs to no option")
        raise Trouble(f"the option {given} cannot be used with the xllamacpp package")
    kind, _, detail = option.kind.partition(":")
    if kind in FLAGS:
        if equals:
            raise Trouble(f"the option {given} takes no value")
        return Setting(option, name, READERS[kind](detail), optional)
    if not equals:
        if words and not (kind == "flash" and words[0].startswith("--")):
            value = words.pop(0)
        elif kind == "flash":
            value = "on"  # older servers have it as a flag
        else:
            raise Trouble(f"the option {given} needs a value")
    try:
        read = READERS[kind](value, detail) if kind == "enum" else READERS[kind](value)
    except (ValueError, ZeroDivisionError):
        raise Trouble(f"the value {value!r} of the option {given} does not read") from None
    return Setting(option, name, read, optional)


def _enum(value: str, detail: str) -> EnumWord:
    enum, _, prefix = detail.partition(":")
    word = {"dio": "direct_io"}.get(value, value)
    member = word.replace("+", "_").replace("-", "_")
    if not member.replace("_", "").isalnum():
        raise ValueError(value)
    return EnumWord(enum, prefix + member.upper())


def _is(detail: str) -> EnumWord:
    enum, _, member = detail.partition(":")
    return EnumWord(enum, member)


def _flash(value: str) -> EnumWord:
    words = {"on": "ENABLED", "1": "ENABLED", "off": "DISABLED", "0": "DISABLED",
             "auto": "AUTO", "-1": "AUTO"}  # fmt: skip
    if value not in words:
        raise ValueError(value)
    return EnumWord("llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_" + words[value])


def _switch(value: str) -> bool:
    words = {"on": True, "1": True, "true": True, "off": False, "0": False, "false": False}
    if value not in words:
        raise ValueError(value)
    return words[value]


def _three(value: str) -> int:
    return -1 if value == "auto" else int(_switch(value))


def _layers(value: str) -> int:
    return {"auto": -1, "all": -2}.get(value) or int(value)


def _seed(value: str) -> int:
    return int(value) % (1 << 32)


def _shares(value: str) -> list[float]:
    return [float(part) for part in value.replace("/", ",").split(",")]


def _lora(value: str) -> list[tuple[str, float]]:
    pairs = []
    for part in value.split(","):
        path, colon, scale = part.rpartition(":")
        pairs.append((path, float(scale)) if colon else (part, 1.0))
    return pairs


def _template(value: str) -> dict[str, str]:
    read = json.loads(value)
    if not isinstance(read, dict):
        raise ValueError(value)  # noqa: TRY004 - a value that does not read, as any other
    return {str(key): json.dumps(item) for key, item in read.items()}


READERS: dict[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "words": lambda value: [word for word in value.split(",") if word],
    "keys": str,
    "file": str,
    "yes": lambda _: True,
    "no": lambda _: False,
    "loud": lambda _: 99,
    "rerank": lambda _: True,
    "enum": _enum,
    "is": _is,
    "flash": _flash,
    "switch": _switch,
    "three": _three,
    "layers": _layers,
    "seed": _seed,
    "inverse": lambda value: 1.0 / float(value),
    "shares": _shares,
    "lora": _lora,
    "template": _template,
}
