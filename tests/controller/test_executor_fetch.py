"""Fetches that replicas wait for: given up, shared, and cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from llmgw_core.catalog.model import Catalog, Model
from llmgw_core.controller.executor import Executor, Means
from llmgw_core.controller.planner import Action, Kind
from llmgw_core.controller.replica import Phase
from llmgw_core.controller.roster import Roster
from llmgw_core.controller.weights_handle import Fetched
from llmgw_core.engines.registry import ENGINES
from llmgw_core.errors import NodeLost
from llmgw_core.ledger.events import EventLog
from llmgw_core.nodes.api import FleetHandle, NodeHandle
from llmgw_core.nodes.instance import InstanceState, InstanceStatus, StopResult
from llmgw_core.placement.rooms import Weights
from tests.controller.worlds import model


class Node:
    """A node on which nothing runs."""

    def __init__(self) -> None:
        self.config = SimpleNamespace(name="a")

    async def stop_instance(self, name: str, *, grace_s: float) -> StopResult:
        return StopResult(InstanceStatus(name, InstanceState.NONE), killed=False)

    async def forget_instance(self, name: str) -> None:
        pass


class Fetches:
    """Fetches of ``MODEL/v1`` that never end by themselves."""

    def __init__(self) -> None:
        self.waiting = 0
        self.abandoned: list[str] = []
        self.cut = asyncio.Event()

    def need(self, model: Model) -> Weights:
        return Weights(model.source.removeprefix("mirror:").strip("/"))

    def content(self, model: Model) -> str:
        return ""

    async def locate(
        self, node: NodeHandle, model: Model, progress: Callable[[Fetched], None]
    ) -> str:
        self.waiting += 1
        progress(Fetched(1, 10))
        await self.cut.wait()
        raise NodeLost("the link is gone")

    async def abandon(self, node: NodeHandle, key: str) -> None:
        self.abandoned.append(key)


@asynccontextmanager
async def executing() -> AsyncIterator[tuple[Executor, Fetches]]:
    fetches = Fetches()
    fleet = cast(FleetHandle, SimpleNamespace(nodes={"a": Node()}))
    means = Means(fleet, ENGINES, None, fetches, "c", 1.0, lambda: None)  # type: ignore[arg-type]
    executor = Executor(Roster(EventLog(None, lambda: 0.0)), means)
    try:
        yield executor, fetches
    finally:
        await executor.aclose()


def source_of(name: str) -> str:
    return f"mirror:{name}/v1/"


def of(name: str, source: str = "q") -> Model:
    return replace(model(name), source=source_of(source))


async def begin(executor: Executor, fetches: Fetches, *models: Model) -> None:
    actions = tuple(
        Action(Kind.START, f"{m.name}.1", m.name, m.profiles[0].name, ("a",), "") for m in models
    )
    executor.dispatch(actions, Catalog(models))
    while fetches.waiting < len(models):
        await asyncio.sleep(0)


async def ended(executor: Executor) -> None:
    while not executor.idle:
        await asyncio.sleep(0)


def stop(name: str) -> Action:
    return Action(Kind.STOP, f"{name}.1", name, "cpu", ("a",), "gone", False)


@pytest.mark.parametrize("now", [Catalog(()), Catalog((of("m", "other"),))])
async def test_the_fetch_of_a_model_that_was_removed_or_changed_ends(now: Catalog) -> None:
    async with executing() as (executor, fetches):
        await begin(executor, fetches, of("m"))
        executor.dispatch((stop("m"),), now)
        await ended(executor)
        assert fetches.abandoned == ["q/v1"]
        assert list(executor.roster) == []


async def test_a_fetch_that_another_model_waits_for_too_goes_on_until_it_does_not() -> None:
    async with executing() as (executor, fetches):
        await begin(executor, fetches, of("m"), of("n"))
        executor.dispatch((stop("m"),), Catalog((of("m"), of("n"))))
        while executor.roster.get("m.1") is not None:
            await asyncio.sleep(0)
        assert fetches.abandoned == []
        executor.dispatch((stop("n"),), Catalog(()))
        await ended(executor)
        assert fetches.abandoned == ["q/v1"]


async def test_a_person_or_a_shutdown_can_stop_what_is_fetching() -> None:
    async with executing() as (executor, fetches):
        await begin(executor, fetches, of("m"))
        assert executor.can_stop("m.1")
        executor.stop("m.1", "asked for")
        await ended(executor)
        assert fetches.abandoned == ["q/v1"]
        assert not executor.can_stop("m.1")


async def test_a_fetch_that_was_cut_off_and_is_not_wanted_any_more_ends_once_the_node_is_back() -> (
    None
):
    async with executing() as (executor, fetches):
        await begin(executor, fetches, of("m"))
        fetches.cut.set()
        await ended(executor)
        lost = executor.roster.get("m.1")
        assert lost is not None
        assert (lost.phase, lost.phase_before) == (Phase.UNKNOWN, Phase.FETCHING)
        executor.roster.put(replace(lost, phase=Phase.PENDING))
        executor.dispatch((stop("m"),), Catalog(()))
        await ended(executor)
        assert fetches.abandoned == ["q/v1"]
