from __future__ import annotations

import pytest

from llmgw_core.engines.llamacpp_options import BY_NAME, OPTIONS, EnumWord, Trouble, parse


def values(*argv: str) -> dict[str, object]:
    return {setting.option.fields: setting.value for setting in parse(list(argv))}


def test_no_name_stands_for_two_options() -> None:
    assert len(BY_NAME) == sum(len(option.names.split()) for option in OPTIONS)


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (("--ctx-size", "4096"), "n_ctx", 4096),
        (("-c", "4096"), "n_ctx", 4096),
        (("--ctx_size=4096",), "n_ctx", 4096),
        (("--kv-unified",), "kv_unified", True),
        (("--no-kv-unified",), "kv_unified", False),
        (("--alias", "a,b"), "model_alias", ["a", "b"]),
        (("-ngl", "all"), "n_gpu_layers", -2),
        (("-ngl", "0"), "n_gpu_layers", 0),
        (("-ngl", "12"), "n_gpu_layers", 12),
        (("--seed", "-1"), "sampling.seed", 0xFFFFFFFF),
        (("--rope-scale", "4"), "rope_freq_scale", 0.25),
        (("--tensor-split", "3,1"), "tensor_split", [3.0, 1.0]),
        (("--lora-scaled", "/a:b:0.5"), "lora_adapters", [("/a:b", 0.5)]),
        (("--lora", "/a,/b"), "lora_adapters", [("/a", 1.0), ("/b", 1.0)]),
        (("--reasoning", "auto"), "enable_reasoning", -1),
        (("--fit", "off"), "fit_params", False),
        (("--cache-type-k", "q8_0"), "cache_type_k", EnumWord("ggml_type", "GGML_TYPE_Q8_0")),
        (("-lm", "mmap+mlock"), "load_mode",
         EnumWord("llama_load_mode", "LLAMA_LOAD_MODE_MMAP_MLOCK")),
        (("-lm", "dio"), "load_mode", EnumWord("llama_load_mode", "LLAMA_LOAD_MODE_DIRECT_IO")),
        (("--no-mmap",), "load_mode", EnumWord("llama_load_mode", "LLAMA_LOAD_MODE_NONE")),
    ],
)  # fmt: skip
def test_an_option_sets_its_field(argv: tuple[str, ...], field: str, value: object) -> None:
    assert values(*argv) == {field: value}


def test_flash_attention_is_a_flag_in_old_servers_and_has_a_value_in_new_ones() -> None:
    (flag, metrics) = parse(["-fa", "--metrics"])
    assert flag.value.member.endswith("ENABLED")
    assert metrics.value is True
    (valued,) = parse(["--flash-attn", "off"])
    assert valued.value.member.endswith("DISABLED")


def test_a_trial_is_marked_and_reads_as_the_option_does() -> None:
    (setting,) = parse(["--try", "--cache-ram=512"])
    assert (setting.optional, setting.value) == (True, 512)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--rpc", "host:1"), "the option --rpc cannot be used"),
        (("-x",), "the option -x cannot be used"),
        (("--ctx-size",), "the option --ctx-size needs a value"),
        (("--ctx-size", "many"), "the value 'many' of the option --ctx-size does not read"),
        (("--rope-scale", "0"), "the option --rope-scale does not read"),
        (("--fit", "perhaps"), "the option --fit does not read"),
        (("--cache-type-k", "../x"), "the option --cache-type-k does not read"),
        (("--metrics=1",), "the option --metrics takes no value"),
        (("--chat-template-kwargs", "[]"), "--chat-template-kwargs does not read"),
        (("stray",), "the word 'stray' belongs to no option"),
        (("--try",), "--try needs another option"),
    ],
)
def test_what_cannot_be_used_is_said_by_name(argv: tuple[str, ...], said: str) -> None:
    with pytest.raises(Trouble) as trouble:
        parse(list(argv))
    assert said in str(trouble.value)
    assert trouble.value.status == 64
