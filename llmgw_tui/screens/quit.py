"""Leaving a console that runs the controller."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Button, Static

from llmgw_core.api.views import Command
from llmgw_tui.orders import Orders, Outcome
from llmgw_tui.screens.confirm import counted
from llmgw_tui.screens.dialog import Dialog, plain
from llmgw_tui.state import EngineLink
from llmgw_tui.text import clean

HANDOVER = Command("handover")
STOP = Command("shutdown", {"stop_replicas": True, "stop_gateway": True})
HAND_OVER_WORDS = "Hand over to a daemon: serving goes on, and is looked after"
STOP_WORDS = "Stop serving: requests finish, then replicas and gateway end"
READ_ONLY = (
    "It is read-only: replicas and gateway go on by themselves, and nothing looks after them "
    "until a controller is started."
)
CHECK_EVERY_S = 0.25
ENDS_WITHIN_S = 20.0
"""After the engine has said yes, how long its end is waited for."""
GONE = frozenset({"stopped", "pending"})
"""States of replicas that have no process."""


class QuitDialog(Dialog[str]):
    """What becomes of serving; gives a sentence to leave behind once the console may end."""

    AUTO_FOCUS: ClassVar[str | None] = "#cancel"
    heading = "Leave the console?"

    def __init__(self, link: EngineLink, orders: Orders, *, read_only: bool) -> None:
        super().__init__()
        self._link = link
        self._orders = orders
        self._read_only = read_only
        self._asked = False
        """A choice was made: the engine is on its way out."""
        self._accepted = False
        self._watching: Timer | None = None
        self._farewell = ""

    def body(self) -> Iterable[Widget]:
        """What runs here, and the choices in words."""
        yield plain("This console runs the cluster's controller.", classes="says")
        if self._read_only:
            yield plain(READ_ONLY, classes="says")
        else:
            yield Button(HAND_OVER_WORDS, id="handover", compact=True, classes="choice")
            yield Button(STOP_WORDS, id="stop", compact=True, classes="choice", variant="error")
        yield plain("", classes="message says", id="message")

    def buttons(self) -> Iterable[Widget]:
        """Cancel has the focus."""
        yield Button("Cancel", id="cancel", compact=True)
        if self._read_only:
            yield Button("Leave", id="leave", compact=True, variant="warning")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """One of the choices."""
        event.prevent_default().stop()
        match event.button.id:
            case "cancel" if self._asked:
                self.dismiss(self._farewell)
            case "cancel":
                self.action_give_up()
            case "handover":
                self._ask(HANDOVER, "Handing over to a daemon…")
            case "stop":
                self._ask(STOP, "Asking for an orderly end…")
                self._watching = self.set_interval(CHECK_EVERY_S, self._watch)
            case "leave":
                self.dismiss("The console has ended; replicas and gateway go on by themselves.")

    def action_give_up(self) -> None:
        """Esc closes it, but not after a choice: then the engine is on its way out."""
        if not self._asked:
            self.dismiss(None)

    def _ask(self, command: Command, sentence: str) -> None:
        self._asked = self._link.closing = True
        for button in self.query(".choice"):
            button.disabled = True
        self.query_one("#cancel", Button).label = "Leave now"
        self._say(sentence)
        self._orders.give([command], self._answered)

    def _answered(self, outcomes: list[Outcome]) -> None:
        outcome = outcomes[0]
        if not self.is_attached:
            return
        if not outcome.ok:
            self._refused(outcome)
            return
        self._farewell = clean(outcome.text)
        if outcome.command.name == HANDOVER.name:
            self.dismiss(self._farewell)
        else:
            self._accepted = True
            self.set_timer(ENDS_WITHIN_S, lambda: self.dismiss(self._farewell))
            self._watch()

    def _refused(self, outcome: Outcome) -> None:
        self._asked = self._link.closing = False
        if self._watching is not None:
            self._watching.stop()
        for button in self.query(".choice"):
            button.disabled = False
        self.query_one("#cancel", Button).label = "Cancel"
        self._say(outcome.text, bad=True)

    def _watch(self) -> None:
        """Say how many replicas are left; end when none is, or the engine has gone."""
        snapshot = self._link.snapshot
        left = [r for r in snapshot.replicas if r.state not in GONE] if snapshot else []
        if self._accepted and (self._link.client is None or not left):
            self.dismiss(self._farewell)
        elif left:
            self._say(f"{counted(len(left), 'replica')} left to end…")
        else:
            self._say("All replicas have ended; the gateway finishes what it has…")

    def _say(self, text: str, *, bad: bool = False) -> None:
        message = self.query_one("#message", Static)
        message.update(clean(text))
        message.set_class(bad, "bad")
        message.set_class(not bad, "says")
