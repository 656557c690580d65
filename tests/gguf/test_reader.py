"""Headers out of files: how much is read, and how often."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmgw_core.gguf.errors import HeaderError, SourceError
from llmgw_core.gguf.header import SkippedArray
from llmgw_core.gguf.parse import Type
from llmgw_core.gguf.reader import FIRST_BYTES, read_header, read_header_of_file
from llmgw_core.gguf.sources import FileSource
from tests.engines.real import real_model
from tests.gguf.reading import Bytes
from tests.gguf.writer import base, good, texts, vocabulary


@pytest.fixture(scope="module")
def large() -> bytes:
    """A header of 7 MB, as models with the largest vocabularies have."""
    return vocabulary(262_144, merges=100_000, tensors=300)


async def test_a_prefix_is_one_request(large: bytes) -> None:
    source = Bytes(large)
    header = await read_header(source, whole=False)
    assert header.keys["llama.block_count"] == 2
    assert header.vocabulary == 262_144
    assert (source.requests, source.bytes_read) == (1, FIRST_BYTES)


@pytest.mark.parametrize(
    "shape",
    [
        {"tokens": 262_144, "merges": 100_000, "tensors": 300},
        {"tokens": 262_144, "merges": 0, "tensors": 700},
        {"tokens": 49_152, "merges": 48_900, "tensors": 272},
        {"tokens": 151_936, "merges": 151_387, "tensors": 1100, "mean": 5},
        {"tokens": 32_000, "merges": 0, "tensors": 5000},
    ],
)
async def test_a_whole_header_takes_few_requests_and_hardly_more_than_itself(
    shape: dict[str, int],
) -> None:
    data = vocabulary(**shape)
    source = Bytes(data)
    header = await read_header(source)
    assert header.complete
    assert len(header.tensors) == shape["tensors"]
    assert header.header_bytes is not None
    assert header.header_bytes > FIRST_BYTES
    assert source.requests <= 8
    assert source.bytes_read <= 1.1 * header.header_bytes
    assert source.largest <= 4 << 20


async def test_a_file_is_read_like_bytes(tmp_path: Path, large: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(large)
    source = FileSource(path)
    header = await read_header(source)
    assert header == await read_header(Bytes(large))
    assert header == read_header_of_file(path)
    assert source.requests <= 8
    assert header.file_bytes == len(large)


async def test_a_download_under_way_can_be_read_as_a_prefix(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf.part"
    path.write_bytes(bytes(good())[:-400])
    assert read_header_of_file(path, whole=False).keys["llama.block_count"] == 2


async def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        await read_header(FileSource(tmp_path / "none"))
    with pytest.raises(HeaderError, match="folder"):
        await read_header(FileSource(tmp_path))
    with pytest.raises(SourceError, match="name of a file"):
        await read_header(FileSource(tmp_path / "a\0b"))
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(HeaderError, match="it is empty"):
        await read_header(FileSource(tmp_path / "empty"))


async def test_a_header_made_to_cost_requests_costs_few() -> None:
    # every text ends far behind whatever was asked for
    file = base()
    file.raw("x", Type.ARRAY, texts(["x" * 400_000] * 200 + [""] * 5000))
    source = Bytes(bytes(file))
    header = await read_header(source)
    assert header.keys["x"] == SkippedArray(5200)
    assert source.requests < 32


@pytest.mark.engine
def test_a_real_model() -> None:
    path = real_model()
    header = read_header_of_file(path)
    assert header.architecture == "llama"
    assert header.complete
    assert header.warnings == ()
    assert header.file_bytes == path.stat().st_size
    assert header.vocabulary is not None
    assert len(header.tensors) > 100
