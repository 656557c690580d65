"""What the mirror's keeper finds, wants and gives out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from llmgw_core.catalog.model import Model
from llmgw_core.config import Config, MirrorConfig
from llmgw_core.controller.keeper import Keeper
from llmgw_core.controller.mirror_keeper import MirrorKeeper
from llmgw_core.controller.pulls import PullRequest
from llmgw_core.controller.weights import WeightsKeeper
from llmgw_core.mirror.tokens import Verdict, judge
from tests.controller.worlds import CPU
from tests.mirror.origin import Origin, publish, serving

REPO = "org/smol-GGUF"
FILES = {"m-Q4_K_M.gguf": b"four" * 999, "m-Q8_0.gguf": b"eight" * 999}
SOURCES = [f"hf:{REPO}:{name}" for name in FILES]


@pytest.fixture
def served() -> Iterator[tuple[Origin, Origin]]:
    """A hub, and the server that it sends for weights to."""
    with serving() as origin, serving() as store:
        publish(origin, store, REPO, FILES)
        yield origin, store


@pytest.fixture
def hub(served: tuple[Origin, Origin]) -> Origin:
    return served[0]


@asynccontextmanager
async def keeping(folder: Path, endpoint: str = "") -> AsyncIterator[MirrorKeeper]:
    keeper = Keeper(folder, None, lambda: 0.0)
    keeper.config = replace(Config(), mirror=MirrorConfig(hub_endpoint=endpoint))
    mirror = MirrorKeeper(folder, keeper, clock=lambda: 0.0)
    try:
        yield mirror
    finally:
        await mirror.pulls.aclose()


async def pulled(mirror: MirrorKeeper, source: str) -> None:
    pull = mirror.pulls.begin(PullRequest(source))
    assert pull.task is not None
    await asyncio.gather(pull.task)
    assert pull.error is None
    await mirror.refresh()


async def test_two_files_of_one_state_of_a_repository_are_each_found_by_their_own_source(
    tmp_path: Path, hub: Origin
) -> None:
    async with keeping(tmp_path, hub.base) as mirror:
        for source in SOURCES:
            await pulled(mirror, source)
        (version,) = mirror.versions
        assert len(version.files) == 2
        for source, name in zip(SOURCES, FILES, strict=True):
            found = mirror.find(source)
            assert found is not None
            assert [file.file for file in found.files] == [name]
            assert found.complete
            model = Model("m", source, (CPU,))
            assert WeightsKeeper(mirror).look_at(model) == f"mirror:{version.name}/{name}"
        assert mirror.find(f"hf:{REPO}:m-Q2_K.gguf") is None


async def test_a_pull_that_was_of_no_use_is_not_begun_again_at_once(
    tmp_path: Path, hub: Origin
) -> None:
    async with keeping(tmp_path, hub.base) as mirror:
        mirror.want(SOURCES[0])
        (pull,) = mirror.pulls.all
        assert pull.task is not None
        await asyncio.gather(pull.task)
        mirror.want(SOURCES[0])  # what it brought was not seen yet
        assert mirror.pulls.all == (pull,)


async def test_a_new_secret_makes_new_tokens(tmp_path: Path) -> None:
    async with keeping(tmp_path) as mirror:
        mirror._secret = "old" * 20
        old = mirror.token("m", "v")
        assert mirror.token("m", "v") == old
        mirror._secret = "new" * 20
        new = mirror.token("m", "v")
        assert judge("new" * 20, new, version=("m", "v"), now=1.0) is Verdict.VERSION


async def test_pushes_come_from_where_the_mirror_is_now(tmp_path: Path) -> None:
    async with keeping(tmp_path) as mirror:
        weights = WeightsKeeper(mirror)
        first = weights._push()
        assert weights._push() is first
        keeper = mirror._keeper
        keeper.config = replace(keeper.config, mirror=MirrorConfig(path=str(tmp_path / "other")))
        assert weights._push().root == tmp_path / "other"


async def test_what_a_pull_left_is_known_before_the_store_is_looked_at(
    tmp_path: Path, hub: Origin
) -> None:
    async with keeping(tmp_path, hub.base) as mirror:
        pull = mirror.pulls.begin(PullRequest(SOURCES[0]))
        assert pull.task is not None
        await asyncio.gather(pull.task)
        assert [v.state for v in mirror.view().versions] == ["done"]
        await mirror.refresh()
        assert [v.state for v in mirror.view().versions] == ["done"]
        assert mirror.versions[0] is not pull.version


async def test_why_a_pull_ended_is_shown_with_its_version(
    tmp_path: Path, served: tuple[Origin, Origin]
) -> None:
    hub, store = served
    store.hold_at = 100
    async with keeping(tmp_path, hub.base) as mirror:
        pull = mirror.pulls.begin(PullRequest(SOURCES[0]))
        await asyncio.to_thread(store.holding.wait, 30)
        await mirror.pulls.known(pull)
        await mirror.pulls.cancel(pull)
        await mirror.refresh()
        (view,) = mirror.view().versions
        assert view.state == "incomplete"
        assert view.error == "it was cancelled; what has come is kept"
