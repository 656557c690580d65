"""The action table, its documentation, and the ``:`` line made from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmgw_core.api.commands import DANGEROUS, NAMES
from llmgw_core.api.views import Command
from llmgw_core.errors import InvalidInput
from llmgw_tui.action_table import ACTIONS, BY_ID
from llmgw_tui.actions import Action, Kind, Scope, key_name, markdown
from llmgw_tui.command_line import Card, Typed, complete, parse, spell
from tests.tui.fleets import HOSTILE, hostile, lab

KEYS_MD = Path(__file__).parents[2] / "docs" / "keys.md"
FOLDED = {"ctrl+i", "ctrl+m", "ctrl+h", "ctrl+left_square_bracket", "ctrl+z"}
"""Keys that terminals take for others, or for job control."""


def test_ids_are_unique() -> None:
    assert len(BY_ID) == len(ACTIONS)


def test_no_key_means_two_things_in_one_place() -> None:
    for scope in Scope:
        seen: dict[str, str] = {}
        for action in ACTIONS:
            if scope in action.scopes or Scope.ANY in action.scopes:
                for key in action.keys:
                    assert key not in seen, f"{key} is {seen.get(key)} and {action.id} in {scope}"
                    seen[key] = action.id


def test_no_spelling_means_two_things() -> None:
    spellings = [spelling for action in ACTIONS for spelling in action.spellings]
    assert sorted(spellings) == sorted(set(spellings))


def test_no_key_that_terminals_fold() -> None:
    used = {key for action in ACTIONS for key in action.keys}
    assert not used & FOLDED
    assert not [key for key in used if key.startswith("ctrl+shift+")]


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
def test_commands_are_the_engines_and_dangerous_where_they_change(action: Action) -> None:
    if action.command is not None:
        assert action.command in NAMES
        assert action.dangerous == (action.command in DANGEROUS)


def test_what_destroys_asks_first_and_is_not_next_to_describe() -> None:
    for action in ACTIONS:
        if action.id == "unload" or action.command in {
            "stop", "restart", "node.drain", "node.takeover", "remove",
        }:  # fmt: skip
            assert action.confirm
            assert Scope.ANY not in action.scopes
    assert "d" in BY_ID["describe"].keys
    assert not [a for a in ACTIONS if a.dangerous and "d" in a.keys]


def test_the_documentation_is_current() -> None:
    assert KEYS_MD.read_text() == markdown(ACTIONS), (
        "run: python -m llmgw_tui.actions --markdown > docs/keys.md"
    )


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
def test_the_documentation_has_each_action(action: Action) -> None:
    assert f"| `{action.id}` |" in KEYS_MD.read_text()


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
def test_the_command_line_knows_each_action(action: Action) -> None:
    for spelling in action.spellings:
        typed = parse(spelling, lab())
        assert isinstance(typed, Typed)
        assert typed.action is action
    assert action.spellings[0] in complete("", lab())


def test_keys_are_written_for_people() -> None:
    assert [key_name(k) for k in ("ctrl+d", "plus", "question_mark", "ctrl+backslash", "C")] == [
        "ctrl+d", "+", "?", "ctrl+\\", "C",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "command", "args"),
    [
        ("scale smollm2 --mode always --replicas 2", "scale",
         {"name": "smollm2", "mode": "always", "replicas": 2}),
        (":scale smollm2 --mode=ondemand --idle 15m", "scale",
         {"name": "smollm2", "mode": "ondemand", "idle_s": 900.0}),
        ("scale smollm2-latest --delta -1", "scale", {"name": "smollm2", "delta": -1}),
        ("more gemma3", "scale", {"name": "gemma3", "delta": 1}),
        ("cordon n1", "node.cordon", {"name": "n1"}),
        ("node cordon n1", "node.cordon", {"name": "n1"}),
        ("node takeover n2", "node.takeover", {"name": "n2"}),
        ("node trust n2", "node.trust", {"name": "n2"}),
        ("restart smollm2.1", "restart", {"replica": "smollm2.1"}),
        ("class qwen3 critical", "class", {"name": "qwen3", "class": "critical"}),
        ("owner qwen3 -", "owner", {"name": "qwen3", "owner": None}),
        ("resources qwen3 --memory 2.5 --cores 4", "resources",
         {"name": "qwen3", "min_memory_gb": 2.5, "cpu_cores": 4.0}),
    ],
)  # fmt: skip
def test_lines_become_commands(line: str, command: str, args: dict[str, object]) -> None:
    typed = parse(line, lab())
    assert isinstance(typed, Typed)
    assert typed.action.command == command
    assert typed.action.arguments(typed.targets[0], typed.given) == args
    assert spell(Command(command, args))  # it can be written down again
    if not typed.action.fixed:
        again = parse(spell(Command(command, args)), lab())
        assert isinstance(again, Typed)
        assert again.action.arguments(again.targets[0], again.given) == args


def test_bulk_takes_several_targets() -> None:
    typed = parse("cordon n1 n2", lab())
    assert isinstance(typed, Typed)
    assert typed.targets == ("n1", "n2")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("frobnicate", 'There is no command "frobnicate"'),
        ("scale nosuch", 'There is no model "nosuch"; :models lists them'),
        ("scale smollm2 --mode sometimes", "--mode is one of always, ondemand, stopped"),
        ("scale smollm2 --replicas two", "--replicas needs a whole number"),
        ("scale smollm2 --replicas", "--replicas needs a value"),
        ("scale smollm2 --frob 2", "scale has no --frob"),
        ("scale smollm2 --idle soon", "--idle is not a duration"),
        ("pause now", '"now" is one word too many'),
        ("scale 'smollm2", "A quotation mark is not closed"),
    ],
)
def test_what_cannot_be_read_is_said(line: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(line, lab())
    assert sentence in str(caught.value)


def test_cards_by_name() -> None:
    assert parse("node n1", lab()) == Card(Kind.NODE, "n1")
    assert parse("model qwen3", lab()) == Card(Kind.MODEL, "qwen3")
    assert parse("", lab()) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sc", "scale"), ("scale sm", "scale smollm2"), 
        ("scale smollm2 --m", "scale smollm2 --mode"),
        ("scale smollm2 --mode on", "scale smollm2 --mode ondemand"), ("cordon ", "cordon n1"),
        ("node dr", "node drain"), ("model q", "model qwen3"), ("theme ", "theme night"),
        ("logs ", "logs smollm2.1"),
    ],
)  # fmt: skip
def test_completion(line: str, expected: str) -> None:
    assert expected in complete(line, lab(), themes=["night", "day"])


def test_hostile_names_complete_to_something_that_reads_back() -> None:
    for line in complete("cordon ", hostile()):
        if "\\x" in line or "\\n" in line or "\\u" in line:
            continue  # shown, but not typed by anyone
        typed = parse(line, hostile())
        assert isinstance(typed, Typed)
        assert typed.targets[0] in HOSTILE
