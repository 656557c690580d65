"""What is said of a model by its header."""

from __future__ import annotations

import subprocess
import sys

import pytest

from llmgw_core.gguf.facts import GgufFacts, Kind, facts, weights_bytes
from llmgw_core.gguf.header import Header, Value
from llmgw_core.gguf.parse import Type
from tests.gguf.reading import parse
from tests.gguf.writer import base, good, numbers, vocabulary


def of(**keys: Value) -> GgufFacts:
    """Facts of a model with these keys; ``__`` stands for a dot."""
    given = {key.replace("__", "."): value for key, value in keys.items()}
    return facts(Header(3, {"general.architecture": "llama", **given}, complete=False))


def test_a_models_facts() -> None:
    file = good().add("tokenizer.chat_template", "{{ \x1b }}\n").add("llama.expert_count", 8)
    file.add("llama.expert_used_count", 2).add("llama.attention.sliding_window", 512)
    file.add("llama.attention.key_length", 16).add("llama.attention.value_length", 32)
    assert facts(parse(bytes(file))) == GgufFacts(
        kind=Kind.MODEL,
        name="A model",
        architecture="llama",
        file_type="Q4_K_M",
        parameters=64 * 3 + 64,
        weights_bytes=64 * 3 * 4 + 64 // 32 * 34,
        layers=2,
        embedding=64,
        heads=4,
        kv_heads=2,
        key_length=16,
        value_length=32,
        context_length=4096,
        sliding_window=512,
        experts=8,
        experts_used=2,
        chat_template="{{ \x1b }}\n",
        split_count=None,
        split_index=None,
        tokenizer="gpt2",
        vocabulary=3,
        complete=True,
    )


def test_a_prefix_leaves_out_what_was_not_read() -> None:
    found = facts(parse(vocabulary(100_000), whole=False))
    assert not found.complete
    assert (found.layers, found.vocabulary) == (2, 100_000)
    assert (found.parameters, found.weights_bytes, found.file_type) == (None, None, None)


def test_heads_by_layer() -> None:
    file = base().raw("llama.x", Type.UINT32, bytes(4))
    file.keys = [key for key in file.keys if b"head_count" not in key]
    file.raw("llama.attention.head_count_kv", Type.ARRAY, numbers(Type.INT32, [0, 8]))
    found = facts(parse(bytes(file)))
    assert found.kv_heads == (0, 8)
    assert found.heads is None


@pytest.mark.parametrize("value", ["thirty-two", -5, 4_000_000_000, True, 2.0, (1, 2)])
def test_what_cannot_be_is_left_out(value: Value) -> None:
    assert of(llama__block_count=value).layers is None


def test_texts_are_safe_for_a_terminal() -> None:
    assert of(general__name="\x1b[31mred\n\u202e").name == "·[31mred··"


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"general__type": "model"}, Kind.MODEL),
        ({"general__type": "adapter"}, Kind.ADAPTER),
        ({"general__type": "imatrix"}, Kind.IMATRIX),
        ({"general__type": "mmproj"}, Kind.PROJECTOR),
        ({"general__architecture": "clip"}, Kind.PROJECTOR),
        ({"general__architecture": "controlvector"}, Kind.CONTROL_VECTOR),
        ({"llama__pooling_type": 0}, Kind.MODEL),
        ({"llama__pooling_type": 1}, Kind.EMBEDDING),
        ({"llama__pooling_type": 4}, Kind.RERANKER),
        ({"llama__attention__causal": False}, Kind.EMBEDDING),
        ({"llama__attention__causal": True}, Kind.MODEL),
        ({"general__architecture": "dream", "dream__attention__causal": False}, Kind.MODEL),
        ({"general__type": ("model",)}, Kind.MODEL),
    ],
)
def test_kinds(keys: dict[str, Value], kind: Kind) -> None:
    assert of(**keys).kind is kind


def test_a_vocabulary_alone_is_no_model() -> None:
    file = good(data=b"")
    file.tensors.clear()
    found = facts(parse(bytes(file)))
    assert found.kind is Kind.VOCABULARY
    assert not found.kind.is_served


def test_the_first_part_of_a_split_may_have_no_tensors() -> None:
    file = good(data=b"").add("split.no", 0, Type.UINT16).add("split.count", 3, Type.UINT16)
    file.tensors.clear()
    found = facts(parse(bytes(file)))
    assert found.kind is Kind.MODEL
    assert (found.split_index, found.split_count, found.weights_bytes) == (0, 3, 0)


def test_file_types() -> None:
    assert of(general__file_type=0).file_type == "F32"
    assert of(general__file_type=1024 + 7).file_type == "Q8_0"
    assert of(general__file_type=38).file_type == "MXFP4_MOE"
    assert of(general__file_type=999).file_type is None


def test_splits() -> None:
    found = of(split__no=0, split__count=3)
    assert (found.split_count, found.split_index) == (3, 0)


def test_a_tensor_of_an_unknown_type_takes_the_room_until_the_next() -> None:
    file = base(data=bytes(64 + 128 + 96))
    file.tensor("a", (32,), 200, 0).tensor("b", (32,), 0, 64).tensor("c", (32,), 201, 192)
    found = facts(parse(bytes(file)))
    assert found.weights_bytes == 64 + 128 + 96
    assert found.parameters == 96


def test_layers_that_are_not_loaded_can_be_left_out() -> None:
    file = base(data=bytes(4 * 128))
    for n, name in enumerate(("token_embd.weight", "blk.0.a", "blk.1.a", "blk.2.nextn.a")):
        file.tensor(name, offset=128 * n)
    header = parse(bytes(file))
    assert weights_bytes(header) == 4 * 128
    assert weights_bytes(header, below_layer=2) == 3 * 128


def test_numpy_is_never_imported() -> None:
    code = (
        "import sys; from llmgw_core.gguf.facts import facts, file_type_name as name\n"
        "from llmgw_core.gguf.constants import ggml_types\n"
        "assert name(15) == 'Q4_K_M' and ggml_types()[8].size == 34\n"
        "assert 'numpy' not in sys.modules and 'gguf' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
