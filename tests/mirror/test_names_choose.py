"""Which files of a repository a pull takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.errors import LlmgwError, NotFound, Refused
from llmgw_core.mirror.choose import choose, split_parts

SETS = ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"]
QUANTS = [
    ".gitattributes", "README.md", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", *SETS, "mmproj-F16.gguf",
    "mmproj-m-Q8_0.gguf",
]  # fmt: skip
TENSORS = [
    ".gitattributes", "README.md", "config.json", "tokenizer.json", "model.safetensors",
    "pytorch_model.bin", "onnx/model.onnx", "original/consolidated.00.pth",
]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [
        ("*Q4_K_M*", ["m-Q4_K_M.gguf"]),
        ("*q4_k_m*", ["m-Q4_K_M.gguf"]),
        ("m-Q4_K_M.gguf", ["m-Q4_K_M.gguf"]),
        ("*Q4*", ["m-Q4_K_M.gguf", "m-Q4_K_S.gguf"]),
        ("*Q8_0*", SETS),
        (SETS[1], SETS),
        ("*Q4_K_M*,mmproj-F16.gguf", ["m-Q4_K_M.gguf", "mmproj-F16.gguf"]),
        ("*mmproj*", ["mmproj-F16.gguf", "mmproj-m-Q8_0.gguf"]),
        ("*", [name for name in QUANTS if not name.startswith(".")]),
    ],
)
def test_a_pattern_takes_what_it_says(pattern: str, taken: list[str]) -> None:
    assert sorted(choose(QUANTS, pattern, "hf:o/m")) == sorted(taken)


def test_several_quantisations_without_a_pattern_are_listed_with_what_to_write() -> None:
    with pytest.raises(Refused) as caught:
        choose(QUANTS, "", "hf:o/m")
    assert str(caught.value) == (
        "hf:o/m has 3 models to choose from: *Q4_K_M*, *Q4_K_S*, *Q8_0*; "
        "say which, such as hf:o/m:*Q4_K_M*"
    )


def test_the_list_of_many_is_short() -> None:
    with pytest.raises(Refused, match=r"has 20 models .* and 12 more; say which"):
        choose([f"m{n}.gguf" for n in range(20)], "", "hf:o/m")


def test_one_model_is_taken_without_a_pattern_and_without_its_projector() -> None:
    assert choose(["m.gguf", "mmproj.gguf", "README.md"], "", "w") == ("m.gguf",)
    assert choose(SETS, "", "w") == tuple(SETS)


def test_weights_that_the_engine_does_not_read_stay() -> None:
    taken = choose(TENSORS, "", "hf:o/m")
    assert set(taken) == {"README.md", "config.json", "tokenizer.json", "model.safetensors"}
    assert choose(["a.bin", "config.json"], "", "w") == ("a.bin", "config.json")


def test_both_kinds_ask_which() -> None:
    with pytest.raises(Refused, match=r"\*\.safetensors,\*\.json"):
        choose([*TENSORS, "m.gguf"], "", "hf:o/m")
    assert "config.json" in choose([*TENSORS, "m.gguf"], "*.safetensors,*.json", "hf:o/m")


def test_folders_are_taken_with_a_slash() -> None:
    names = ["Q4/a.gguf", "Q8/a.gguf", "Q4/.hidden"]
    assert choose(names, "Q4/", "w") == ("Q4/a.gguf",)
    with pytest.raises(Refused, match=r"such as w:Q4/a\.gguf"):
        choose(names, "", "w")


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        ("*Q5_K_M*", "the nearest"),
        ("Q4_K_M", "the nearest is m-Q4_K_M.gguf"),
        ("m-Q4_K_L.gguf", "m-Q4_K_M.gguf"),
        ("Q4", "the nearest are m-Q4_K_M.gguf, m-Q4_K_S.gguf"),
        (",", "no file that matches"),
    ],
)
def test_nothing_that_matches_names_the_nearest(pattern: str, near: str) -> None:
    with pytest.raises(NotFound, match="has no file that matches") as caught:
        choose(QUANTS, pattern, "hf:o/m")
    assert near in str(caught.value)


def test_an_incomplete_set_is_refused() -> None:
    with pytest.raises(Refused, match=r"only 1 of the 2 parts .*00001-of-00002\.gguf is missing"):
        choose([SETS[1]], "", "hf:o/m")


def test_an_empty_repository_is_said() -> None:
    with pytest.raises(NotFound, match="has no files"):
        choose([".gitattributes"], "", "hf:o/m")


@given(st.lists(st.text(max_size=30), max_size=8), st.text(max_size=20))
def test_only_what_is_there_is_taken_or_one_sentence_is_said(
    names: list[str], pattern: str
) -> None:
    try:
        taken = choose(names, pattern, "w")
    except (NotFound, Refused):
        return
    assert taken
    assert set(taken) <= set(names)


def test_a_part_of_a_set_knows_the_others() -> None:
    assert split_parts("d/x-00002-of-00003.gguf") == tuple(
        f"d/x-0000{n}-of-00003.gguf" for n in (1, 2, 3)
    )
    assert split_parts("x-2-of-3.gguf") == ("x-2-of-3.gguf",)


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["\x1b[2Ja.gguf", "\u202eb" + "x" * 5000 + ".gguf"], ""),
        (["\x1b[2Ja.gguf"], "*Q4*"),
        (["\x1b[2J-00001-of-00002.gguf"], ""),
    ],
)
def test_a_hub_cannot_steer_the_terminal_with_its_names(names: list[str], pattern: str) -> None:
    with pytest.raises(LlmgwError) as caught:
        choose(names, pattern, "hf:o/m")
    said = str(caught.value)
    assert "·[2J" in said
    assert said.isprintable()
    assert len(said) < 1000
