"""What a header is read as, and what is said about those that are wrong."""

from __future__ import annotations

import re
import tracemalloc

import pytest

from llmgw_core.errors import LlmgwError
from llmgw_core.gguf.errors import HeaderError
from llmgw_core.gguf.header import Header, SkippedArray, TensorInfo
from llmgw_core.gguf.parse import Type
from tests.gguf.malformed import CASES
from tests.gguf.reading import parse, parse_in_steps
from tests.gguf.writer import File, array, base, good, numbers, text, texts, vocabulary


def outcome(data: bytes, *, whole: bool = True, tells_size: bool = True) -> Header | HeaderError:
    """What comes of it; any other exception fails the test."""
    try:
        return parse(data, whole=whole, tells_size=tells_size)
    except HeaderError as error:
        return error


@pytest.mark.parametrize("name", CASES)
def test_every_wrong_file_gets_one_clear_sentence(name: str) -> None:
    make, words = CASES[name]
    data = make()
    tracemalloc.start()
    found = outcome(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 * 1024 * 1024
    assert isinstance(found, HeaderError) == (words is not None), found
    if isinstance(found, HeaderError) and words is not None:
        said = str(found)
        assert re.search(words, said), said
        assert said.startswith("m.gguf ")
        assert said.isprintable()
        assert len(said) < 400
        assert found.exit_code == 2


@pytest.mark.parametrize("name", CASES)
def test_good_ones_are_read_also_where_the_size_is_not_known_or_a_prefix_will_do(name: str) -> None:
    make, words = CASES[name]
    data = make()
    for whole in (True, False):
        for tells_size in (True, False):
            found = outcome(data, whole=whole, tells_size=tells_size)
            assert isinstance(found, Header) or words is not None


def test_a_good_file() -> None:
    header = parse(bytes(good()))
    assert header.version == 3
    assert header.architecture == "llama"
    assert header.vocabulary == 3
    assert header.keys["tokenizer.ggml.tokens"] == ("a", "b", "<eos>")
    assert header.keys["tokenizer.ggml.scores"] == (0.5, 1.0, 2.0)
    assert header.tensors == (
        TensorInfo("token_embd.weight", (64, 3), 0, 0),
        TensorInfo("blk.0.x", (64,), 8, 768),
    )
    assert header.complete
    assert header.header_bytes is not None
    assert header.header_bytes % 32 == 0
    assert header.header_bytes - len(good().head()) < 32
    assert header.file_bytes == len(bytes(good()))
    assert header.warnings == ()


def test_big_endian_is_read_and_warned_of() -> None:
    big, little = parse(bytes(good(">"))), parse(bytes(good()))
    assert big.big_endian
    assert big.keys == little.keys
    assert big.tensors == little.tensors
    assert "big-endian" in big.warnings[0]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Type.UINT8, 255),
        (Type.INT8, -128),
        (Type.UINT16, 65535),
        (Type.INT16, -32768),
        (Type.UINT32, 4_000_000_000),
        (Type.INT32, -5),
        (Type.UINT64, (1 << 64) - 1),
        (Type.INT64, -(1 << 63)),
    ],
)
def test_numbers_of_every_type(kind: Type, value: int) -> None:
    for order in "<>":
        file = File(order=order).add("one", value, kind)
        file.raw("list", Type.ARRAY, numbers(kind, [value, 1], order))
        assert parse(bytes(file)).keys == {"one": value, "list": (value, 1)}


def test_floats_and_truths() -> None:
    file = File().add("yes", True).add("no", False).add("half", 0.5)
    file.raw("odd", Type.BOOL, b"\x02").raw("f64", Type.FLOAT64, bytes(8))
    file.raw("list", Type.ARRAY, numbers(Type.BOOL, [True, False]))
    keys = parse(bytes(file)).keys
    assert keys == {
        "yes": True,
        "no": False,
        "half": 0.5,
        "odd": True,
        "f64": 0.0,
        "list": (True, False),
    }
    assert keys["odd"] is True


def test_long_lists_are_passed_over_and_counted() -> None:
    file = File().raw("n", Type.ARRAY, array(Type.UINT16, 4097, bytes(2 * 4097)))
    file.raw("s", Type.ARRAY, texts(["ab"] * 4097)).raw("t", Type.ARRAY, texts(["x" * 70_000, "y"]))
    file.raw("kept", Type.ARRAY, numbers(Type.UINT8, [1] * 4096))
    file.raw("none", Type.ARRAY, texts([])).add("last", 7)
    keys = parse(bytes(file)).keys
    assert keys["n"] == SkippedArray(4097)
    assert keys["s"] == SkippedArray(4097)
    assert keys["t"] == SkippedArray(2)
    assert keys["kept"] == (1,) * 4096
    assert keys["none"] == ()
    assert keys["last"] == 7


def test_a_very_long_text_is_cut_and_said_so() -> None:
    long = "ä" * (1 << 20)
    header = parse(bytes(File().add("chat", long).add("last", 7)))
    kept = header.keys["chat"]
    assert isinstance(kept, str)
    assert long.startswith(kept)
    assert len(kept) == 1 << 19
    assert header.keys["last"] == 7
    assert "2097152 bytes" in header.warnings[0]


def test_text_that_is_not_utf8_stays_readable() -> None:
    header = parse(bytes(File().raw(b"\xff", Type.STRING, text(b"caf\xe9"))))
    assert header.keys == {"\\xff": "caf\\xe9"}
    assert any("UTF-8" in said for said in header.warnings)


def test_nothing_of_a_file_reaches_the_terminal_raw() -> None:
    evil = "\x1b[31m\0\r\n\u202e\u2028"
    data = bytes(File().add(evil, 1).add(evil, 2))
    with pytest.raises(HeaderError) as caught:
        parse(data)
    assert str(caught.value).isprintable()
    assert isinstance(caught.value, LlmgwError)


def test_tensors_of_an_unknown_type_are_warned_of() -> None:
    header = parse(bytes(base(data=bytes(256)).tensor("t", kind=200).tensor("u", offset=128)))
    assert len(header.tensors) == 2
    assert "200" in header.warnings[0]


def test_gaps_between_tensors_are_warned_of() -> None:
    header = parse(bytes(base(data=bytes(512)).tensor("t").tensor("u", offset=256)))
    assert any("one after another" in said for said in header.warnings)


@pytest.mark.parametrize("step", [1, 2, 3, 5, 8, 13, 100, 1000])
def test_pieces_of_any_size_give_the_same(step: int) -> None:
    file = good()
    file.raw("many", Type.ARRAY, texts(["abc", "", "d" * 40] * 2000)).add("last", 7)
    data = bytes(file)
    assert parse_in_steps(data, step) == parse(data)


def test_a_vocabulary_costs_no_memory() -> None:
    data = vocabulary(100_000)
    tracemalloc.start()
    header = parse(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert header.vocabulary == 100_000
    # what is held at once is one piece; here that is a slice of the file, at most 4 MiB
    assert peak < 6 * 1024 * 1024


def test_a_prefix_has_the_architecture_and_says_that_it_is_one() -> None:
    data = vocabulary(100_000)
    header = parse(data, whole=False)
    assert not header.complete
    assert header.keys["llama.attention.head_count_kv"] == 2
    assert header.vocabulary == 100_000
    assert header.header_bytes is None
    assert header.file_bytes == len(data)
    assert header.tensors == ()
    assert "general.file_type" not in header.keys


def test_a_small_header_is_whole_though_a_prefix_was_asked_for() -> None:
    header = parse(bytes(good()), whole=False)
    assert header.complete
    assert len(header.tensors) == 2


def test_a_prefix_goes_on_where_the_architecture_stands_later() -> None:
    file = File().raw("tokenizer.ggml.tokens", Type.ARRAY, texts(["abcdef"] * 50_000))
    file.add("general.architecture", "llama").add("llama.block_count", 2)
    file.add("llama.embedding_length", 64)
    header = parse(bytes(file), whole=False)
    assert header.keys["llama.block_count"] == 2
