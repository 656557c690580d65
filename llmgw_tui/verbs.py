"""Carrying actions out: from a key, the ``:`` line or the palette, all the same way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from llmgw_core.api.views import Command
from llmgw_core.errors import LlmgwError
from llmgw_tui import targets as aim
from llmgw_tui.action_table import BY_ID
from llmgw_tui.actions import Action, Kind, allowed
from llmgw_tui.command_line import Card, names_of, parse
from llmgw_tui.moves import Moves
from llmgw_tui.orders import Outcome
from llmgw_tui.rows.preview import preview
from llmgw_tui.rows.report import report
from llmgw_tui.text import clean

if TYPE_CHECKING:
    from llmgw_tui.app import ConsoleApp


class Verbs:
    """What each action does. Actions without a method here are engine commands."""

    def __init__(self, app: ConsoleApp) -> None:
        self._app = app
        self._moves = Moves(app)

    def run_line(self, line: str) -> None:
        """Carry out what was typed after ``:``."""
        app = self._app
        try:
            typed = parse(line, app.link.snapshot)
        except LlmgwError as error:
            app.say(str(error), severity="error")
            return
        if typed is None:
            return
        if isinstance(typed, Card):
            self._moves.open_card(typed.kind, typed.id)
            return
        self.perform(typed.action, typed.targets or None, typed.given)

    def perform(
        self,
        action: Action,
        targets: tuple[str, ...] | None = None,
        given: Mapping[str, object] | None = None,
    ) -> None:
        """Do it to these targets, or, with None, to what is selected now."""
        app = self._app
        if not allowed(action, read_only=app.read_only):
            app.say("This console is read-only", severity="warning")
            return
        typed = targets is not None or bool(given)
        if targets is None:
            targets = aim.targets_of(action, app.selection(), app.shown)
        if action.target is not None and not targets and action.id not in _WITHOUT_TARGET:
            app.say(f"{action.title}: select a {action.target} first", severity="warning")
            return
        handler = self._moves.handler(action.id)
        to_engine = typed and given and action.command is not None and action.id not in _ASKED_HERE
        if handler is not None and not to_engine:
            handler(targets, given or {})
        elif action.id == "cordon" and not typed:
            self._cordon_or_back(targets)
        else:
            self.order(action, targets, given or {})

    def open_card(self, kind: Kind, id_: str) -> None:
        """Everything known about one thing."""
        self._moves.open_card(kind, id_)

    def order(self, action: Action, targets: Sequence[str], given: Mapping[str, object]) -> None:
        """Send the engine command, after the dialog where the action has one."""
        frozen = tuple(targets)
        if not action.confirm:
            self._send(action, frozen, given)
            return
        from llmgw_tui.screens.confirm import ConfirmDialog

        def answered(yes: bool | None) -> None:
            if yes:
                self._send(action, frozen, given)

        async def foreseen() -> list[str]:
            commands = [Command(str(action.command), action.arguments(t, given)) for t in frozen]
            outcome = await self._app.orders.foresee(commands)
            return preview(outcome.text, outcome.data) if outcome.ok else []

        notes = aim.notes_of(action, frozen, self._app.shown)
        ask = foreseen if action.command in _FORESEEN else None
        self._app.push_screen(ConfirmDialog(action, frozen, notes, ask), answered)

    def _cordon_or_back(self, targets: tuple[str, ...]) -> None:
        snapshot = self._app.shown
        back = [t for t in targets if snapshot is not None and aim.cordoned(t, snapshot)]
        if len(back) == len(targets):
            self.order(BY_ID["uncordon"], targets, {})
        else:
            self.order(BY_ID["cordon"], [t for t in targets if t not in back], {})

    def _send(self, action: Action, targets: tuple[str, ...], given: Mapping[str, object]) -> None:
        assert action.command is not None  # noqa: S101 - a fault of the table, found by its test
        there = set(names_of(action.target, self._app.link.snapshot)) if action.target else set()
        gone = [t for t in targets if t not in there]
        commands = [
            Command(action.command, action.arguments(target, given))
            for target in targets or ("",) if target not in gone or action.target is None
        ]  # fmt: skip
        lost = [
            Outcome(Command(action.command, action.arguments(t)), False, "gone since; nothing done")
            for t in gone
        ]
        if commands:
            self._app.orders.give(commands, lambda outcomes: self.told(action, outcomes + lost))
        else:
            self.told(action, lost)

    def told(self, action: Action, outcomes: list[Outcome]) -> None:
        """Show what came of it: a toast for one, a list for several, a page for a report."""
        app = self._app
        if not app.is_running:
            return
        if len(outcomes) > 1:
            from llmgw_tui.screens.confirm import ResultsDialog

            title = action.title[:1].upper() + action.title[1:]
            app.push_screen(ResultsDialog(title, outcomes, ascii_only=app.ascii))
            return
        outcome = outcomes[0]
        if outcome.ok and not action.dangerous and outcome.data is not None:
            from llmgw_tui.screens.confirm import TextDialog

            target = f" {clean(outcome.target)}" if outcome.target else ""
            lines = [outcome.text, "", *report(outcome.data)]
            app.push_screen(
                TextDialog(f"{action.title[:1].upper()}{action.title[1:]}{target}", lines)
            )
            return
        app.say(outcome.text, severity="information" if outcome.ok else "error")


_FORESEEN = frozenset({"restart", "stop", "node.drain", "scale", "remove"})
"""Engine commands whose dialog says what they would start and stop."""
_WITHOUT_TARGET = frozenset({"logs", "previous-logs"})
"""Actions that mean something without a target too."""
_ASKED_HERE = frozenset({"mirror-pull"})
"""Engine commands whose method also takes what was typed."""
