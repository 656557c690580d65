"""What a dialog says that its command would do."""

from llmgw_core.api.views import CommandResult
from llmgw_tui.rows.preview import LINES_MOST, preview
from tests.tui.fleets import lab
from tests.tui.screens import client_of, console

START = {"step": 1, "kind": "start", "replica": "smollm2.4", "nodes": ["n2"], "load_time_s": 3.2}
STOP = {"step": 2, "kind": "stop", "replica": "smollm2.1", "nodes": ["n1"], "in_flight": None}
PENDING = {"model": "smollm2", "profile": "cpu", "node": "n3", "reason": "node is draining"}


def test_unknown_is_a_dash_and_many_are_few_lines() -> None:
    assert preview("1 replica would start", {"plan": {"actions": [START, STOP]}}) == [
        "1 replica would start.",
        "1. start smollm2.4 on n2, loads in 3 s",
        "2. stop smollm2.1 on n1, – in flight",
    ]
    many = preview("x", {"plan": {"actions": [STOP] * 40, "pending": [PENDING] * 40}})
    assert len(many) == 1 + 2 * (LINES_MOST + 1)
    assert many[-1] == "and 34 more"
    assert preview("x", None) == []


async def test_the_dialog_of_a_drain_says_what_goes_where() -> None:
    client = client_of(lab())
    data = {"plan": {"actions": [START, STOP], "pending": [PENDING], "headroom": {}}}
    client.answers["preview"] = CommandResult("1 replica would start, 1 would stop", data)
    async with console(client, size=(80, 24)) as c:
        await c.press("2", "U")
        await c.until(lambda: "smollm2.4" in c.screen)
        for words in ("1 would stop.", "1. start smollm2.4 on n2", "– in flight", "Cancel"):
            assert words in c.screen
        assert client.commands[0].args == {
            "commands": [{"name": "node.drain", "args": {"name": "n1"}}]
        }
