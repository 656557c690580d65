"""The ``:`` line: the grammar of ``llmgw run``, read, completed and spelled. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from llmgw_core.api.views import Command, Snapshot
from llmgw_core.catalog.durations import format_duration, parse_duration
from llmgw_core.catalog.secrets import masked_source
from llmgw_core.errors import InvalidInput
from llmgw_tui.action_table import ACTIONS
from llmgw_tui.actions import Action, Kind, Option, Values, version_arguments
from llmgw_tui.state import version_key

_VIEW_OF = {
    Kind.NODE: "nodes", Kind.REPLICA: "replicas", Kind.MODEL: "models", Kind.VERSION: "mirror",
}  # fmt: skip
_CARDS = {
    "node": Kind.NODE, "model": Kind.MODEL, "replica": Kind.REPLICA, "version": Kind.VERSION,
}  # fmt: skip
"""``node NAME`` and the like open the card."""


@dataclass(frozen=True, slots=True)
class Typed:
    """What a typed line asks for."""

    action: Action
    targets: tuple[str, ...] = ()
    """Ids of the action's target kind; empty means what is selected."""
    given: Mapping[str, object] = field(default_factory=dict)
    """Values of options, by the command's argument."""


@dataclass(frozen=True, slots=True)
class Card:
    """A typed line that names a thing to look at."""

    kind: Kind
    id: str


def names_of(kind: Kind, snapshot: Snapshot | None) -> tuple[str, ...]:
    """All ids of a kind, as the snapshot has them."""
    if snapshot is None:
        return ()
    match kind:
        case Kind.NODE:
            return tuple(node.name for node in snapshot.nodes)
        case Kind.REPLICA:
            return tuple(replica.id for replica in snapshot.replicas)
        case Kind.MODEL:
            return tuple(model.name for model in snapshot.models)
        case Kind.VERSION:
            return tuple(version_key(version) for version in snapshot.mirror.versions)


def parse(line: str, snapshot: Snapshot | None) -> Typed | Card | None:
    """What a line asks for; None for an empty one.

    Raises:
        InvalidInput: with the sentence to show.
    """
    words = _split(line)
    if not words:
        return None
    action, rest = _match(words)
    if action is None:
        if words[0] in _CARDS and len(words) == 2:
            kind = _CARDS[words[0]]
            return Card(kind, _known(kind, words[1], snapshot))
        raise InvalidInput(f'There is no command "{words[0]}"', hint="type ? for all commands")
    return _read(action, rest, snapshot)


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line.strip().removeprefix(":"))
    except ValueError:
        raise InvalidInput("A quotation mark is not closed") from None


def _match(words: list[str]) -> tuple[Action | None, list[str]]:
    """The action with the longest spelling that these words begin with."""
    best: Action | None = None
    length = 0
    for action in ACTIONS:
        for spelling in action.spellings:
            parts = spelling.split()
            if len(parts) > length and words[: len(parts)] == parts:
                best, length = action, len(parts)
    return best, words[length:]


def _read(action: Action, words: list[str], snapshot: Snapshot | None) -> Typed:
    flags = {option.flag: option for option in action.options if option.flag}
    loose = [option for option in action.options if not option.flag or option.bare]
    targets: list[str] = []
    given: dict[str, object] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        flag, equals, value = word.partition("=")
        if flag in flags:
            if not equals:
                if not left:
                    raise InvalidInput(f"{flag} needs a value", hint=f"write {action.usage}")
                value = left.pop(0)
            given.update(_given(flags[flag], value))
        elif word.startswith("--"):
            raise InvalidInput(f"{action.spellings[0]} has no {word}", hint=_hint(action))
        elif action.target is not None and not (targets and (loose or not action.bulk)):
            targets.append(_known(action.target, word, snapshot))
        elif loose:
            option = loose.pop(0)
            given.update(_given(option, word))
        else:
            raise InvalidInput(f'"{word}" is one word too many', hint=_hint(action))
    return Typed(action, tuple(targets), given)


def _hint(action: Action) -> str:
    return f"write {action.usage}"


def _known(kind: Kind, name: str, snapshot: Snapshot | None) -> str:
    names = names_of(kind, snapshot)
    if name in names:
        return name
    if kind is Kind.MODEL and snapshot is not None:
        for model in snapshot.models:
            if name in model.aliases:
                return model.name
    raise InvalidInput(f'There is no {kind} "{name}"', hint=f":{_VIEW_OF[kind]} lists them")


def _given(option: Option, text: str) -> dict[str, object]:
    """The arguments that a value without a flag stands for."""
    if option.takes is not Values.VERSION:
        return {option.key: _value(option, text)}
    if text.count("/") > 1 or not all(text.split("/")):
        raise InvalidInput(f'{option.flag or option.key} is MODEL or MODEL/VERSION, not "{text}"')
    return dict(version_arguments(text))


def _value(option: Option, text: str) -> object:
    label = option.flag or option.key
    try:
        match option.takes:
            case Values.WHOLE:
                return int(text)
            case Values.NUMBER:
                return float(text)
            case Values.DURATION:
                return parse_duration(text)
            case Values.WORD if text not in option.words:
                raise InvalidInput(f'{label} is one of {", ".join(option.words)}, not "{text}"')
            case _:
                return None if option.key == "owner" and text == "-" else text
    except ValueError as error:
        phrase = str(error) if option.takes is Values.DURATION else f"needs a {option.takes}"
        raise InvalidInput(f'{label} {phrase}: "{text}"') from None


def complete(line: str, snapshot: Snapshot | None, themes: Iterable[str] = ()) -> list[str]:
    """Whole lines that this one could become, best first; none where it is complete."""
    typed = line.removeprefix(":").lstrip()
    head, _, last = typed.rpartition(" ")
    options: list[str] = []
    try:
        words = shlex.split(head)
    except ValueError:
        return []
    action, rest = _match(words) if words else (None, [])
    if action is None or not rest:
        options += [w for w in _spellings() if w.startswith(typed) and w != typed]
    if action is not None:
        options += [f"{head} {_quoted(w)}" for w in _next_words(action, rest, snapshot, themes)
                    if w.startswith(last) and w != last]  # fmt: skip
    elif len(words) == 1 and words[0] in _CARDS:
        options += [f"{head} {_quoted(name)}" for name in names_of(_CARDS[words[0]], snapshot)
                    if name.startswith(last) and name != last]  # fmt: skip
    return options


def _spellings() -> list[str]:
    firsts = [action.spellings[0] for action in ACTIONS]
    others = [spelling for action in ACTIONS for spelling in action.spellings[1:]]
    return [*firsts, *_CARDS, *others]


def _next_words(
    action: Action, rest: list[str], snapshot: Snapshot | None, themes: Iterable[str]
) -> list[str]:
    if rest:
        for option in action.options:
            if option.flag == rest[-1]:
                return list(option.words)
    if action.id == "theme":
        return sorted({*themes, "reload"})
    if action.target is not None and not rest:
        return list(names_of(action.target, snapshot))
    used = set(rest)
    return [o.flag for o in action.options if o.flag and o.flag not in used]


def _quoted(word: str) -> str:
    return shlex.quote(word) if word.isprintable() else repr(word)


def spell(command: Command) -> str:
    """A command as ``llmgw run`` is told it, to be read or repeated."""
    action = next(
        (a for a in ACTIONS if (a.command == command.name and not a.fixed and a.id != "uncordon")
         or a.command == command.name == "node.uncordon"),
        None,
    )  # fmt: skip
    left = dict(command.args)
    parts = [action.spellings[0] if action is not None else command.name.replace(".", " ")]
    if action is not None and action.target is Kind.VERSION and "model" in left:
        parts.append(_quoted(_version(left)))
    elif action is not None and action.target is not None and action.target_key in left:
        parts.append(_quoted(str(left.pop(action.target_key))))
    for option in action.options if action is not None else ():
        if option.takes is Values.VERSION and left.get("model"):
            parts += [option.flag, _quoted(_version(left))]
        elif option.key in left:
            value = left.pop(option.key)
            parts += [option.flag] if option.flag else []
            parts.append(_spelled(option, value))
    parts += [f"--{key.replace('_', '-')}={_quoted(str(value))}" for key, value in left.items()]
    return " ".join(parts)


def _version(left: dict[str, object]) -> str:
    """Takes model and version out of the arguments, as one word."""
    version = left.pop("version", None)
    return f"{left.pop('model')}/{version}" if version else str(left.pop("model"))


def _spelled(option: Option, value: object) -> str:
    if value is None:
        return "-"
    if option.takes is Values.DURATION and isinstance(value, int | float):
        return format_duration(value)
    if option.takes is Values.NUMBER and isinstance(value, float):
        return f"{value:g}"
    if option.key == "source":  # what opens an address must not stay on the screen
        return _quoted(masked_source(str(value)))
    return _quoted(str(value))
