"""An engine's numbers at one moment, and rates between two. Pure; unknown is None."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from llmgw_core.metrics.mapping import MetricsMapping
from llmgw_core.metrics.parse import mean, parse, total


@dataclass(frozen=True, slots=True)
class Slot:
    """One of llama.cpp's slots while it answers."""

    prompt_tokens: int
    """All that it holds: prompt and what was generated."""
    decoded: int
    """Tokens generated for the request under way."""
    taken_in: int = 0
    """Tokens of its prompt that were worked on so far."""


@dataclass(frozen=True, slots=True)
class EngineNumbers:
    """One scrape. Counters count since the engine started; ``kv_usage`` is 0 to 1."""

    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    prompt_tokens_total: float | None = None
    output_tokens_total: float | None = None
    """Where an engine counts an answer when it has ended, the answers under way are in it too."""
    work: float | None = None
    """Grows with every token that is taken in or made; falls when a request ends."""
    counted_tokens_total: float | None = None
    """The engine's own counter of tokens generated, which only falls when it starts again."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Growth per second."""

    prompt_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None


def numbers_in(
    text: str,
    names: MetricsMapping,
    slots: Collection[Slot] | None = None,
    context_pool: int | None = None,
) -> EngineNumbers:
    """What a /metrics answer says, by the engine's names.

    Args:
        text: the answer.
        names: the engine's mapping; names left out stay unknown.
        slots: those that were busy right after, where the engine lists them: their tokens are
            counted as they come, and their share of the pool is the KV use where no gauge is.
        context_pool: tokens that all slots together can hold.
    """
    wanted = {
        *names.running,
        *names.waiting,
        *names.kv_usage,
        *names.prompt_tokens,
        *names.output_tokens,
    }
    samples = parse(text, wanted)
    counted = total(samples, names.output_tokens)
    output, kv_usage = counted, mean(samples, names.kv_usage)
    if slots is not None:
        if counted is not None:
            output = counted + sum(slot.decoded for slot in slots)
        if kv_usage is None and context_pool:
            kv_usage = min(1.0, sum(slot.prompt_tokens for slot in slots) / context_pool)
    prompt = total(samples, names.prompt_tokens)
    parts = [prompt, counted, *(slot.decoded + slot.taken_in for slot in slots or ())]
    told = [part for part in parts if part is not None]
    return EngineNumbers(
        work=sum(told) if told else None,
        running=total(samples, names.running),
        waiting=total(samples, names.waiting),
        kv_usage=kv_usage,
        prompt_tokens_total=prompt,
        output_tokens_total=output,
        counted_tokens_total=counted,
    )


def following(before: EngineNumbers | None, now: EngineNumbers) -> EngineNumbers:
    """``now`` without a step back that its engine did not make.

    An answer that ends between the two questions of a scrape is in neither's count. Its tokens
    come back with the next scrape, so what was counted once stays counted.
    """
    if before is None or _restarted(before, now):
        return now
    first, last = before.output_tokens_total, now.output_tokens_total
    if first is None or last is None or last >= first:
        return now
    return replace(now, output_tokens_total=first)


def rates(before: EngineNumbers | None, now: EngineNumbers, seconds: float) -> Rates:
    """Tokens per second since the scrape before; unknown for the first and after a restart."""
    if before is None or seconds <= 0 or _restarted(before, now):
        return Rates()
    return Rates(
        _growth(before.prompt_tokens_total, now.prompt_tokens_total, seconds),
        _growth(before.output_tokens_total, now.output_tokens_total, seconds),
    )


def _restarted(before: EngineNumbers, now: EngineNumbers) -> bool:
    """Whether a counter started again."""
    pairs = (
        (before.prompt_tokens_total, now.prompt_tokens_total),
        (before.counted_tokens_total, now.counted_tokens_total),
    )
    return any(first is not None and last is not None and last < first for first, last in pairs)


def _growth(first: float | None, last: float | None, seconds: float) -> float | None:
    return None if first is None or last is None or last < first else (last - first) / seconds
