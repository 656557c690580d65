"""Changing models that were added: the entry as a form and back, and the small dialogs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmgw_core.api.views import SloView
from llmgw_core.catalog.changes import parse_one
from llmgw_core.errors import Refused
from llmgw_tui.editing import edited, edited_toml, form_of, hidden_in, model_of
from llmgw_tui.screens.confirm import ConfirmDialog
from llmgw_tui.screens.edit import EditDialog
from llmgw_tui.screens.model_fields import ResourcesDialog, WordDialog
from tests.tui.fake_client import FakeClient
from tests.tui.fleets import model, profile, snapshot
from tests.tui.plans import answering
from tests.tui.screens import check_snapshot, client_of, console

ARGS = ("--ctx-size", "16384", "--flash-attn", "on", "-np", "4", "--metrics")
RICH = model(
    "smollm2",
    profiles=(
        profile(args=ARGS, env={"OMP_NUM_THREADS": "4"}, weight=2.0, startup_timeout_s=600.0,
                node_selector={"disk": "nvme", "rack": "a"}),
        profile("big", args=("--ctx-size", "65536"), env={}),
    ),
    slo=SloView(ttft_p99_s=0.5), fallbacks=("qwen3",), routing_profile="latency",
)  # fmt: skip


def editing() -> FakeClient:
    """An engine with the rich model and a declared one."""
    client = client_of(snapshot(models=(RICH, model("gemma3", declared=True), model("qwen3"))))
    client.answers["serve.plan"] = answering()  # type: ignore[assignment]
    return client


def test_what_is_not_changed_stays() -> None:
    old = model_of(RICH)
    form = form_of(old)
    assert parse_one(edited_toml(old, form, form)) == old
    new = edited(old, form, form.with_fields({"ctx_pool": "8192", "kv_type": "q8_0"}))
    assert new.profiles[0].args == (
        "--ctx-size", "8192", "--flash-attn", "on", "-np", "4", "--metrics",
        "--cache-type-k", "q8_0", "--cache-type-v", "q8_0",
    )  # fmt: skip
    assert (new.profiles[1], new.slo, new.fallbacks) == (old.profiles[1], old.slo, old.fallbacks)
    assert new.profiles[0].node_selector == {"disk": "nvme", "rack": "a"}
    assert new.profiles[0].weight == 2.0


@given(
    st.fixed_dictionaries({}, optional={
        "parallel": st.integers(1, 64).map(str) | st.just(""),
        "ctx_pool": st.integers(1, 10**6).map(str) | st.just(""),
        "memory": st.integers(1, 900).map(str) | st.just(""),
        "description": st.text("abc [/]", max_size=9),
        "mode": st.sampled_from(["always", "ondemand", "stopped"]),
    })
)  # fmt: skip
def test_an_edited_entry_shows_the_form_it_was_made_of(changes: dict[str, str]) -> None:
    old = model_of(RICH)
    before = form_of(old)
    after = before.with_fields(changes)
    again = form_of(parse_one(edited_toml(old, before, after)))
    for name in changes:
        if name != "description":
            assert getattr(again, name) == getattr(after, name)
    assert again.aliases == before.aliases


def test_what_is_hidden_is_found() -> None:
    secret = profile(env={"HF_TOKEN": "•••"}, args=("--api-key", "•••"))
    assert hidden_in(RICH) == []
    assert hidden_in(replace(RICH, profiles=(secret,))) == ["HF_TOKEN", "an argument of cpu"]


@pytest.mark.parametrize("size", [(80, 24), (160, 48)], ids=["80x24", "160x48"])
async def test_the_edit_dialog_is_filled_from_the_entry(size: tuple[int, int]) -> None:
    client = editing()
    async with console(client, size=size) as c:
        await c.press("4", "e")
        dialog = c.app.screen
        assert isinstance(dialog, EditDialog)
        await c.until(lambda: dialog.known)
        check_snapshot(f"edit-{size[0]}x{size[1]}", await c.still())


async def test_an_edit_is_saved_with_all_that_the_form_does_not_have() -> None:
    client = editing()
    async with console(client) as c:
        await c.press("4", "d", "e")  # from its card
        dialog = c.app.screen
        assert isinstance(dialog, EditDialog)
        await c.until(lambda: dialog.known)
        assert "Nothing is changed yet." in c.screen
        dialog.box("ctx_pool").query_one("Input").focus()
        await c.press("ctrl+u", *"8192")
        await c.shows("Its 2 replicas are replaced")
        await c.press("ctrl+s")
        await c.until(lambda: any(x.name == "edit" for x in client.commands))
        args = next(x for x in client.commands if x.name == "edit").args
        assert args["name"] == "smollm2"
        new, old = parse_one(args["toml"]), model_of(RICH)
        assert new.profiles[0].args[:2] == ("--ctx-size", "8192")
        assert new.profiles[0].env == {"OMP_NUM_THREADS": "4"}
        assert (new.scaling, new.slo, new.aliases) == (old.scaling, old.slo, old.aliases)


async def test_a_hidden_value_is_not_overwritten() -> None:
    client = client_of(snapshot(models=(model("smollm2", profiles=(
        profile(env={"HF_TOKEN": "•••"}),)),)))  # fmt: skip
    async with console(client) as c:
        await c.press("4", "e")
        await c.shows("hides HF_TOKEN")
        assert not isinstance(c.app.screen, EditDialog)


@pytest.mark.parametrize("key", ["e", "a", "o", "R", "ctrl+k"])
async def test_a_declared_model_is_changed_in_the_configuration(key: str) -> None:
    client = client_of(snapshot(models=(model("gemma3", declared=True),)))
    async with console(client) as c:
        await c.press("4", key)
        await c.shows("declared in the configuration: change it there")
        assert len(c.app.screen_stack) == 1
        assert client.commands == []


async def test_class_and_owner_say_what_changes_and_show_a_refusal_in_place() -> None:
    client = editing()
    client.answers["class"] = Refused("class 'gold' is unknown")
    async with console(client) as c:
        await c.press("4", "a")
        assert isinstance(c.app.screen, WordDialog)
        await c.press("ctrl+u", *"gold")
        await c.shows("Class standard → gold")
        await c.press("enter")
        await c.shows("class 'gold' is unknown")
        await c.press("escape", "o", "ctrl+u")
        await c.shows("Owner team-a → nobody")
        await c.press("enter")
        await c.until(lambda: client.commands[-1].name == "owner")
        assert client.commands[-1].args == {"name": "smollm2", "owner": None}


async def test_resources_of_a_profile() -> None:
    client = editing()
    async with console(client) as c:
        await c.press("4", "R")
        assert isinstance(c.app.screen, ResourcesDialog)
        await c.press("ctrl+u", "x")
        await c.shows("Memory: a number, not 'x'")
        await c.press("ctrl+u", *"2.5", "enter")
        await c.until(lambda: bool(client.commands))
        assert client.commands[0].args == {
            "name": "smollm2", "profile": "cpu", "min_memory_gb": 2.5, "cpu_cores": 4.0,
        }  # fmt: skip


async def test_removing_says_what_ends_with_it() -> None:
    client = editing()
    async with console(client, size=(80, 24)) as c:
        await c.press("4", "ctrl+k")
        assert isinstance(c.app.screen, ConfirmDialog)
        await c.shows("2 replicas end")
        await c.press("right", "enter")
        await c.until(lambda: bool(client.commands))
        assert (client.commands[0].name, client.commands[0].args) == ("remove", {"name": "smollm2"})
