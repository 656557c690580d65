"""Which files belong together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.gguf.errors import HeaderError
from llmgw_core.gguf.splits import checked, grouped, is_projector, part_name, split_name

PARTS = tuple(f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3))


def test_files_are_sorted_by_what_they_are() -> None:
    found = grouped(
        [*PARTS, "b-00002-of-00002.gguf", "one.gguf", "mmproj-F16.gguf", "README.md", "m.GGUF"]
    )
    assert found.singles == ("m.GGUF", "one.gguf")
    assert found.projectors == ("mmproj-F16.gguf",)
    broken, whole = found.sets
    assert whole.is_whole
    assert whole.parts == PARTS
    assert whole.first == PARTS[0]
    assert whole.missing == ()
    assert not broken.is_whole
    assert broken.first == "b-00001-of-00002.gguf"
    assert broken.missing == (1,)


def test_splits_in_folders_stay_apart() -> None:
    found = grouped([f"{folder}/{name}" for folder in ("Q4", "Q8") for name in PARTS])
    assert [(s.stem, s.is_whole) for s in found.sets] == [("Q4/m", True), ("Q8/m", True)]


def test_the_same_stem_in_two_counts_is_two_sets() -> None:
    found = grouped(["m-00001-of-00002.gguf", "m-00002-of-00003.gguf"])
    assert [s.missing for s in found.sets] == [(2,), (1, 3)]


@pytest.mark.parametrize(
    "name",
    [
        "m-00000-of-00003.gguf",
        "m-00004-of-00003.gguf",
        "m-1-of-3.gguf",
        "-00001-of-00003.gguf",
        "m-00001-of-00003.GGUF",
        "m-00001-of-00003.gguf.part",
        "m-٠٠٠٠١-of-00003.gguf",
    ],
)
def test_other_names_are_no_parts(name: str) -> None:
    assert split_name(name) is None


def test_projectors_are_known_by_the_name_of_the_file_alone() -> None:
    assert is_projector("a/mmproj-model-f16.gguf")
    assert is_projector("Qwen.MMPROJ-Q8.gguf")
    assert not is_projector("mmproj/model.gguf")


def test_the_first_of_a_whole_set_is_taken_with_all_others() -> None:
    assert checked("one.gguf", ["one.gguf"]) == ("one.gguf",)
    assert checked(PARTS[0], PARTS) == PARTS


def test_a_set_that_cannot_be_loaded_is_refused_in_one_sentence() -> None:
    with pytest.raises(HeaderError, match=r"part 2 of 3; name the first, m-00001-of-00003\.gguf"):
        checked(PARTS[1], PARTS)
    with pytest.raises(HeaderError, match="m is not whole: part 2 of 3 is missing"):
        checked(PARTS[0], [PARTS[0], PARTS[2]])
    with pytest.raises(HeaderError, match="parts 2, 3, 4, 5, 6 and 99993 more of 99999"):
        checked("m-00001-of-99999.gguf", ["m-00001-of-99999.gguf"])


@given(st.text(min_size=1), st.integers(1, 99_999), st.integers(1, 99_999))
def test_names_of_parts_are_read_back(stem: str, number: int, count: int) -> None:
    part = split_name(part_name(stem, number, count))
    if number > count:
        assert part is None
    else:
        assert part is not None
        assert (part.stem, part.number, part.count) == (stem, number, count)


@given(st.lists(st.sampled_from(range(1, 6)), unique=True, min_size=1))
def test_a_set_is_whole_where_nothing_is_missing(numbers: list[int]) -> None:
    (found,) = grouped(part_name("m", n, 5) for n in numbers).sets
    assert sorted((*numbers, *found.missing)) == [1, 2, 3, 4, 5]
    assert found.is_whole == (not found.missing)
