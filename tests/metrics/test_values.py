from __future__ import annotations

from llmgw_core.metrics.mapping import LLAMACPP, VLLM, MetricsMapping, complete
from llmgw_core.metrics.values import (
    EngineNumbers,
    Rates,
    Slot,
    following,
    numbers_in,
    rates,
)

LLAMACPP_TEXT = """# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 34
llamacpp:tokens_predicted_total 400
llamacpp:requests_processing 1
llamacpp:requests_deferred 0
"""
VLLM_TEXT = """vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.7
vllm:prompt_tokens_total{engine="0"} 10.0
vllm:generation_tokens_total{engine="0"} 20.0
"""


def counters(prompt: float | None, output: float | None, counted: float = 0) -> EngineNumbers:
    return EngineNumbers(
        prompt_tokens_total=prompt, output_tokens_total=output, counted_tokens_total=counted
    )


def test_llamacpps_numbers_and_what_it_does_not_say() -> None:
    numbers = numbers_in(LLAMACPP_TEXT, LLAMACPP)
    assert (numbers.running, numbers.waiting, numbers.kv_usage) == (1, 0, None)
    assert (numbers.prompt_tokens_total, numbers.output_tokens_total) == (34, 400)


def test_vllms_numbers_over_all_its_engines() -> None:
    numbers = numbers_in(VLLM_TEXT, VLLM)
    assert (numbers.running, numbers.waiting) == (7, 0)
    assert numbers.kv_usage == 0.6
    assert (numbers.prompt_tokens_total, numbers.output_tokens_total) == (10, 20)


def test_an_older_spelling_is_read_where_the_new_one_is_not_there() -> None:
    assert numbers_in("vllm:gpu_cache_usage_perc 0.25", VLLM).kv_usage == 0.25


def test_an_answer_without_the_names_leaves_all_unknown() -> None:
    assert numbers_in("<html>", VLLM) == EngineNumbers()


def test_busy_slots_count_answers_under_way_and_give_the_kv_use() -> None:
    slots = [Slot(prompt_tokens=300, decoded=50), Slot(prompt_tokens=212, decoded=7)]
    numbers = numbers_in(LLAMACPP_TEXT, LLAMACPP, slots, context_pool=1024)
    assert numbers.output_tokens_total == 457
    assert numbers.counted_tokens_total == 400
    assert numbers.kv_usage == 0.5


def test_idle_slots_are_a_kv_use_of_nothing_and_an_unknown_pool_is_none() -> None:
    assert numbers_in(LLAMACPP_TEXT, LLAMACPP, (), context_pool=1024).kv_usage == 0
    assert numbers_in(LLAMACPP_TEXT, LLAMACPP, ()).kv_usage is None


def test_a_gauge_outranks_the_slots() -> None:
    text = "llamacpp:kv_cache_usage_ratio 0.125\n"
    assert numbers_in(text, LLAMACPP, [Slot(1024, 0)], context_pool=1024).kv_usage == 0.125


def test_rates_are_growth_per_second() -> None:
    assert rates(counters(10, 100), counters(30, 150), 2.0) == Rates(10, 25)


def test_the_first_scrape_has_no_rates() -> None:
    assert rates(None, counters(10, 100), 2.0) == Rates()
    assert rates(counters(1, 1), counters(10, 100), 0.0) == Rates()


def test_a_counter_that_starts_again_has_no_rate() -> None:
    assert rates(counters(10, 100, 100), counters(0, 5, 5), 2.0) == Rates()
    assert rates(counters(None, 100), counters(5, 110), 2.0) == Rates(None, 5)


def test_an_answer_that_ends_between_the_two_questions_makes_no_spike() -> None:
    # 40 tokens under way, lost for one scrape, counted with the next
    first = counters(1, 40, 0)
    second = following(first, counters(1, 0, 0))
    assert rates(first, second, 1.0).output_tokens_per_s == 0
    third = following(second, counters(1, 42, 42))
    assert rates(second, third, 1.0).output_tokens_per_s == 2


def test_a_restart_is_not_taken_for_it() -> None:
    assert following(counters(9, 500, 500), counters(0, 3, 3)) == counters(0, 3, 3)


def test_a_mapping_that_names_running_is_a_complete_statement() -> None:
    own = MetricsMapping(running=("mine",))
    assert complete(own) is own
    assert numbers_in("mine 2\nvllm:num_requests_waiting 5", complete(own)).waiting is None


def test_a_mapping_left_empty_has_vllms_names() -> None:
    assert complete(None) is VLLM
    assert complete(MetricsMapping(waiting=("mine",))) is VLLM
    assert complete(None, LLAMACPP) is LLAMACPP
