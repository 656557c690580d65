"""A file written by the ``gguf`` package is read as that package reads it."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from llmgw_core.gguf.constants import ggml_types
from llmgw_core.gguf.facts import facts
from llmgw_core.gguf.reader import read_header_of_file


@pytest.fixture(params=[gguf.GGUFEndian.LITTLE, gguf.GGUFEndian.BIG], ids=["little", "big"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=request.param)
    writer.add_name("Grüße 🦙")
    writer.add_block_count(2)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv([4, 2])
    writer.add_sliding_window_pattern([True, False])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_custom_alignment(64)
    writer.add_token_list(["a", "bb", "ccc"])
    writer.add_token_scores([0.0, 1.0, -2.5])
    writer.add_tensor("token_embd.weight", np.zeros((3, 64), dtype=np.float32))
    packed = np.zeros((64, 2 * 34), dtype=np.uint8)
    writer.add_tensor("blk.0.attn_q.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("blk.1.odd", np.zeros(5, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_both_read_the_same(written: Path) -> None:
    header, other = read_header_of_file(written), gguf.GGUFReader(written)
    assert header.header_bytes == other.data_offset
    names = [name for name in other.fields if not name.startswith("GGUF.")]
    assert list(header.keys) == names
    for name in names:
        found = header.keys[name]
        value = list(found) if isinstance(found, tuple) else found
        assert value == other.fields[name].contents(), name
    assert [
        (tensor.name, tensor.shape, tensor.type, tensor.offset) for tensor in header.tensors
    ] == [
        (
            tensor.name,
            tuple(int(size) for size in tensor.shape),
            int(tensor.tensor_type),
            int(tensor.data_offset) - other.data_offset,
        )
        for tensor in other.tensors
    ]
    found_facts = facts(header)
    assert found_facts.parameters == sum(int(tensor.n_elements) for tensor in other.tensors)
    assert found_facts.weights_bytes == sum(int(tensor.n_bytes) for tensor in other.tensors)
    assert found_facts.file_type == "Q8_0"
    assert found_facts.kv_heads == (4, 2)
    assert [said for said in header.warnings if "endian" not in said] == []


def test_the_tables_are_those_of_the_package() -> None:
    assert {
        number: (kind.name, kind.block, kind.size) for number, kind in ggml_types().items()
    } == {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
