"""The mirror in the console: pulling, resuming, verifying, removing and cleaning."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from llmgw_core.api.views import Command, CommandResult, EventView
from llmgw_core.errors import InvalidInput, Refused
from llmgw_tui.command_line import Typed, complete, parse, spell
from llmgw_tui.screens.card import CardScreen
from llmgw_tui.screens.clean import CleanDialog
from llmgw_tui.screens.confirm import ConfirmDialog, ResultsDialog
from llmgw_tui.screens.pull import PullDialog
from llmgw_tui.screens.serve import ServeDialog
from tests.tui.fake_client import FakeClient
from tests.tui.fleets import GIB, NOW, fetching, lab, mirror, snapshot
from tests.tui.screens import Console, client_of, console

WASTE = CommandResult(
    "2 things would go, 3.2 GB",
    {"dry_run": True, "bytes": 3_221_225_472, "waste": [
        {"path": "old/.halves/[x].part", "bytes": 1_073_741_824, "why": "no pull goes on with it"},
        {"path": "gone/v1", "bytes": 2_147_483_648, "why": "it holds no file"},
    ]},
)  # fmt: skip


async def commanded(c: Console, client: FakeClient, count: int = 1) -> list[tuple[str, dict]]:  # type: ignore[type-arg]
    """The commands that the engine got, once there are so many."""
    await c.until(lambda: len(client.commands) >= count)
    return [(command.name, command.args) for command in client.commands]


async def test_the_dialog_pulls_a_source_under_a_name() -> None:
    client = client_of(lab())
    client.answers["mirror.pull"] = CommandResult("gemma3/v2 is being pulled")
    async with console(client) as c:
        await c.press("7", "P", "enter")
        await c.shows("say what to pull")
        await c.press(*"hf", "colon", *"org/x", "tab", *"gemma3/", "enter")
        await c.shows("MODEL or MODEL/VERSION")
        await c.press(*"v2", "enter")
        assert await commanded(c, client) == [
            ("mirror.pull", {"source": "hf:org/x", "model": "gemma3", "version": "v2"})
        ]
        await c.shows("gemma3/v2 is being pulled")
        assert not isinstance(c.app.screen, PullDialog)


async def test_a_refused_pull_is_said_in_the_dialog() -> None:
    client = client_of(lab())
    client.answers["mirror.pull"] = Refused("org/x is gated", hint="set [hub] token_file")
    async with console(client) as c:
        await c.press("7", "P", *"hf", "colon", *"org/x", "enter")
        await c.shows("org/x is gated")
        assert isinstance(c.app.screen, PullDialog)


async def test_a_typed_pull_needs_no_dialog_and_paths_are_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    client = client_of(lab())
    async with console(client) as c:
        await c.press("colon")
        await c.type("mirror pull x.gguf mine/v1")
        assert await commanded(c, client) == [
            ("mirror.pull", {"source": f"{tmp_path}/x.gguf", "model": "mine", "version": "v1"})
        ]


async def test_a_pull_that_ended_early_goes_on() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("7", "r")
        await c.shows("no pull of it ended early")
        await c.press("j", "j", "j", "r")
        assert await commanded(c, client) == [
            ("mirror.pull", {"source": "hf:org/mistral-gguf:*q4_k_m.gguf", "model": "mistral",
                             "version": "7b-v0.3"})
        ]  # fmt: skip


async def test_a_pull_is_cancelled_by_name() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("7", "j", "X")
        assert await commanded(c, client) == [
            ("mirror.cancel", {"model": "qwen3-30b-a3b", "version": "2026-11-30"})
        ]


async def test_what_verification_finds_is_an_error() -> None:
    client = client_of(lab())
    client.answers["mirror.verify"] = CommandResult(
        "1 versions were read; gemma3/9e1c2f3a4b5d/a.gguf: piece 3 differs",
        {"ok": False, "findings": [{}]},
    )
    async with console(client) as c:
        await c.press("7", "v")
        assert await commanded(c, client) == [
            ("mirror.verify", {"model": "gemma3", "version": "9e1c2f3a4b5d"})
        ]
        await c.shows("differs")
        assert [done.ok for done in c.app.orders.done] == [True]
        assert {n.severity for n in c.app._notifications} == {"information", "error"}


async def test_removing_asks_with_sizes_and_users_and_shows_the_refusal() -> None:
    client = client_of(lab())
    client.answers["mirror.rm"] = Refused("gemma3/9e1c2f3a4b5d is used by gemma3")
    async with console(client) as c:
        await c.press("7", "ctrl+d")
        assert isinstance(c.app.screen, ConfirmDialog)
        await c.shows("Remove gemma3/9e1c2f3a4b5d?")
        assert "4.6 GiB, used by gemma3" in c.screen
        await c.press("enter")  # on Cancel
        assert client.commands == []
        await c.press("ctrl+d", "right", "enter")
        assert await commanded(c, client) == [
            ("mirror.rm", {"model": "gemma3", "version": "9e1c2f3a4b5d"})
        ]
        await c.shows("is used by gemma3")


async def test_several_are_removed_with_a_result_each() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("7", "space", "space", "ctrl+d", "right", "enter")
        await c.until(lambda: isinstance(c.app.screen, ResultsDialog))
        assert "gemma3/9e1c2f3a4b5d" in c.screen
        assert "qwen3-30b-a3b/2026-11-30" in c.screen


async def test_a_version_is_served_by_its_key() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("7", "s")
        name, args = (await commanded(c, client))[0]
        assert name == "serve.plan"
        assert args["source"] == "gemma3/9e1c2f3a4b5d"
        assert isinstance(c.app.screen, ServeDialog)


async def test_cleaning_shows_what_would_go_before_it_goes() -> None:
    client = client_of(lab())

    async def answer(command: Command) -> CommandResult:
        return WASTE if command.args["dry_run"] else CommandResult("2 things went, 3.2 GB")

    client.answers["mirror.clean"] = answer
    async with console(client) as c:
        await c.press("7", "C")
        await c.until(lambda: isinstance(c.app.screen, CleanDialog))
        await c.shows("Delete 2 things, 3.0 GiB?")
        lines = c.screen.splitlines()
        first = next(i for i, text in enumerate(lines) if "gone/v1" in text)
        assert "2.0 GiB" in lines[first]
        assert "it holds no file" in lines[first + 1]
        assert "old/.halves/[x].part" in lines[first + 2]  # the largest first
        await c.press("escape", "C")
        await c.until(lambda: isinstance(c.app.screen, CleanDialog))
        assert [x.args for x in client.commands] == [{"dry_run": True}] * 2
        await c.press("right", "enter")
        assert (await commanded(c, client, 3))[2] == ("mirror.clean", {"dry_run": False})
        await c.shows("2 things went, 3.2 GB")


async def test_where_nothing_can_be_cleaned_nothing_is_asked() -> None:
    client = client_of(lab())
    client.answers["mirror.clean"] = CommandResult(
        "there is nothing to clean", {"dry_run": True, "bytes": 0, "waste": []}
    )
    async with console(client) as c:
        await c.press("7", "C")
        await c.shows("there is nothing to clean")
        assert c.app.screen is c.app.main


async def test_the_card_follows_a_pull_and_shows_its_events() -> None:
    client = client_of(lab())
    client.emit(EventView(9, NOW, "mirror.pulling", "you has qwen3-30b-a3b/2026-11-30 pulled"))
    async with console(client) as c:
        await c.press("7", "j", "enter")
        assert isinstance(c.app.screen, CardScreen)
        await c.shows("1.6 of 4.6 GiB, 110 MB/s, about 29 s left")
        await c.shows("you has qwen3-30b-a3b/2026-11-30 pulled")
        versions = tuple(
            replace(v, state="done", bytes_done=int(4.6 * GIB)) for v in lab().mirror.versions
        )
        client.publish(replace(lab(), version=2, mirror=mirror(versions=versions)))
        await c.shows("● done")
        client.publish(snapshot(3))
        await c.shows("gone; this is what was known last")


async def test_a_mirror_that_is_down_says_why_and_old_data_looks_old() -> None:
    down = mirror(state="down", address=None, reason="port 8081 is taken", versions=())
    async with console(client_of(snapshot(mirror=down)), size=(80, 24)) as c:
        await c.press("7")
        await c.shows("down")
        assert "port 8081 is taken" in c.screen
        assert "The mirror holds no weights yet." in c.screen


async def test_only_versions_in_trouble() -> None:
    async with console(client_of(lab())) as c:
        await c.press("7", "z")
        await c.shows("3 of 6")
        assert "gemma3/" not in c.screen


async def test_verbs_without_a_version_say_so() -> None:
    client = client_of(snapshot())
    async with console(client) as c:
        await c.press("7", "v")
        await c.shows("select a version first")
        assert client.commands == []


async def test_a_fetch_is_seen_from_the_replica_and_from_the_model() -> None:
    async with console(client_of(fetching()), size=(80, 24)) as c:
        await c.press("3")
        await c.shows("◔ fetching 34 %  1.6 of 4.6 GiB, 110 MB/s, 29 s")
        await c.press("4")
        await c.shows("◌ pending     the mirror pulls hf:org/qwen3")


@pytest.mark.parametrize(
    ("line", "command", "args"),
    [
        ("mirror pull hf:org/x", "mirror.pull", {"source": "hf:org/x"}),
        ("mirror pull hf:org/x --as a/v1", "mirror.pull",
         {"source": "hf:org/x", "model": "a", "version": "v1"}),
        ("pull hf:org/x a", "mirror.pull", {"source": "hf:org/x", "model": "a"}),
        ("mirror rm phi4/main", "mirror.rm", {"model": "phi4", "version": "main"}),
        ("mirror cancel phi4/main", "mirror.cancel", {"model": "phi4", "version": "main"}),
        ("mirror verify phi4/main", "mirror.verify", {"model": "phi4", "version": "main"}),
    ],
)  # fmt: skip
def test_lines_become_commands_and_back(line: str, command: str, args: dict[str, object]) -> None:
    for text in (line, spell(Command(command, args))):
        typed = parse(text, lab())
        assert isinstance(typed, Typed)
        assert typed.action.command == command
        target = typed.targets[0] if typed.targets else ""
        assert typed.action.arguments(target, typed.given) == args


def test_lines_that_cannot_be_read() -> None:
    with pytest.raises(InvalidInput, match="MODEL or MODEL/VERSION"):
        parse("mirror pull hf:org/x a/b/c", lab())
    with pytest.raises(InvalidInput, match='There is no version "nosuch"; :mirror lists them'):
        parse("mirror rm nosuch", lab())


def test_versions_complete() -> None:
    assert "mirror rm phi4/main" in complete("mirror rm ph", lab())
    assert "version phi4/main" in complete("version ph", lab())


def test_what_opens_an_address_is_not_spelled() -> None:
    secret = Command("mirror.pull", {"source": "https://me:pw@host/x.gguf?sig=abc"})
    assert "pw" not in spell(secret)
    assert "abc" not in spell(secret)
