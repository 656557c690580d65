"""Leaving a console that runs the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

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
        self._stopping = False
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
        event.stop()
        match event.button.id:
            case "cancel" if self._stopping:
                self.dismiss(self._farewell)
            case "cancel":
                self.action_give_up()
            case "handover":
                self._ask(HANDOVER, "Starting a daemon and handing over…", self._handed_over)
            case "stop":
                self._ask(STOP, "Asking for an orderly end…", self._stop_accepted)
            case "leave":
                self.dismiss("The console has ended; replicas and gateway go on by themselves.")

    def action_give_up(self) -> None:
        """Esc closes it, but not while serving ends: then the console would be left without one."""
        if not self._stopping:
            self.dismiss(None)

    def _ask(self, command: Command, sentence: str, then: Callable[[list[Outcome]], None]) -> None:
        for button in self.query(".choice"):
            button.disabled = True
        self._link.closing = True
        self._say(sentence)
        self._orders.give([command], then)

    def _handed_over(self, outcomes: list[Outcome]) -> None:
        if not outcomes[0].ok:
            self._refused(outcomes[0])
        elif self.is_attached:
            self.dismiss(clean(outcomes[0].text))

    def _stop_accepted(self, outcomes: list[Outcome]) -> None:
        if not outcomes[0].ok:
            self._refused(outcomes[0])
            return
        self._stopping = True
        self._farewell = clean(outcomes[0].text)
        cancel = self.query_one("#cancel", Button)
        cancel.label = "Leave now"
        self.set_interval(CHECK_EVERY_S, self._watch)
        self._watch()

    def _refused(self, outcome: Outcome) -> None:
        self._link.closing = False
        for button in self.query(".choice"):
            button.disabled = False
        self._say(outcome.text, bad=True)

    def _watch(self) -> None:
        """Say how many replicas are left; end when none is, or the engine has gone."""
        snapshot = self._link.snapshot
        left = [r for r in snapshot.replicas if r.state not in GONE] if snapshot else []
        if self._link.client is None or not left:
            self.dismiss(self._farewell)
        else:
            self._say(f"{counted(len(left), 'replica')} left to end…")

    def _say(self, text: str, *, bad: bool = False) -> None:
        message = self.query_one("#message", Static)
        message.update(clean(text))
        message.set_class(bad, "bad")
        message.set_class(not bad, "says")
