"""Headers of files on nodes: the real script, under each shell."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmgw_core.errors import NodeLost
from llmgw_core.gguf.errors import SourceError
from llmgw_core.gguf.reader import FIRST_BYTES, read_header
from llmgw_core.gguf.sources import NodeSource
from llmgw_core.nodes.instances import Instances
from tests.gguf.reading import Bytes
from tests.gguf.writer import vocabulary
from tests.nodes.shells import local, node, state

__all__ = ["local", "node", "state"]


class Counting:
    """A node that notes down what it is asked for."""

    def __init__(self, instances: Instances) -> None:
        self.instances = instances
        self.parts: list[tuple[int, int]] = []

    async def stat_file(self, path: str) -> int | None:
        return await self.instances.stat_file(path)

    async def read_file(self, path: str, *, offset: int, length: int) -> bytes:
        self.parts.append((offset, length))
        return await self.instances.read_file(path, offset=offset, length=length)


class Gone:
    """A node whose link breaks."""

    async def stat_file(self, path: str) -> int | None:
        return 1000

    async def read_file(self, path: str, *, offset: int, length: int) -> bytes:
        raise NodeLost("n1 is not connected")


async def test_a_header_is_read_with_one_small_read_and_a_few_large_ones(
    node: Instances, tmp_path: Path
) -> None:
    data = vocabulary(100_000, merges=50_000)
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    counting = Counting(node)
    source = NodeSource(counting, str(path))
    assert await read_header(source) == await read_header(Bytes(data))
    assert counting.parts[0] == (0, FIRST_BYTES)
    assert len(counting.parts) <= 8
    assert source.bytes_read <= 1.1 * len(data)

    prefix = await read_header(NodeSource(once := Counting(node), str(path)), whole=False)
    assert prefix.keys["llama.block_count"] == 2
    assert prefix.file_bytes == len(data)
    assert once.parts == [(0, FIRST_BYTES)]


async def test_a_file_that_is_not_there_is_said(node: Instances) -> None:
    with pytest.raises(SourceError, match="is not there on the node"):
        await read_header(NodeSource(node, "/nowhere/m.gguf"))


async def test_a_lost_node_stays_a_lost_node() -> None:
    with pytest.raises(NodeLost):
        await read_header(NodeSource(Gone(), "/m.gguf"))
