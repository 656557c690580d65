"""Which of an engine's metrics are *running*, *waiting* and *KV use*. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MetricsMapping:
    """Names in an engine's /metrics; the first spelling found wins; empty is unknown."""

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    kv_usage: tuple[str, ...] = ()
    prompt_tokens: tuple[str, ...] = ()
    """Counter of prompt tokens computed."""
    output_tokens: tuple[str, ...] = ()
    """Counter of tokens generated."""
    slots_path: str = ""
    """llama.cpp's list of slots, which knows of answers under way; empty where there is none."""


VLLM = MetricsMapping(
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    kv_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    prompt_tokens=("vllm:prompt_tokens_total",),
    output_tokens=("vllm:generation_tokens_total",),
)

LLAMACPP = MetricsMapping(
    running=("llamacpp:requests_processing",),
    waiting=("llamacpp:requests_deferred",),
    kv_usage=("llamacpp:kv_cache_usage_ratio",),
    prompt_tokens=("llamacpp:prompt_tokens_total",),
    output_tokens=("llamacpp:tokens_predicted_total",),
    slots_path="/slots",
)


def complete(given: MetricsMapping | None, default: MetricsMapping = VLLM) -> MetricsMapping:
    """The mapping in force: one that names its own ``running`` is a complete statement."""
    return given if given is not None and given.running else default
