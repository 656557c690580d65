"""A console whose own engine was ended by somebody else has nothing left to show."""

from __future__ import annotations

from llmgw_tui.app import ConsoleApp, _leave_with_engine
from llmgw_tui.launch import LaunchOptions
from tests.tui.fake_client import connecting_to
from tests.tui.fleets import lab
from tests.tui.screens import client_of


async def test_it_closes_and_says_why() -> None:
    async def ended() -> str:
        return "the controller of this console was ended"

    client = client_of(lab())
    app = ConsoleApp(LaunchOptions(connect=connecting_to(client), cluster="lab-4", ended=ended))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        await _leave_with_engine(app)
    assert app.return_code == 0
    assert app.farewell == "the controller of this console was ended"
    await app.end()
