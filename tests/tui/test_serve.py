"""The serve dialog as a person meets it: filled, estimated anew, refused, and served."""

from __future__ import annotations

import asyncio
import tomllib

import pytest
from msgspec.structs import replace

from llmgw_core.api.serve_views import ServePlanView, WhereView
from llmgw_core.api.views import Command, CommandResult
from llmgw_core.errors import NodeLost, NotFound, Refused
from llmgw_core.serve.form import ServeForm, problems, toml
from llmgw_tui.screens.plan_dialog import PlanDialog
from llmgw_tui.screens.serve import ServeDialog, SourceDialog
from tests.tui.fake_client import FakeClient
from tests.tui.fleets import HOSTILE, lab
from tests.tui.plans import SOURCE, answering, gemma, result
from tests.tui.screens import Console, check_snapshot, client_of, console

SIZES = [(80, 24), (160, 48)]
WARNING = "the largest node has 64 GiB where 70 are needed"
REFUSAL = "llama.cpp cannot load it: unknown model architecture 'gemma9' (asked of n1, n2 and n3)"
LONG = "a-model-with-a-name-that-goes-on-and-on-" * 4 + "end"


def serving(**changes: object) -> FakeClient:
    """An engine that plans as in the sketch, but for what is given."""
    client = client_of(lab())
    client.answers["serve.plan"] = answering(**changes)  # type: ignore[assignment]
    return client


async def open_dialog(c: Console, source: str = SOURCE) -> ServeDialog:
    """Open it by the ``:`` line, and wait until it is filled."""
    await c.press("4", "colon")
    await c.type(f"serve {source}")
    dialog = c.app.screen
    assert isinstance(dialog, ServeDialog)
    return dialog


async def filled(c: Console) -> ServeDialog:
    """The dialog once the engine has answered."""
    dialog = await open_dialog(c)
    await c.until(lambda: dialog.known)
    return dialog


def asked(client: FakeClient) -> list[dict[str, str]]:
    """The fields of all questions."""
    return [x.args["fields"] for x in client.commands if x.name == "serve.plan"]


def added(client: FakeClient) -> list[Command]:
    """What was served."""
    return [x for x in client.commands if x.name == "add"]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_filled_dialog(size: tuple[int, int]) -> None:
    async with console(serving(), size=size) as c:
        await filled(c)
        check_snapshot(f"serve-{size[0]}x{size[1]}", await c.still())


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_a_refusal_stands_in_place_and_nothing_can_be_served(size: tuple[int, int]) -> None:
    client = serving(refusal=REFUSAL, warning=WARNING)
    async with console(client, size=size) as c:
        dialog = await filled(c)
        assert dialog.query_one("#go").disabled
        await c.press("ctrl+s")
        assert added(client) == []
        check_snapshot(f"serve-refused-{size[0]}x{size[1]}", await c.still())


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_problems_stand_beside_their_field(size: tuple[int, int]) -> None:
    client = serving(warning=WARNING)
    async with console(client, size=size) as c:
        dialog = await filled(c)
        await c.press("tab", "tab", "end", "x", "tab", "end", "x")
        await c.press("tab", "tab", "tab", "tab", "end", "x")
        assert dialog.query_one("#go").disabled
        await c.until(lambda: dialog.known)
        check_snapshot(f"serve-problems-{size[0]}x{size[1]}", await c.still())
        await c.press("ctrl+s")  # goes to the first of them
        assert c.app.focused is dialog.box("replicas").query_one("Input")
        assert added(client) == []


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_long_names_are_cut_and_nothing_scrolls_sideways(size: tuple[int, int]) -> None:
    where = WhereView(node=None, obstacles=tuple((f"{LONG}{i}", "is cordoned") for i in range(5)))
    form = ServeForm(name=LONG, source=f"mirror:{LONG}/v1/", aliases=LONG, description=LONG)
    shown = {name: str(getattr(form, name)) for name in gemma().form}
    client = client_of(lab())
    client.answers["serve.plan"] = result(
        replace(gemma(), model=LONG, form=shown, filled=shown, where=where, warning=WARNING,
                engine_nodes=(LONG,), version=LONG)
    )  # fmt: skip
    async with console(client, size=size) as c:
        dialog = await filled(c)
        check_snapshot(f"serve-long-{size[0]}x{size[1]}", await c.still())
        assert dialog.query_one("#fields").max_scroll_x == 0


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_without_a_source_it_is_asked_for(size: tuple[int, int]) -> None:
    client = serving()
    async with console(client, size=size) as c:
        await c.press("4", "n")
        assert isinstance(c.app.screen, SourceDialog)
        check_snapshot(f"serve-source-{size[0]}x{size[1]}", await c.still())
        await c.press("enter")  # nothing stands there yet
        assert isinstance(c.app.screen, SourceDialog)
        await c.type(SOURCE)
        assert isinstance(c.app.screen, ServeDialog)
        await c.until(lambda: bool(client.commands))
        assert client.commands[0].args == {"source": SOURCE, "fields": {}}


async def test_it_opens_before_the_engine_answers_and_esc_works() -> None:
    client = client_of(lab())
    gate = asyncio.Event()

    async def slow(command: Command) -> CommandResult:
        await gate.wait()
        return result(gemma())

    client.answers["serve.plan"] = slow
    async with console(client, size=(80, 24)) as c:
        dialog = await open_dialog(c)
        await c.shows(f"looking at {SOURCE}…")
        await c.press("t", "e", "s", "t")
        assert dialog.box("name").value == "test"
        await c.press("ctrl+s")  # what nobody has seen is not served
        gate.set()
        await c.until(lambda: dialog.known)
        assert dialog.box("name").value == "test"  # what was typed is not replaced
        assert added(client) == []
        await c.press("escape")
        assert not isinstance(c.app.screen, PlanDialog)


async def test_escape_while_the_engine_is_still_looking() -> None:
    client = client_of(lab())

    async def never(command: Command) -> CommandResult:
        await asyncio.Event().wait()
        raise AssertionError

    client.answers["serve.plan"] = never
    async with console(client, size=(80, 24)) as c:
        await open_dialog(c)
        await c.press("escape")
        assert not isinstance(c.app.screen, PlanDialog)


async def test_what_is_served_is_what_the_form_shows() -> None:
    client = serving()
    client.answers["add"] = CommandResult("added [gemma] /x]")
    async with console(client) as c:
        dialog = await filled(c)
        await c.press("end", "backspace", "tab", "g", "e", "m", "m", "a")
        await c.press("tab", "right", "tab", "end", "2")  # on demand, at most 12
        shown = dialog.form()
        await c.press("ctrl+s")  # without waiting for the estimate
        await c.until(lambda: bool(added(client)))
        text = added(client)[0].args["toml"]
        assert text == toml(shown)
        (table,) = tomllib.loads(text)["models"]
        assert (table["name"], table["aliases"]) == ("gemma-3-27b-i", ["gemma"])
        assert table["scaling"] == {"min": 0, "max": 12, "idle_timeout": 900.0}
        await c.shows("added [gemma] /x]")
        assert not isinstance(c.app.screen, PlanDialog)


async def test_the_estimate_follows_and_what_was_typed_stays() -> None:
    client = serving()
    async with console(client) as c:
        dialog = await filled(c)
        await c.press("tab", "tab", "tab", "tab", *["backspace"] * 5, *"65536")
        await c.until(lambda: dialog.box("memory").value == "30")
        assert dialog.box("name").value == "gemma-3-27b-it"
        assert dialog.box("ctx_pool").value == "65536"
        assert asked(client)[-1] == {"ctx_pool": "65536"}
        dialog.box("memory").query_one("Input").focus()
        await c.press(*["backspace"] * 2, "4", "0")
        dialog.box("ctx_pool").query_one("Input").focus()
        await c.press(*["backspace"] * 5, *"16384")
        await c.until(lambda: dialog.known)
        assert dialog.box("memory").value == "40"
        assert "the plan says 20" in c.screen


async def test_the_latest_answer_wins_however_late_the_others_come() -> None:
    client = client_of(lab())
    gates: list[asyncio.Event] = []

    async def gated(command: Command) -> CommandResult:
        fields = dict(command.args["fields"])
        gates.append(asyncio.Event())
        await gates[-1].wait()
        return result(gemma(fields))

    client.answers["serve.plan"] = gated
    async with console(client) as c:
        dialog = await open_dialog(c)
        await c.until(lambda: len(gates) == 1)
        dialog.box("ctx_pool").query_one("Input").focus()
        await c.press(*"65536")
        gates[0].set()  # the answer to what stood there before
        await c.until(lambda: len(gates) == 2)
        assert dialog.box("ctx_pool").value == "65536"
        assert not dialog.known
        assert "estimating…" in c.screen
        await c.press("ctrl+s")
        assert added(client) == []  # not before it is known
        gates[1].set()
        await c.until(lambda: bool(added(client)))
        assert "--ctx-size" in added(client)[0].args["toml"]
        assert "min_memory_gb = 30" in added(client)[0].args["toml"]
        assert len(gates) == 2  # letters typed quickly were one question


async def test_an_edit_after_serve_was_pressed_takes_it_back() -> None:
    client = client_of(lab())
    gates: list[asyncio.Event] = []

    async def gated(command: Command) -> CommandResult:
        gates.append(asyncio.Event())
        if len(gates) > 1:
            await gates[-1].wait()
        return result(gemma(command.args["fields"]))

    client.answers["serve.plan"] = gated
    async with console(client) as c:
        dialog = await filled(c)
        await c.press("x", "ctrl+s")
        await c.until(lambda: len(gates) == 2)
        await c.press("y")
        gates[1].set()
        await c.until(lambda: len(gates) == 3)
        gates[2].set()
        await c.until(lambda: dialog.known)
        assert added(client) == []


async def test_the_engines_refusal_to_add_keeps_the_dialog_open() -> None:
    client = serving()
    client.answers["add"] = Refused("team-a's quota is 4 replicas")
    async with console(client) as c:
        dialog = await filled(c)
        await c.press("ctrl+s")
        await c.shows("team-a's quota is 4 replicas")
        assert c.app.screen is dialog
        assert not dialog.query_one("#go").disabled


async def test_a_dead_controller_is_one_sentence_and_no_key_waits() -> None:
    client = serving()
    async with console(client, size=(80, 24)) as c:
        dialog = await filled(c)
        client.lose(NodeLost("The engine does not answer", hint="is the daemon running?"))
        await c.press("end", "2")
        await c.until(lambda: dialog._error != "")
        assert dialog.box("name").value == "gemma-3-27b-it2"
        await c.until(lambda: c.screen.count("✖") == 1)
        assert str(dialog.query_one("#refusal").render()).count("engine") == 1
        await c.press("escape")
        assert not isinstance(c.app.screen, PlanDialog)


async def test_a_source_that_is_not_there_says_so_and_another_can_be_typed() -> None:
    client = client_of(lab())

    async def only_gemma(command: Command) -> CommandResult:
        if command.args["source"] != SOURCE:
            raise NotFound("the mirror has no model 'nosuch'", hint="pull it first")
        return result(gemma(command.args["fields"]))

    client.answers["serve.plan"] = only_gemma
    async with console(client, size=(80, 24)) as c:
        dialog = await open_dialog(c, "mirror:nosuch/v1")
        await c.shows("the mirror has no model 'nosuch'; pull it first")
        assert dialog.query_one("#go").disabled
        field = dialog.box("source").query_one("Input")
        field.focus()
        await c.press("ctrl+u", *SOURCE)
        assert len(client.commands) == 1  # letters are no sources
        await c.press("enter")
        await c.until(lambda: dialog.known)
        assert dialog.box("name").value == "gemma-3-27b-it"
        assert "no model" not in c.screen


async def test_a_name_that_is_taken_is_said_beside_it() -> None:
    client = serving()
    async with console(client) as c:
        dialog = await filled(c)
        await c.press("ctrl+u", *"gemma3")
        assert "gemma3 is declared in the configuration" in dialog.wrong()["name"]
        await c.shows("choose another name")
        assert dialog.query_one("#go").disabled
        await c.press("ctrl+u", *"qwen3-latest")
        assert "an alias of qwen3" in dialog.wrong()["name"]


async def test_the_entry_can_be_read_before_it_is_served() -> None:
    client = serving()
    async with console(client) as c:
        dialog = await filled(c)
        await c.press("ctrl+t")
        await c.shows("[[models.profiles]]")
        assert 'source = "mirror:gemma-3-27b-it/v2/"' in c.screen
        await c.press("escape")
        assert c.app.screen is dialog


async def test_edits_survive_a_resize() -> None:
    client = serving()
    async with console(client, size=(160, 48)) as c:
        dialog = await filled(c)
        await c.press("end", "x", "tab", "y")
        await c.pilot.resize_terminal(80, 24)
        await c.settle()
        assert dialog.box("name").value == "gemma-3-27b-itx"
        assert dialog.box("aliases").value == "y"
        assert "[gemma-3-27b-itx" in c.screen
        assert dialog.has_class("-narrow")


async def test_every_field_explains_itself() -> None:
    async with console(serving(), size=(80, 24)) as c:
        dialog = await filled(c)
        seen = set()
        for _ in range(22):
            box = c.app.focused.parent.parent  # type: ignore[union-attr]
            line = str(dialog.query_one("#help-line").render())
            assert line == box.field.help  # type: ignore[union-attr]
            assert c.app.focused.region.y < 22  # type: ignore[union-attr]
            seen.add(line)
            await c.press("down")
        assert len(seen) == 22


async def test_the_mouse_picks_and_serves() -> None:
    client = serving()
    async with console(client, size=(160, 48)) as c:
        dialog = await filled(c)
        pick = dialog.box("mode").query_one("Pick")
        await c.pilot.click(pick, offset=(36, 0))
        assert dialog.box("mode").value == "stopped"
        await c.until(lambda: dialog.known)
        await c.pilot.click("#go")
        await c.until(lambda: bool(added(client)))
        assert "max = 0" in added(client)[0].args["toml"]


async def test_read_only_refuses_with_the_usual_sentence() -> None:
    client = serving()
    async with console(client, read_only=True) as c:
        await c.press("4", "n")
        assert not isinstance(c.app.screen, SourceDialog)
        await c.press("colon")
        await c.type(f"serve {SOURCE}")
        await c.shows("This console is read-only")
        assert client.commands == []


@pytest.mark.parametrize("name", HOSTILE)
async def test_text_from_outside_is_only_text(name: str) -> None:
    shown = {**gemma().form, "name": name, "description": name, "profile": name}
    view = replace(
        gemma(), model=name, version=name, architecture=name, file_type=name, warning=name,
        cores_basis=name, engine_nodes=(name,), form=shown, filled=shown, owners=(name,),
        where=WhereView(node=name, why=name, evicts=(name,)),
    )  # fmt: skip
    client = client_of(lab())

    async def answer(command: Command) -> CommandResult:
        form = ServeForm(**{**shown, **command.args["fields"]})
        now: ServePlanView = replace(view, form={**shown, **command.args["fields"]})
        return result(replace(now, toml="" if problems(form) else toml(form)))

    client.answers["serve.plan"] = answer
    async with console(client, size=(80, 24)) as c:
        dialog = await filled(c)
        assert "\x1b" not in c.screen
        await c.press("ctrl+t", "escape")
        name_shown = dialog.box("name").value.strip()
        await c.press("ctrl+s")
        await c.until(lambda: bool(added(client)))
        for command in added(client):
            (table,) = tomllib.loads(command.args["toml"])["models"]
            assert table["name"] == name_shown
        assert c.app._exception is None
