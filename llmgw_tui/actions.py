"""What can be done in the console: the vocabulary, and the documentation made from it.

The table itself is ``action_table.ACTIONS``. Bindings, the key bar, the ``:`` line, the palette,
help, ``docs/keys.md`` and read-only mode all come from it. Nothing here knows a screen: ``verbs``
carries actions out. To print the documentation: ``python -m llmgw_tui.actions --markdown``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Scope(StrEnum):
    """Where an action's keys work."""

    ANY = "Anywhere"
    LISTS = "Every list"
    OVERVIEW = "Overview"
    NODES = "Nodes"
    REPLICAS = "Replicas"
    MODELS = "Models"
    MIRROR = "Mirror"
    EVENTS = "Events"
    LOGS = "Logs"
    SERVE = "Serve dialog"


class Kind(StrEnum):
    """What an action is done to."""

    NODE = "node"
    REPLICA = "replica"
    MODEL = "model"
    VERSION = "version"
    """Of a model's weights in the mirror; its id is ``MODEL/VERSION``."""


class Values(StrEnum):
    """What an option takes."""

    TEXT = "text"
    WHOLE = "whole number"
    NUMBER = "number"
    DURATION = "duration"
    WORD = "one of a few words"
    VERSION = "MODEL/VERSION"
    """Becomes the two arguments ``model`` and ``version``; the second may be left out."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command on the ``:`` line, spelled as in ``llmgw run``."""

    flag: str
    """Empty where the value stands by itself after the target."""
    key: str
    """The command's argument."""
    takes: Values = Values.TEXT
    words: tuple[str, ...] = ()
    """The words that are possible, where only a few are."""
    bare: bool = False
    """Its value may stand without the flag, too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """One thing a person can do.

    With ``command`` it becomes that engine command (see ``llmgw_core.api.commands``) on its
    target; without, ``verbs`` has a method named after ``id``.
    """

    id: str
    title: str
    """A few words for the key bar and the palette."""
    help: str
    """One sentence for help and the documentation."""
    scopes: tuple[Scope, ...]
    keys: tuple[str, ...] = ()
    """As Textual spells them; the first is the one shown."""
    words: tuple[str, ...] = ()
    """On the ``:`` line; the first is the usual one. The id, where none is given."""
    target: Kind | None = None
    command: str | None = None
    target_key: str = "name"
    """The command's argument that holds the target."""
    fixed: Mapping[str, object] = field(default_factory=dict)
    options: tuple[Option, ...] = ()
    confirm: str = ""
    """What the dialog says will happen; empty where no dialog is needed."""
    dangerous: bool = False
    """Changes something: not there in read-only mode."""
    bulk: bool = False
    """Acts on all marked rows."""
    shown: bool = False
    """In the key bar."""
    binds: bool = True
    """False where the widget binds the keys itself and they are only listed."""

    @property
    def spellings(self) -> tuple[str, ...]:
        """The words by which the ``:`` line knows it."""
        return self.words or (self.id,)

    @property
    def usage(self) -> str:
        """How it is written on the ``:`` line."""
        parts = [self.spellings[0]]
        if self.target is not None:
            parts.append(self.target.upper())
        parts += [
            f"[{option.flag} {_value_hint(option)}]" if option.flag else _value_hint(option)
            for option in self.options
        ]
        return " ".join(parts)

    @property
    def short_usage(self) -> str:
        """The same where there is little room: options only hinted at."""
        target = f" {self.target.upper()}" if self.target is not None else ""
        return f"{self.spellings[0]}{target}" + (" …" if self.options else "")

    def arguments(
        self, target: str, given: Mapping[str, object] | None = None
    ) -> dict[str, object]:
        """The engine command's arguments for one target."""
        named: dict[str, object] = {}
        if self.target is Kind.VERSION:
            named = dict(version_arguments(target))
        elif self.target is not None:
            named = {self.target_key: target}
        return {**named, **self.fixed, **(given or {})}


def version_arguments(key: str) -> dict[str, str]:
    """``MODEL/VERSION`` as the arguments of a command; neither name holds a slash."""
    model, _, version = key.partition("/")
    return {"model": model, "version": version} if version else {"model": model}


def _value_hint(option: Option) -> str:
    if option.words:
        return "|".join(option.words)
    return {
        Values.WHOLE: "N", Values.NUMBER: "X", Values.DURATION: "15m",
        Values.TEXT: option.key.upper(), Values.WORD: option.key.upper(),
        Values.VERSION: "MODEL/VERSION",
    }[option.takes]  # fmt: skip


KEY_NAMES = {
    "plus": "+", "minus": "-", "equals_sign": "=", "colon": ":", "slash": "/", "question_mark": "?",
    "backslash": "\\", "space": "space", "escape": "esc", "left_square_bracket": "[",
    "right_square_bracket": "]", "at": "@",
}  # fmt: skip


def key_name(key: str) -> str:
    """How a key is written for people: ``ctrl+d``, ``+``, ``?``, ``space``."""
    *modifiers, last = key.split("+")
    return "+".join([*modifiers, KEY_NAMES.get(last, last)])


def in_scope(actions: Iterable[Action], scope: Scope) -> list[Action]:
    """Those whose keys work there, in the table's order."""
    return [action for action in actions if scope in action.scopes]


def allowed(action: Action, *, read_only: bool) -> bool:
    """Whether it may be done at all."""
    return not (read_only and action.dangerous)


def effective_keys(
    actions: Iterable[Action], changed: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """The keys of each action by its id, with a person's own in place of the usual ones."""
    return {
        action.id: tuple(key.strip() for key in changed[action.id].split(","))
        if action.id in changed else action.keys
        for action in actions
    }  # fmt: skip


def keymap_faults(actions: Iterable[Action], changed: Mapping[str, str]) -> list[str]:
    """Sentences about what is wrong with a person's own keys."""
    table = list(actions)
    known = {action.id for action in table}
    faults = [f'[keys] names "{id_}", which is no action' for id_ in changed if id_ not in known]
    keys = effective_keys(table, changed)
    for i, one in enumerate(table):
        for other in table[i + 1 :]:
            together = set(one.scopes) & set(other.scopes) or Scope.ANY in one.scopes + other.scopes
            shared = set(keys[one.id]) & set(keys[other.id])
            if together and shared and {one.id, other.id} & set(changed):
                key = key_name(sorted(shared)[0])
                faults.append(f"[keys] gives {key} to both {one.id} and {other.id}")
    return faults


def markdown(actions: Iterable[Action]) -> str:
    """The documentation of all keys and commands."""
    table = list(actions)
    lines = [
        "# Keys and commands of the console",
        "",
        "Made from the action table by `python -m llmgw_tui.actions --markdown`; do not edit.",
        "Keys can be changed under `[keys]` in the configuration, by the name in the last column.",
        "Marked * changes something, and is not there with `--read-only`.",
    ]
    for scope in Scope:
        rows = in_scope(table, scope)
        if not rows:
            continue
        lines += [
            "",
            f"## {scope}",
            "",
            "| key | command | does | name |",
            "| --- | --- | --- | --- |",
        ]
        lines += [_markdown_row(action) for action in rows]
    return "\n".join(lines) + "\n"


def _markdown_row(action: Action) -> str:
    keys = " ".join(f"`{key_name(key)}`" for key in action.keys) or "–"
    star = " *" if action.dangerous else ""
    usage = f":{action.usage}".replace("|", "\\|")
    return f"| {keys} | `{usage}` | {action.help}{star} | `{action.id}` |"


def main(arguments: list[str]) -> int:
    """Print the documentation."""
    from llmgw_tui.action_table import ACTIONS

    if arguments != ["--markdown"]:
        sys.stderr.write("usage: python -m llmgw_tui.actions --markdown\n")
        return 2
    sys.stdout.write(markdown(ACTIONS))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
