"""Running the console in a test, and reading what stands on its screen."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from llmgw_core.api.views import Snapshot
from llmgw_tui.launch import LaunchOptions, prepare_environment
from tests.tui.fake_client import FakeClient, connecting_to
from tests.tui.fleets import NOW, lab_events

os.environ["TZ"] = "UTC"  # clocks on the screen are local
time.tzset()
prepare_environment(
    LaunchOptions(connect=connecting_to(), cluster="lab-4", fps=60), os.environ
)  # before anything imports Textual

from textual import events  # noqa: E402
from textual.keys import _character_to_key  # noqa: E402
from textual.pilot import Pilot  # noqa: E402

from llmgw_tui.app import ConsoleApp  # noqa: E402

SNAPSHOTS = Path(__file__).parent / "snapshots"
WAIT_S = 20.0
ROUNDS = 3
STILL = 6
CHARACTERS = {
    "space": " ", "plus": "+", "minus": "-", "colon": ":", "slash": "/", "question_mark": "?",
    "equals_sign": "=", "full_stop": ".", "exclamation_mark": "!", "underscore": "_",
}  # fmt: skip


def client_of(snapshot: Snapshot, *, where: str = "here") -> FakeClient:
    """A client that shows a snapshot and the lab's events."""
    client = FakeClient(snapshot, where=where)
    client.emit(*lab_events())
    return client


class Console:
    """A running console, as a person meets it."""

    def __init__(self, app: ConsoleApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        """Press keys, each after the one before it has had its effect."""
        for key in keys:
            await self.tap(key)
        await self.settle()

    async def tap(self, key: str) -> None:
        """Press one key, as a terminal reports it, and let it be handled."""
        name = _character_to_key(key) if len(key) == 1 and not key.isalnum() else key
        event = events.Key(name, CHARACTERS.get(name, name if len(name) == 1 else None))
        event.set_sender(self.app)
        driver = self.app._driver
        assert driver is not None
        driver.send_message(event)
        await self.handled()

    async def handled(self) -> None:
        """Until every widget has gone through its messages, and those that came of them.

        Textual's own pilot also waits until the process is idle, a fifth of a second a key.
        """
        for _ in range(ROUNDS):
            await self._gone_through()
        async with asyncio.timeout(WAIT_S):
            while self.app.is_running and not self.app.keys_typed.idle:
                await asyncio.sleep(0)
                await self._gone_through()

    async def _gone_through(self) -> None:
        """One round; widgets of an application that ends meanwhile answer no more."""
        try:
            async with asyncio.timeout(WAIT_S / 4):
                await self.pilot._wait_for_screen()
        except TimeoutError:
            if self.app.is_running and self.app.return_value is None:
                raise

    async def settle(self) -> None:
        """Show the engine's newest, and let everything be painted."""
        await self.handled()
        if not self.app.is_running:
            return
        if self.app.link.dirty and not self.app.paused:
            self.app.link.dirty = False
            self.app.apply()
        await self.handled()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to become true, bounded."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                await asyncio.sleep(0.01)
                await self.settle()

    async def still(self) -> str:
        """The screen once it has stopped changing, bounded."""
        async with asyncio.timeout(WAIT_S):
            same, before = 0, ""
            while same < STILL:
                await asyncio.sleep(0.03)
                await self.settle()
                now = self.screen
                same, before = (same + 1 if now == before else 0), now
        return before

    async def type(self, text: str) -> None:
        """Type a line, and enter."""
        for char in text:
            await self.tap(char)
        await self.press("enter")

    async def shows(self, text: str) -> None:
        """Wait until a text stands on the screen."""
        await self.until(lambda: text in self.screen)

    @property
    def screen(self) -> str:
        """The screen as plain lines."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


@asynccontextmanager
async def console(
    client: FakeClient | None = None,
    *,
    size: tuple[int, int] = (120, 36),
    options: LaunchOptions | None = None,
    **changes: object,
) -> AsyncIterator[Console]:
    """A console over a client; without one the engine never answers."""
    clients = [] if client is None else [client]
    base = options or LaunchOptions(connect=connecting_to(*clients), cluster="lab-4")
    app = ConsoleApp(replace(base, **changes), clock=lambda: NOW)  # type: ignore[arg-type]
    try:
        async with app.run_test(size=size, notifications=True) as pilot:
            app.animation_level = "none"  # a scroll that glides is a picture that never stands
            running = Console(app, pilot)
            if client is not None:
                await running.until(lambda: app.link.snapshot is not None)
            await running.settle()
            yield running
    finally:
        await app.end()


def check_snapshot(name: str, screen: str) -> None:
    """Compare with what was recorded; ``LLMGW_RECORD=1`` records it anew."""
    path = SNAPSHOTS / f"{name}.txt"
    text = "\n".join(line.rstrip() for line in screen.splitlines()) + "\n"
    if os.environ.get("LLMGW_RECORD") == "1":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"no snapshot {path.name}: record it with LLMGW_RECORD=1"
    assert path.read_text() == text
