"""Keys that come faster than the screen follows: typed ahead, pasted, over a slow link."""

from __future__ import annotations

import pytest
from textual import events
from textual.widgets import Input

from tests.tui.fake_client import FakeClient
from tests.tui.fleets import lab
from tests.tui.screens import Console, client_of, console

NAMES = {":": "colon", "/": "slash", " ": "space", "+": "plus", "-": "minus"}


def burst(c: Console, text: str, *after: str) -> None:
    """All keys at once, as a terminal hands over what lay in its buffer."""
    for char in text:
        c.app.post_message(events.Key(NAMES.get(char, char), char))
    for key in after:
        c.app.post_message(events.Key(key, None))


@pytest.mark.parametrize("text", [":model smollm2", "/ready"])
async def test_what_is_typed_after_the_sign_goes_into_the_line(text: str) -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("3")
        burst(c, text)
        await c.until(lambda: c.app.screen.query_one("#prompt", Input).value == text[1:])
        assert client.commands == []


async def test_a_command_and_enter_at_once_are_carried_out() -> None:
    client: FakeClient = client_of(lab())
    async with console(client) as c:
        burst(c, ":scale smollm2 --replicas 3", "enter")
        await c.until(lambda: len(client.commands) == 1)
        assert client.commands[0].name == "scale"


async def test_a_key_after_one_that_opens_a_dialog_is_the_dialogs() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("4")
        burst(c, "s", "escape")
        await c.until(lambda: c.app.keys_typed.idle)
        assert len(c.app.screen_stack) == 1
        assert client.commands == []


async def test_many_keys_keep_their_order() -> None:
    async with console(client_of(lab())) as c:
        await c.press("3")
        burst(c, ":" + "abcdefgh" * 6)
        line = c.app.screen.query_one("#prompt", Input)
        await c.until(lambda: line.value == "abcdefgh" * 6)
