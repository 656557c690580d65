"""The console as a person meets it: first paint, keys, commands, quitting, a lost engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from llmgw_core.api.commands import DANGEROUS
from llmgw_core.api.views import Command, CommandResult, ScalingView
from llmgw_core.errors import NoController, NodeLost, Refused
from llmgw_tui.action_table import ACTIONS, VIEWS
from llmgw_tui.actions import Action, Kind
from llmgw_tui.launch import LaunchOptions
from llmgw_tui.moves import LOG_ACTIONS, Moves
from llmgw_tui.rows.empty import NO_MATCH
from llmgw_tui.screens.card import CardScreen
from llmgw_tui.screens.confirm import ConfirmDialog, ResultsDialog
from llmgw_tui.screens.quit import QuitDialog
from llmgw_tui.screens.scale import ScaleDialog
from llmgw_tui.screens.trust import TrustDialog
from llmgw_tui.state import Phase
from tests.tui.fake_client import FakeClient, connecting_to
from tests.tui.fleets import NOW, lab, model, node, replica, snapshot
from tests.tui.screens import Console, client_of, console


async def test_the_first_paint_does_not_wait_for_the_engine() -> None:
    async with console(None) as c:
        await c.shows("lab-4")
        assert "starting the engine…" in c.screen
        assert c.app.link.phase is Phase.STARTING
        await c.press("3", "2", "question_mark", "escape", "1")  # keys work meanwhile


async def test_a_timer_that_comes_while_the_console_ends_draws_nothing() -> None:
    async with console(client_of(lab())) as c:
        await c.press("3")
    c.app.apply()  # the widgets have gone; this raised, and its traceback went to the terminal
    c.app._tick()
    c.app.link.phase = Phase.LOST
    c.app._tick()


async def test_what_the_engine_says_while_starting_is_shown() -> None:
    options = LaunchOptions(connect=connecting_to(says=("probing 4 nodes",)), cluster="lab-4")
    async with console(None, options=options) as c:
        await c.shows("probing 4 nodes")


async def test_an_engine_that_refuses_is_shown_and_gives_the_exit_code() -> None:
    async def connect(progress: object) -> FakeClient:
        raise Refused("Another controller runs this cluster", hint="it is pid 7 on desk")

    async with console(None, options=LaunchOptions(connect=connect, cluster="x")) as c:
        await c.shows("it is pid 7 on desk")
        await c.press("enter")
        assert c.app.return_value == 4


async def test_plus_and_minus_scale_the_model_of_the_selected_replica() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("3", "plus")
        await c.until(lambda: len(client.commands) == 1)
        await c.press("minus")
        await c.until(lambda: len(client.commands) == 2)
        assert [(x.name, x.args) for x in client.commands] == [
            ("scale", {"name": "smollm2", "delta": 1}), ("scale", {"name": "smollm2", "delta": -1}),
        ]  # fmt: skip


async def test_the_engines_sentence_comes_as_a_toast_without_markup() -> None:
    client = client_of(lab())
    client.answers["scale"] = CommandResult("smollm2 runs [always] 3 [/x]")
    async with console(client) as c:
        await c.press("4", "plus")
        await c.shows("smollm2 runs [always] 3 [/x]")


async def test_a_refusal_comes_as_a_toast() -> None:
    client = client_of(lab())
    client.answers["scale"] = Refused("gemma3 is declared", hint="change it in config.toml")
    async with console(client) as c:
        await c.press("4", "plus")
        await c.shows("gemma3 is declared")


async def test_the_scale_dialog_asks_for_mode_count_and_idle_time() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("4", "s")
        dialog = c.app.screen
        assert isinstance(dialog, ScaleDialog)
        assert dialog.model.name == "smollm2"
        await c.press("down")
        await c.shows("on demand max 2")
        await c.press("tab", "end", "backspace", "3", "tab", "end", *["backspace"] * 3)
        await c.press("3", "0", "m", "enter")
        await c.until(lambda: bool(client.commands))
        assert client.commands[0].args == {
            "name": "smollm2", "mode": "ondemand", "replicas": 3, "idle_s": 1800.0,
        }  # fmt: skip
        await c.until(lambda: not isinstance(c.app.screen, ScaleDialog))


async def test_the_scale_dialog_stays_open_with_the_engines_refusal() -> None:
    client = client_of(lab())
    client.answers["scale"] = Refused("team-a's quota is 4 replicas")
    async with console(client) as c:
        await c.press("4", "s", "enter")
        await c.shows("team-a's quota is 4 replicas")
        assert isinstance(c.app.screen, ScaleDialog)
        await c.press("escape")
        assert not isinstance(c.app.screen, ScaleDialog)


async def test_the_scale_dialog_says_where_a_declared_model_is_changed() -> None:
    async with console(client_of(snapshot(models=(model("gemma3", declared=True),)))) as c:
        await c.press("4", "s")
        await c.shows("declared in the configuration")


async def test_the_scale_dialog_refuses_what_is_no_number() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("4", "s", "tab", "end", "backspace", "0", "enter")
        await c.shows("a whole number from 1 on")
        assert client.commands == []


async def test_stopping_asks_and_cancel_has_the_focus() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("3", "ctrl+d")
        assert isinstance(c.app.screen, ConfirmDialog)
        await c.press("enter")  # on Cancel
        assert not isinstance(c.app.screen, ConfirmDialog)
        assert client.commands == []
        await c.press("ctrl+d", "right", "enter")
        await c.until(lambda: bool(client.commands))
        assert client.commands[0].args == {"replica": "smollm2.1"}


async def test_a_dialogs_targets_are_frozen_and_what_has_gone_is_said() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("3", "space", "space", "r")
        dialog = c.app.screen
        assert isinstance(dialog, ConfirmDialog)
        frozen = dialog.targets
        assert len(frozen) == 2
        left = tuple(r for r in lab().replicas if r.id != frozen[0])
        client.publish(replace(lab(), version=2, replicas=tuple(reversed(left))))
        await c.until(lambda: c.app.link.snapshot is not None and c.app.link.snapshot.version == 2)
        await c.press("right", "enter")
        await c.until(lambda: isinstance(c.app.screen, ResultsDialog))
        assert [x.args for x in client.commands] == [{"replica": frozen[1]}]
        assert "gone since" in c.screen


async def test_bulk_acts_give_a_list_of_results() -> None:
    client = client_of(lab())

    async def answer(command: Command) -> CommandResult:
        if command.args["name"] == "n2":
            raise Refused("n2 holds the only replica of [gemma3]")
        return CommandResult(f"{command.args['name']} is cordoned")

    client.answers["node.cordon"] = answer
    async with console(client) as c:
        await c.press("2", "space", "space", "C")
        await c.until(lambda: isinstance(c.app.screen, ResultsDialog))
        await c.shows("1 of 2 done")
        assert "n1 is cordoned" in c.screen
        assert "n2 holds the only replica of [gemma3]" in c.screen


async def test_many_targets_need_a_typed_word() -> None:
    fleet = snapshot(nodes=(node("n1"),), models=(model("m"),),
                     replicas=tuple(replica(f"m.{i}", "m", "n1") for i in range(8)))  # fmt: skip
    client = client_of(fleet)
    async with console(client) as c:
        await c.press("3", *["space"] * 7, "ctrl+d")
        await c.shows('type "stop"')
        await c.press("tab", *"sto", "enter")  # tab goes to the field, enter does nothing yet
        assert client.commands == []
        assert isinstance(c.app.screen, ConfirmDialog)
        await c.press("p", "enter", "enter")
        await c.until(lambda: len(client.commands) == 7)


async def test_cordon_takes_a_cordoned_node_back() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("2", "C")
        await c.until(lambda: len(client.commands) == 1)
        await c.press("j", "j", "C")  # n3 is draining
        await c.until(lambda: len(client.commands) == 2)
        assert [(x.name, x.args["name"]) for x in client.commands] == [
            ("node.cordon", "n1"), ("node.uncordon", "n3"),
        ]  # fmt: skip


async def test_trust_shows_both_fingerprints_and_accepts_the_one_shown() -> None:
    refused = node("n9", state="refused", reason="host key changed", fingerprint="SHA256:new",
                   old_fingerprint="SHA256:old")  # fmt: skip
    client = client_of(snapshot(nodes=(refused,)))
    async with console(client) as c:
        await c.press("2", "t")
        assert isinstance(c.app.screen, TrustDialog)
        assert "SHA256:new" in c.screen
        assert "SHA256:old" in c.screen
        client.publish(snapshot(2, nodes=(replace(refused, fingerprint="SHA256:evil"),)))
        await c.settle()
        await c.press("right", "enter")
        await c.until(lambda: bool(client.commands))
        assert client.commands[0] == Command(
            "node.trust", {"name": "n9", "fingerprint": "SHA256:new"}
        )


async def test_a_takeover_asks_first_and_names_who_leads_the_node() -> None:
    led = node("n9", state="refused", reason="n9 is led by another controller",
               holder="ada on desk (cluster west, pid 11)")  # fmt: skip
    client = client_of(snapshot(nodes=(led,)))
    async with console(client) as c:
        await c.press("2", "T")
        await c.shows("led by ada on desk (cluster west, pid 11)")
        assert client.commands == []
        await c.press("right", "enter")
        await c.until(lambda: bool(client.commands))
        assert client.commands[0] == Command("node.takeover", {"name": "n9"})


async def test_trust_of_a_node_that_is_not_refused_says_so() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("2", "t")
        await c.shows("no host key waits")
        assert client.commands == []


async def test_the_command_line_runs_what_llmgw_run_would() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("colon")
        await c.type("scale qwen3 --mode always --replicas 2")
        await c.until(lambda: bool(client.commands))
        assert client.commands[0].args == {"name": "qwen3", "mode": "always", "replicas": 2}
        await c.press("colon")
        await c.type("frobnicate")
        await c.shows('There is no command "frobnicate"')
        await c.press("colon")
        await c.type("models")
        await c.until(lambda: c.app.main.view_name == "models")
        await c.press("colon")
        await c.type("node n2")
        await c.until(lambda: isinstance(c.app.screen, CardScreen))
        assert c.app.screen.object_id == "n2"  # type: ignore[attr-defined]


async def test_tab_completes_a_command() -> None:
    async with console(client_of(lab())) as c:
        await c.press("colon", *"cor", "tab")
        assert ":cordon" in c.screen
        await c.press("n", "1", "escape", "3")  # esc leaves the line, keys are keys again
        assert c.app.main.view_name == "replicas"


async def test_explain_is_shown_to_be_read() -> None:
    client = client_of(lab())
    client.answers["explain"] = CommandResult("smollm2", {
        "actions": [], "headroom": {},
        "pending": [{"model": "smollm2", "profile": "cpu", "node": "n2", "reason": "no [memory]"}],
    })  # fmt: skip
    async with console(client) as c:
        await c.press("4", "x")
        await c.shows("n2: no [memory]")


async def test_the_filter_narrows_the_list_and_esc_clears_it() -> None:
    async with console(client_of(lab())) as c:
        await c.press("2", "slash", *"n3")
        await c.until(lambda: "n1" not in c.screen.replace("/n1", ""))
        await c.press("enter")
        assert "n3" in c.screen
        await c.press("escape")
        await c.shows("n1")


async def test_ctrl_d_in_the_filter_edits_and_does_not_stop_a_replica() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("3", "slash", "s", "ctrl+d", "ctrl+k", "r")
        assert not isinstance(c.app.screen, ConfirmDialog)
        assert client.commands == []


async def test_the_count_follows_the_filter_without_waiting_for_the_engine() -> None:
    async with console(client_of(lab())) as c:
        await c.press("2")
        assert "Nodes  4" in c.screen
        c.app.main.filter_by("nothing-like-it")
        await c.handled()
        assert "Nodes  0 of 4  /nothing-like-it" in c.screen
        await c.shows(NO_MATCH)  # laid out a moment later
        await c.press("escape")
        assert "Nodes  4 " in c.screen


async def test_hidden_marks_are_counted_and_not_acted_on() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("3", "space", "space", "space")
        await c.shows("Replicas  4  3 marked")
        c.app.main.filter_by("node:n1")
        await c.shows("2 of 4  /node:n1  3 marked, 2 hidden")
        await c.press("ctrl+d")
        dialog = c.app.screen
        assert isinstance(dialog, ConfirmDialog)
        assert dialog.targets == ("smollm2.1",)


async def test_faults_only() -> None:
    async with console(client_of(lab())) as c:
        await c.press("2", "z")
        await c.until(lambda: "n4" in c.screen and "n1 " not in c.screen)
        await c.press("z")
        await c.shows("n1 ")


async def test_the_selection_is_an_object_whatever_the_order() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("3", "j", "j")
        before = c.app.selection()
        assert before is not None
        client.publish(replace(lab(), version=2, replicas=tuple(reversed(lab().replicas))))
        await c.until(lambda: c.app.link.snapshot is not None and c.app.link.snapshot.version == 2)
        await c.settle()
        after = c.app.selection()
        assert after is not None
        assert after.cursor == before.cursor


async def test_a_pause_freezes_the_screen_but_not_commands() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("3", "p")
        assert "PAUSED" in c.screen
        client.publish(replace(lab(), version=2, replicas=()))
        await c.until(lambda: c.app.link.snapshot is not None and c.app.link.snapshot.version == 2)
        assert "smollm2" in c.screen
        await c.press("plus")
        await c.until(lambda: bool(client.commands))
        await c.press("p")
        await c.shows("No replicas")
        assert "PAUSED" not in c.screen


async def test_a_lost_daemon_is_said_and_found_again() -> None:
    first, second = (
        client_of(lab()),
        client_of(replace(lab(), version=9), where="attached to pid 7"),
    )
    released = asyncio.Event()
    clients = iter([first, None, second])

    async def connect(progress: object) -> FakeClient:
        client = next(clients)
        if client is None:
            raise NoController("nobody runs this cluster")
        if client is second:
            await released.wait()
        return client

    options = LaunchOptions(connect=connect, cluster="lab-4")
    async with console(None, options=options) as c:
        await c.until(lambda: c.app.link.snapshot is not None)
        first.lose(NodeLost("The daemon went away"))
        await c.shows("engine lost")
        assert "smollm2" in c.screen  # old data, greyed
        await c.press("3", "plus")
        await c.shows("no connection to the engine")
        released.set()
        await c.until(lambda: c.app.link.phase is Phase.LIVE)
        await c.settle()
        assert "engine lost" not in c.screen


async def test_quitting_an_attached_console_just_leaves() -> None:
    client = client_of(lab(), where="attached to daemon pid 7")
    async with console(client) as c:
        assert "attached to console pid 4242" in c.screen
        await c.press("ctrl+q")
        assert c.app.return_value == 0
        assert "goes on serving" in c.app.farewell
    assert client.commands == []
    assert client.closed


async def test_quitting_can_hand_over_to_a_daemon() -> None:
    client = client_of(lab())
    client.answers["handover"] = CommandResult("the controller gives way to a daemon")
    async with console(client) as c:
        await c.press("q")
        assert isinstance(c.app.screen, QuitDialog)
        await c.press("enter")  # Cancel has the focus
        assert not isinstance(c.app.screen, QuitDialog)
        await c.press("ctrl+q", "ctrl+q")  # once more does not pile up
        assert len(c.app.screen_stack) == 2
        c.app.screen.query_one("#handover").focus()
        await c.press("enter")
        await c.until(lambda: c.app.return_value == 0)
        assert c.app.farewell == "the controller gives way to a daemon"
    assert [x.name for x in client.commands] == ["handover"]


async def test_quitting_can_stop_serving_and_shows_how_far_it_is() -> None:
    client = client_of(lab())
    release = asyncio.Event()

    async def slowly(command: Command) -> CommandResult:
        await release.wait()
        return CommandResult("the controller ends")

    client.answers["shutdown"] = slowly
    async with console(client) as c:
        await c.press("ctrl+q")
        c.app.screen.query_one("#stop").focus()
        await c.press("enter")
        await c.shows("4 replicas left")
        client.publish(replace(lab(), version=2, replicas=lab().replicas[:1]))
        await c.shows("1 replica left")
        assert c.app.return_value is None
        client.publish(replace(lab(), version=3, replicas=()))
        release.set()
        await c.until(lambda: c.app.return_value == 0)
    assert client.commands == [Command("shutdown", {"stop_replicas": True, "stop_gateway": True})]


async def test_a_refused_handover_is_said_and_the_console_stays() -> None:
    client = client_of(lab())
    client.answers["handover"] = Refused("no daemon could be started")
    async with console(client) as c:
        await c.press("ctrl+q")
        c.app.screen.query_one("#handover").focus()
        await c.press("enter")
        await c.shows("no daemon could be started")
        assert c.app.return_value is None
        assert not c.app.link.closing


async def test_quitting_before_the_engine_answers_is_at_once() -> None:
    async with console(None) as c:
        await c.press("ctrl+q")
        assert c.app.return_value == 0


async def test_read_only_sends_nothing_whatever_is_pressed() -> None:
    client = client_of(lab())
    keys = {key for action in ACTIONS for key in action.keys}
    keys -= {"q", "ctrl+q", "ctrl+s"}
    async with console(client, read_only=True) as c:
        assert "READ-ONLY" in c.screen
        for view in VIEWS:
            for key in sorted(keys):
                if c.app.main.view_name != view:
                    await c.app.main.show_view(view)
                await press_and_enter(c, key, depth=1)
        for kind, id_ in (
            (Kind.NODE, "n1"), (Kind.REPLICA, "smollm2.1"), (Kind.MODEL, "qwen3"),
            (Kind.VERSION, "phi4/main"),
        ):  # fmt: skip
            for key in sorted(keys):
                if len(c.app.screen_stack) == 1:
                    await c.app.push_screen(CardScreen(kind, id_))
                await press_and_enter(c, key, depth=2)
            await to_main(c)
        for line in ("scale qwen3 --mode stopped", "stop smollm2.1", "node drain n1", "reload"):
            await c.press("colon")
            await c.type(line)
            await to_main(c)
    assert [x.name for x in client.commands if x.name in DANGEROUS] == []
    assert {x.name for x in client.commands} <= {"explain"}


async def press_and_enter(c: Console, key: str, *, depth: int) -> None:
    """Press a key, and enter in whatever came of it."""
    await c.tap(key)
    if len(c.app.screen_stack) > depth or c.app.focused is None or c.app.paused:
        await c.press("enter")
        while len(c.app.screen_stack) > depth:
            await c.app.pop_screen()
        c.app.going_on.set()


async def to_main(c: Console) -> None:
    """Close all that lies on the main screen."""
    while len(c.app.screen_stack) > 1:
        c.app.pop_screen()
        await c.settle()
    c.app.going_on.set()
    c.app.main.focus_content()


async def test_a_read_only_console_that_runs_the_controller_can_be_left() -> None:
    client = client_of(lab())
    async with console(client, read_only=True) as c:
        await c.press("ctrl+q")
        assert not c.app.screen.query("#handover")
        c.app.screen.query_one("#leave").focus()
        await c.press("enter")
        assert c.app.return_value == 0
    assert client.commands == []


async def test_saving_writes_what_the_list_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with console(client_of(lab())) as c:
        await c.press("2", "ctrl+s")
        await c.shows("Saved 4 rows")
    (file,) = tmp_path.glob("llmgw-nodes-*.json")
    assert [row["name"] for row in json.loads(file.read_text())] == ["n1", "n2", "n3", "n4"]


async def test_copying_keeps_the_text_for_the_console_too() -> None:
    async with console(client_of(lab())) as c:
        await c.press("2", "c")
        assert c.app.clipboard == "n1"
        await c.press("y")
        assert json.loads(c.app.clipboard)["host"] == "n1.lab"


async def test_own_keys_replace_the_usual_ones() -> None:
    client = client_of(lab())
    async with console(client, keys={"more": "M", "nosuch": "x"}) as c:
        await c.shows('names "nosuch", which is no action')
        await c.press("4", "plus")
        assert client.commands == []
        await c.press("M")
        await c.until(lambda: len(client.commands) == 1)


async def test_the_log_follows_the_selected_replica() -> None:
    client = client_of(lab())
    client.write_log("smollm2.3", "loading [weights]", "\x1b[31mred\x1b[0m")
    async with console(client) as c:
        await c.press("3", "j", "l")
        await c.shows("loading [weights]")
        assert "\x1b" not in c.screen
        client.write_log("smollm2.3", "the second batch")
        await c.shows("the second batch")
        await c.press("3")
        await c.until(lambda: client.followers == 0)  # nobody looks, nothing travels
        await c.press("6")
        await c.shows("the second batch")


async def test_the_log_of_the_run_before() -> None:
    client = client_of(lab())
    client.write_log("smollm2.1 previous", "out of memory")
    async with console(client) as c:
        await c.press("3", "P")
        await c.shows("out of memory")


async def test_an_empty_log_says_why_and_shows_events() -> None:
    async with console(client_of(lab())) as c:
        await c.press("3", "j", "l")
        await c.shows("No log of smollm2.3 yet, it is loading")
        await c.shows("smollm2.2 replaced on n2")


async def test_what_was_done_can_be_read_back() -> None:
    client = client_of(lab())
    async with console(client) as c:
        await c.press("2", "C")
        await c.until(lambda: bool(c.app.orders.done))
        await c.press("H")
        await c.shows("node cordon n1")


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
def test_each_action_can_be_carried_out(action: Action) -> None:
    if action.command is None:
        method = f"do_{action.id.replace('-', '_')}"
        assert action.id.startswith("view-") or action.id in LOG_ACTIONS or hasattr(Moves, method)


async def test_each_action_is_in_the_palette_and_in_help() -> None:
    from llmgw_tui.palette import ActionProvider
    from llmgw_tui.screens.help import help_lines

    async with console(client_of(lab())) as c:
        provider = ActionProvider(c.app.screen)
        listed = {str(hit.text) async for hit in provider.discover()}
        helped = "\n".join(
            "".join(part.text for part in line)
            for line in help_lines(None, c.app.keys_of, 110, read_only=False)
        )
        for action in ACTIONS:
            if action.id != "palette":
                assert action.title[:1].upper() + action.title[1:] in listed
            assert f":{action.short_usage}" in helped


def test_a_model_scaled_in_the_dialog_says_what_follows() -> None:
    from llmgw_tui.screens.scale import consequence

    shown = model("m", scaling=ScalingView(2, 2, 900.0))
    assert consequence(shown, Command("scale", {"mode": "always", "replicas": 3})) == (
        "always 2 → always 3: 1 more will be placed; 3 more fit now."
    )
    assert "2 replicas end" in consequence(shown, Command("scale", {"mode": "stopped"}))
    assert NOW


async def test_theme_reload_paints_what_the_file_says_now(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n[colors]\nprimary = "#102030"\n')
    async with console(client_of(lab()), theme="mine", console_theme_dirs=(tmp_path,)) as c:
        assert c.app.theme_variables["primary"].lower() == "#102030"
        file.write_text('name = "mine"\n[colors]\nprimary = "#405060"\n')
        await c.press("colon")
        await c.type("theme reload")
        await c.shows("themes were read again")
        assert c.app.theme == "mine"
        assert c.app.theme_variables["primary"].lower() == "#405060"
        assert c.app.stylesheet._variables["primary"].lower() == "#405060"
