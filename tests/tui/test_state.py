"""The link to the engine, and commands on their way to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from llmgw_core.api.views import Command, CommandResult
from llmgw_core.errors import NoController, NodeLost, Refused
from llmgw_tui.orders import Orders, Outcome
from llmgw_tui.state import EngineLink, Phase
from tests.tui.fake_client import FakeClient, connecting_to
from tests.tui.fleets import lab, lab_events, snapshot


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, bounded."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


@asynccontextmanager
async def running(link: EngineLink) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(link.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Sleeps:
    """Remembers waits and does not wait."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        await asyncio.sleep(0)


async def test_it_reads_snapshots_and_events_of_the_engine() -> None:
    client = FakeClient(lab())
    client.emit(*lab_events())
    link = EngineLink(connecting_to(client, says=("probing nodes",)))
    async with running(link):
        await until(lambda: link.snapshot is not None and len(link.events) == 4)
        assert link.phase is Phase.LIVE
        assert link.where == "here"
        assert list(link.sentences) == ["probing nodes"]
        client.publish(snapshot(2))
        await until(lambda: link.snapshot is not None and link.snapshot.version == 2)


async def test_a_slow_screen_skips_versions() -> None:
    client = FakeClient(snapshot(1))
    link = EngineLink(connecting_to(client))
    async with running(link):
        await until(lambda: link.snapshot is not None)
        for version in range(2, 50):
            client.publish(snapshot(version))
        await until(lambda: link.snapshot is not None and link.snapshot.version == 49)


async def test_a_lost_engine_is_reached_again_with_growing_waits() -> None:
    first, second = FakeClient(lab()), FakeClient(snapshot(9), where="attached to daemon pid 7")
    first.emit(*lab_events())
    attempts: Iterator[FakeClient | NoController] = iter(
        [first, NoController("no"), NoController("no"), NoController("no"), second]
    )

    async def connect(progress: Callable[[str], None]) -> FakeClient:
        outcome = next(attempts)
        if isinstance(outcome, NoController):
            raise outcome
        return outcome

    sleeps = Sleeps()
    link = EngineLink(connect, sleep=sleeps)
    async with running(link):
        await until(lambda: link.snapshot is not None)
        first.lose(NodeLost("The daemon went away"))
        await until(lambda: link.phase is Phase.LOST)
        assert link.snapshot is not None  # old data stays to look at
        await until(lambda: link.phase is Phase.LIVE)
        await until(lambda: link.snapshot is not None and link.snapshot.version == 9)
        assert first.closed
        assert link.where == "attached to daemon pid 7"
        assert not link.events  # those of the first engine do not mix with the second's
        assert sleeps.asked == [0.5, 1.0, 2.0, 5.0]


async def test_an_engine_that_cannot_be_reached_at_first_is_an_error() -> None:
    async def connect(progress: Callable[[str], None]) -> FakeClient:
        raise Refused("Another controller holds this state directory")

    with pytest.raises(Refused):
        await EngineLink(connect).run()


async def test_an_engine_that_ends_because_it_was_asked_to_is_not_reached_again() -> None:
    client = FakeClient(lab())
    link = EngineLink(connecting_to(client))
    async with running(link) as task:
        await until(lambda: link.snapshot is not None)
        link.closing = True
        client.lose(NodeLost("gone"))
        await until(task.done)
        assert link.client is None


def orders_for(client: FakeClient | None, *, read_only: bool = False) -> Orders:
    return Orders(lambda: client, lambda: 0.0, read_only=read_only)


async def outcomes_of(orders: Orders, *commands: Command) -> list[Outcome]:
    got: list[list[Outcome]] = []
    orders.give(commands, got.append)
    await until(lambda: bool(got))
    return got[0]


async def test_outcomes_come_in_the_order_of_the_commands() -> None:
    client = FakeClient(lab())
    client.answers["stop"] = Refused("smollm2.1 is not yours")
    orders = orders_for(client)
    outcomes = await outcomes_of(
        orders, Command("stop", {"replica": "smollm2.1"}), Command("restart", {"replica": "a.1"})
    )
    assert [(o.ok, o.target, o.text) for o in outcomes] == [
        (False, "smollm2.1", "smollm2.1 is not yours"), (True, "a.1", "restart: done"),
    ]  # fmt: skip
    assert [o.spelled for o in orders.done] == ["stop smollm2.1", "restart a.1"]


async def test_commands_for_one_target_wait_for_each_other() -> None:
    client = FakeClient(lab())
    release = asyncio.Event()

    async def slow(command: Command) -> CommandResult:
        await release.wait()
        return CommandResult("ok")

    client.answers["scale"] = slow
    orders = orders_for(client)
    got: list[list[Outcome]] = []
    for _ in range(3):
        orders.give([Command("scale", {"name": "m", "delta": 1})], got.append)
    orders.give([Command("restart", {"replica": "other.1"})], got.append)
    await until(lambda: len(got) == 1)
    assert [c.name for c in client.commands] == ["scale", "restart"]
    release.set()
    await until(lambda: len(got) == 4)
    assert len(client.commands) == 4


async def test_without_an_engine_and_in_read_only_mode_nothing_is_sent() -> None:
    outcome = (await outcomes_of(orders_for(None), Command("reload")))[0]
    assert not outcome.ok
    assert "no connection" in outcome.text
    client = FakeClient(lab())
    outcome = (await outcomes_of(orders_for(client, read_only=True), Command("reload")))[0]
    assert not outcome.ok
    assert "read-only" in outcome.text
    assert client.commands == []


async def test_the_number_of_commands_under_way_is_bounded() -> None:
    client = FakeClient(lab())

    async def never(command: Command) -> CommandResult:
        await asyncio.Event().wait()
        raise AssertionError

    client.answers["scale"] = never
    orders = orders_for(client)
    got: list[list[Outcome]] = []
    for i in range(70):
        orders.give([Command("scale", {"name": str(i)})], got.append)
    assert len(got) == 6
    assert "Too many" in got[0][0].text
    await orders.close()
    assert orders.under_way == 0
