"""What each screen looks like, that none breaks at any size, and that outside text stays text."""

from __future__ import annotations

import pytest

from llmgw_core.api.views import GatewayView, Snapshot
from llmgw_core.errors import NodeLost
from llmgw_tui.action_table import VIEWS
from llmgw_tui.actions import Kind
from llmgw_tui.screens.card import CardScreen
from tests.tui.fleets import (
    HOSTILE,
    NOW,
    crowd,
    fetching,
    hostile,
    hostile_events,
    lab,
    node,
    snapshot,
)
from tests.tui.screens import Console, check_snapshot, client_of, console

SIZES = [(80, 24), (160, 48)]
ODD_SIZES = [(40, 12), (100, 30), (200, 60), (20, 5)]

SCREENS: dict[str, tuple[str, ...]] = {
    "overview": (),
    "nodes": ("2",),
    "nodes-wide": ("2", "w"),
    "replicas": ("3",),
    "replicas-marked": ("3", "space", "space"),
    "models": ("4",),
    "events": ("5",),
    "mirror": ("7",),
    "mirror-wide": ("7", "w"),
    "logs": ("3", "l"),
    "node-card": ("2", "d"),
    "replica-card": ("3", "d"),
    "model-card": ("4", "d"),
    "version-card": ("7", "d"),
    "version-card-pulling": ("7", "j", "d"),
    "pull": ("7", "P"),
    "mirror-remove": ("7", "space", "space", "ctrl+d"),
    "help": ("3", "question_mark"),
    "prompt": ("colon", "s", "c", "a", "l", "e", "space"),
    "filter": ("2", "slash", "n", "3"),
    "scale": ("4", "s"),
    "scale-declared": ("4", "j", "s", "down"),
    "stop": ("3", "space", "space", "ctrl+d"),
    "drain": ("2", "U"),
    "quit": ("ctrl+q",),
    "paused": ("p",),
    "faults": ("2", "z"),
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", SCREENS)
async def test_screens_look_as_recorded(name: str, size: tuple[int, int]) -> None:
    client = client_of(lab())
    client.write_log("smollm2.1", "llama_model_loader: loaded", "srv  listening on [::1]:18080")
    async with console(client, size=size) as c:
        await c.press(*SCREENS[name])
        await quiet(c, client_lines=name == "logs")
        check_snapshot(f"{name}-{size[0]}x{size[1]}", await c.still())


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize(
    ("name", "keys"),
    [("replicas", ("3",)), ("replica-card", ("3", "d")), ("models", ("4",)),
     ("model-card", ("4", "j", "d"))],
)  # fmt: skip
async def test_weights_on_their_way_look_as_recorded(
    name: str, keys: tuple[str, ...], size: tuple[int, int]
) -> None:
    async with console(client_of(fetching()), size=size) as c:
        await c.press(*keys)
        await quiet(c, client_lines=False)
        check_snapshot(f"fetching-{name}-{size[0]}x{size[1]}", await c.still())


async def quiet(c: Console, *, client_lines: bool) -> None:
    """Until what comes by itself has come."""
    await c.until(lambda: len(c.app.link.events) > 0)
    if client_lines:
        await c.shows("listening on")
    await c.settle()


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_screen_before_the_engine_answers(size: tuple[int, int]) -> None:
    async with console(None, size=size) as c:
        await c.shows("lab-4")
        check_snapshot(f"starting-{size[0]}x{size[1]}", await c.still())


@pytest.mark.parametrize("view", list(VIEWS))
async def test_an_empty_cluster_says_what_to_do(view: str) -> None:
    client = client_of(snapshot())
    client.events_so_far.clear()
    async with console(client, size=(80, 24)) as c:
        await c.app.main.show_view(view)
        await c.settle()
        check_snapshot(f"empty-{view}-80x24", await c.still())


async def test_in_ascii_there_is_nothing_but_ascii() -> None:
    async with console(client_of(lab()), size=(120, 42), ascii=True) as c:
        for view in VIEWS:
            await c.app.main.show_view(view)
            await c.settle()
            strange = {char for char in c.screen if ord(char) > 127} - set("–…")
            assert not strange, (view, strange)


async def test_old_data_is_shown_as_old() -> None:
    client = client_of(lab())
    async with console(client, size=(80, 24)) as c:
        client.lose(NodeLost("gone"))
        await c.shows("engine lost")
        assert c.app.main.query("ListPane.-stale")
        check_snapshot("lost-80x24", await c.still())


@pytest.mark.parametrize("size", [*ODD_SIZES, *SIZES], ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("fleet", [lab, hostile, snapshot], ids=["lab", "hostile", "empty"])
async def test_no_screen_breaks_at_any_size(fleet: object, size: tuple[int, int]) -> None:
    shown = fleet()  # type: ignore[operator]
    assert isinstance(shown, Snapshot)
    client = client_of(shown)
    async with console(client, size=size) as c:
        for keys in SCREENS.values():
            await c.press(*keys)
            assert c.app._exception is None
            while len(c.app.screen_stack) > 1:
                await c.app.pop_screen()
            await c.press("escape", "escape", "1")
            c.app.going_on.set()
        await c.pilot.resize_terminal(81, 25)
        await c.settle()


@pytest.mark.parametrize("size", [(100, 30), (200, 60)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_hostile_text_is_shown_as_it_is_on_every_screen(size: tuple[int, int]) -> None:
    client = client_of(hostile())
    client.events_so_far[:] = hostile_events()
    client.write_log(f"{HOSTILE[0]}.1", *HOSTILE)
    seen = ""
    async with console(client, size=size) as c:
        for view in VIEWS:
            await c.app.main.show_view(view)
            await c.settle()
            seen += c.screen
        for kind in Kind:
            for name in HOSTILE:
                ids = {Kind.REPLICA: f"{name}.1", Kind.VERSION: f"{name}/{name}"}
                id_ = ids.get(kind, name)
                await c.app.push_screen(CardScreen(kind, id_))
                await c.settle()
                seen += c.screen
                await c.app.pop_screen()
        for keys in (
            ("4", "s"),
            ("3", "ctrl+d"),
            ("2", "U"),
            ("3", "plus"),
            ("7", "ctrl+d"),
            ("ctrl+p",),
        ):
            await c.press(*keys)
            seen += c.screen
            while len(c.app.screen_stack) > 1:
                await c.app.pop_screen()
        c.app.say("\n".join(HOSTILE), severity="error")
        await c.shows("bad [/x] y")
        seen += c.screen
    assert "[red]x[/red]" in seen
    assert "bad [/x] y" in seen
    assert "[@click=app.quit]go[/]" in seen
    for control in "\x1b\x07\t\u202e\u200b":
        assert control not in seen


async def test_a_refused_host_key_at_80_columns() -> None:
    refused = node("edge-7", state="refused", reason="host key unknown", cpu=None,
                   fingerprint="SHA256:" + "x" * 43)  # fmt: skip
    async with console(client_of(snapshot(nodes=(refused,))), size=(80, 24)) as c:
        await c.press("2", "t")
        check_snapshot("trust-80x24", await c.still())


async def test_a_gateway_that_is_down_is_in_the_header() -> None:
    down = snapshot(gateway=GatewayView("down", reason="port 8080 is taken"))
    async with console(client_of(down), size=(120, 30)) as c:
        await c.shows("down port 8080 is taken")


async def test_an_idle_console_paints_nothing() -> None:
    async with console(client_of(lab())) as c:
        await c.press("3")
        await c.still()  # what the key asked for is painted a moment after it was handled
        tables = [pane.table for pane in c.app.main.query("ListPane").results()]  # type: ignore[attr-defined]
        before = [table.renders for table in tables]
        for _ in range(5):
            c.app.apply()
            await c.settle()
        assert [table.renders for table in tables] == before


async def test_a_crowd_of_replicas_is_shown() -> None:
    async with console(client_of(crowd(100, 1000)), size=(160, 48)) as c:
        await c.press("3")
        await c.shows("Replicas  1000")
        await c.press("G")
        selection = c.app.selection()
        assert selection is not None
        assert selection.cursor == "m5.999"
        assert NOW
