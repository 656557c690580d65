"""Run the console over a fleet that moves, to look at it: ``python -m tests.tui.play``."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from llmgw_core.api.views import Snapshot
from llmgw_tui.launch import LaunchOptions, launch
from tests.tui.fake_client import FakeClient
from tests.tui.fleets import Moving, crowd, hostile, hostile_events, lab_events, snapshot

LOG = (
    "load_tensors: offloaded 0/31 layers", "slot launch_slot_: id 0 | task 12 | processing",
    "prompt eval time = 84.2 ms / 96 tokens", "srv  update_slots: all slots are idle",
)  # fmt: skip


class Player:
    """Feeds a client with moments."""

    def __init__(self, fleet: str) -> None:
        self._fleet = fleet
        self._task: asyncio.Task[None] | None = None

    async def connect(self, progress: Callable[[str], None]) -> FakeClient:
        """A client over the fleet, after a wait as the engine needs one."""
        progress("reading the configuration")
        await asyncio.sleep(0.4)
        progress("taking the state directory")
        await asyncio.sleep(0.4)
        moving = Moving()
        client = FakeClient(self._first(moving))
        events = hostile_events() if self._fleet == "hostile" else lab_events()
        client.emit(*(() if self._fleet == "empty" else events))
        if self._fleet == "lab":
            self._task = asyncio.create_task(self._play(client, moving))
        return client

    def _first(self, moving: Moving) -> Snapshot:
        match self._fleet:
            case "hostile":
                return hostile()
            case "empty":
                return snapshot(time=time.time())
            case "crowd":
                return crowd(100, 1000)
        return moving.next(time.time())

    async def _play(self, client: FakeClient, moving: Moving) -> None:
        with suppress(asyncio.CancelledError):
            seq = 100
            while True:
                await asyncio.sleep(1)
                now = time.time()
                client.publish(moving.next(now))
                seq += 1
                client.write_log("smollm2.1", f"{now:.3f} {LOG[seq % len(LOG)]}")
                if event := moving.event(seq, now):
                    client.emit(event)


def main() -> int:
    """Play until the console is left."""
    parser = argparse.ArgumentParser()
    parser.add_argument("fleet", nargs="?", default="lab",
                        choices=["lab", "empty", "hostile", "crowd"])  # fmt: skip
    parser.add_argument("--theme")
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--ascii", action="store_true")
    given = parser.parse_args()
    return launch(LaunchOptions(
        connect=Player(given.fleet).connect, cluster="lab-4", theme=given.theme,
        read_only=given.read_only, ascii=given.ascii,
    ))  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
