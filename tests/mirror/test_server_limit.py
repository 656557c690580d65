"""The limit that all downloads share."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.mirror.limit import (
    BURST_S,
    PIECE_LEAST,
    PIECE_MOST,
    RATE_LEAST,
    Bucket,
    SharedLimit,
)
from tests.mirror.shelves import BOUND_S, TOKEN, Client, lab, until

RATES = st.floats(RATE_LEAST, 1e11)


@given(RATES, st.lists(st.floats(0, 10), max_size=60))
def test_never_more_than_the_rate_and_one_piece(rate: float, idle: list[float]) -> None:
    bucket, now = Bucket(rate, 0.0), 0.0
    grants: list[tuple[float, int]] = []
    for pause in idle:
        now += pause
        now += bucket.wait_s(now)
        bucket.grant(bucket.piece, now)
        grants.append((now, bucket.piece))
    for first, last in itertools.combinations(range(len(grants)), 2):
        took = grants[last][0] - grants[first][0]
        moved = sum(size for _, size in grants[first : last + 1])
        assert moved <= (rate * (took + BURST_S) + bucket.piece) * (1 + 1e-6)


@given(RATES)
def test_one_who_asks_all_the_time_gets_the_rate(rate: float) -> None:
    bucket, now, moved = Bucket(rate, 0.0), 0.0, 0
    for _ in range(200):
        now += bucket.wait_s(now)
        bucket.grant(bucket.piece, now)
        moved += bucket.piece
    now += bucket.wait_s(now)
    assert moved / now == pytest.approx(rate, rel=0.01)


@given(RATES)
def test_pieces_are_large_but_never_a_long_wait(rate: float) -> None:
    piece = Bucket(rate, 0.0).piece
    assert PIECE_LEAST <= piece <= PIECE_MOST
    assert piece / rate <= 1.0


def test_without_a_limit_nobody_waits() -> None:
    bucket = Bucket(None, 0.0)
    for _ in range(1000):
        assert bucket.wait_s(0.0) == 0.0
        bucket.grant(bucket.piece, 0.0)
    bucket.set_rate(1e6, 5.0)
    assert bucket.wait_s(5.0) == 0.0
    bucket.grant(100_000, 5.0)
    assert bucket.wait_s(5.0) == pytest.approx(0.1)
    bucket.set_rate(1e7, 5.0)
    assert bucket.wait_s(5.0) == pytest.approx(0.01)
    bucket.set_rate(None, 5.0)
    assert bucket.wait_s(5.0) == 0.0


async def test_those_who_wait_take_turns() -> None:
    limit = SharedLimit(10e6, asyncio.get_running_loop().time)
    for _ in range(2):
        await limit.take(PIECE_MOST)  # the unused time before
    order: list[int] = []

    async def work(number: int) -> None:
        for _ in range(4):
            await limit.take(PIECE_MOST)
            order.append(number)

    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(work(number))
    assert order == list(range(6)) * 4


async def test_one_who_gives_up_takes_nothing_with_him() -> None:
    limit = SharedLimit(RATE_LEAST, asyncio.get_running_loop().time)
    await limit.take(PIECE_LEAST)
    waiting = [asyncio.create_task(limit.take(PIECE_LEAST)) for _ in range(50)]
    await asyncio.sleep(0)
    for task in waiting[:-1]:
        task.cancel()
    limit.set_rate(None)
    async with asyncio.timeout(BOUND_S):
        assert await waiting[-1] == PIECE_LEAST
    await asyncio.gather(*waiting, return_exceptions=True)


class Reader:
    """A download of which the bytes are counted."""

    def __init__(self, client: Client, size: int) -> None:
        self._client = client
        self._size = size
        self.got = 0

    async def run(self, file: str) -> None:
        await self._client.send(file, {"Authorization": f"Bearer {TOKEN}"})
        assert (await self._client.head()).status == 200
        while self.got < self._size:
            data = await self._client.reader.read(1 << 16)
            assert data
            self.got += len(data)


async def test_32_downloads_share_the_limit_evenly(tmp_path: Path) -> None:
    """When the first is done each other has at least two of six pieces; the limit is kept."""
    rate, size = 10_000_000.0, 1_200_000
    async with lab(tmp_path, rate_limit=rate) as mirror:
        for number in range(4):
            mirror.shelf.put(f"{number}.gguf", b"x" * size)
        readers = [Reader(await mirror.client(), size) for _ in range(32)]
        piece = mirror.server.limit._bucket.piece
        began = time.monotonic()
        running = [
            asyncio.create_task(reader.run(f"/v1/files/m/v1/{number % 4}.gguf"))
            for number, reader in enumerate(readers)
        ]
        async with asyncio.timeout(2 * BOUND_S):
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            behind = min(reader.got for reader in readers)
            await asyncio.gather(*running)
        took = time.monotonic() - began
        assert behind >= size / 3  # half on a quiet machine; readers, too, need their turn
        assert 32 * size <= rate * (took + BURST_S) + piece
        assert mirror.server.status().versions[0].bytes_sent == 32 * size


async def test_one_who_takes_nothing_leaves_his_share_to_the_others(tmp_path: Path) -> None:
    async with lab(tmp_path, rate_limit=50_000_000.0) as mirror:
        mirror.shelf.put("big.gguf", b"x" * 60_000_000)
        mirror.shelf.put("w.gguf", b"y" * 5_000_000)
        lazy = await mirror.client()
        await lazy.send("/v1/files/m/v1/big.gguf", {"Authorization": f"Bearer {TOKEN}"})
        lazy.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: mirror.active == 1)
        got = await mirror.ask("/v1/files/m/v1/w.gguf")
        assert got.body == b"y" * 5_000_000
        assert mirror.active == 1


async def test_a_limit_that_is_lifted_frees_running_downloads(tmp_path: Path) -> None:
    async with lab(tmp_path, rate_limit=float(RATE_LEAST)) as mirror:
        # at the first rate it would take an hour
        size = 60_000_000
        mirror.shelf.put("w.gguf", b"y" * size)
        reader = Reader(await mirror.client(), size)
        running = asyncio.create_task(reader.run("/v1/files/m/v1/w.gguf"))
        await until(lambda: reader.got > 0)
        mirror.server.limit.set_rate(None)
        async with asyncio.timeout(BOUND_S):
            await running
