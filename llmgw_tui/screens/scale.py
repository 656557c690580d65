"""How a model runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from llmgw_core.api.views import Command, ModelView
from llmgw_core.catalog.durations import format_duration, parse_duration
from llmgw_tui.orders import Orders, Outcome
from llmgw_tui.rows.words import mode_words, number
from llmgw_tui.screens.choice import Choice
from llmgw_tui.screens.dialog import Dialog, plain
from llmgw_tui.text import clean

_EXPLAINED = (
    ("always", "always      this many, all the time"),
    ("ondemand", "on demand   a request starts it, idleness ends it"),
    ("stopped", "stopped     none runs, requests are refused"),
)
DECLARED = (
    "It is declared in the configuration, so its scaling is changed there: "
    "edit scaling under [[models]], then :reload."
)


class ScaleDialog(Dialog[Outcome]):
    """Mode, count and idle time of one model; the engine's refusal is shown in place."""

    AUTO_FOCUS: ClassVar[str | None] = "Choice"

    def __init__(self, model: ModelView, orders: Orders) -> None:
        super().__init__()
        self.model = model
        self._orders = orders
        self.heading = f"Scale {clean(model.name)}"
        self._mode = model.mode.replace(" ", "")
        self._waiting = False

    def body(self) -> Iterable[Widget]:
        """The three fields and what they will do."""
        scaling = self.model.scaling
        if self.model.declared:
            yield plain(DECLARED, classes="warns")
        with Horizontal(classes="field mode"):
            yield plain("Run", classes="label")
            yield Choice(_EXPLAINED, self._mode, id="mode")
        count = scaling.max if self._mode == "ondemand" else scaling.min
        with Horizontal(classes="field", id="count-field"):
            yield plain("Replicas", classes="label")
            yield Input(str(max(1, count)), id="count", type="integer", compact=True)
            yield plain("", classes="hint", id="count-hint")
        with Horizontal(classes="field", id="idle-field"):
            yield plain("Idle time", classes="label")
            yield Input(format_duration(scaling.idle_timeout_s), id="idle", compact=True)
            yield plain("such as 15m or 1h30m", classes="hint")
        yield plain("", classes="message says", id="message")

    def buttons(self) -> Iterable[Widget]:
        """Cancel and the verb."""
        yield Button("Cancel", id="cancel", compact=True)
        yield Button("Scale", id="go", variant="primary", compact=True)

    def on_mount(self) -> None:
        """Show what the fields mean now."""
        self._explain()

    def on_choice_changed(self) -> None:
        """Another mode: only the fields that count for it stay."""
        self._mode = self.query_one(Choice).value
        self._explain()

    def on_choice_taken(self) -> None:
        """Enter on a mode is the button."""
        self._go()

    def on_input_changed(self) -> None:
        """Another count."""
        self._explain()

    def on_input_submitted(self) -> None:
        """Enter in a field is the button."""
        self._go()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Cancel, or go."""
        if event.button.id == "go":
            self._go()

    def command(self) -> Command:
        """What the fields ask for.

        Raises:
            ValueError: a field cannot be used; the message is a sentence.
        """
        args: dict[str, object] = {"name": self.model.name, "mode": self._mode}
        if self._mode != "stopped":
            text = self.query_one("#count", Input).value.strip()
            if not text.isdecimal() or int(text) < 1:
                raise ValueError("Replicas: a whole number from 1 on")
            args["replicas"] = int(text)
        if self._mode == "ondemand":
            try:
                args["idle_s"] = parse_duration(self.query_one("#idle", Input).value)
            except ValueError as error:
                raise ValueError(f"Idle time {error}") from None
        return Command("scale", args)

    def _explain(self) -> None:
        self.query_one("#count-field").display = self._mode != "stopped"
        self.query_one("#idle-field").display = self._mode == "ondemand"
        most = "at most, started one by one" if self._mode == "ondemand" else ""
        self.query_one("#count-hint", Static).update(most)
        try:
            command = self.command()
        except ValueError as error:
            self._say(str(error), bad=True)
            return
        self._say(consequence(self.model, command))

    def _say(self, text: str, *, bad: bool = False) -> None:
        message = self.query_one("#message", Static)
        message.update(clean(text))
        message.set_class(bad, "bad")
        message.set_class(not bad, "says")

    def _go(self) -> None:
        if self._waiting:
            return
        try:
            command = self.command()
        except ValueError as error:
            self._say(str(error), bad=True)
            return
        self._waiting = True
        self._say("Asking the engine…")
        self._orders.give([command], self._answered)

    def _answered(self, outcomes: list[Outcome]) -> None:
        self._waiting = False
        if not self.is_current:
            return
        if outcomes[0].ok:
            self.dismiss(outcomes[0])
        else:
            self._say(outcomes[0].text, bad=True)


def consequence(model: ModelView, command: Command) -> str:
    """What a scaling would change, in a sentence."""
    mode = str(command.args["mode"])
    count = int(command.args.get("replicas", 0))
    before = mode_words(model.mode, model.scaling.min, model.scaling.max)
    after = mode_words(mode, count if mode == "always" else 0, count)
    now = model.replicas.total
    if mode == "stopped":
        effect = f"{now} replicas end" if now != 1 else "1 replica ends"
    elif mode == "always" and count > now:
        free = model.headroom.free
        room = "" if free is None else f"; {number(free)} more fit now"
        effect = f"{count - now} more will be placed{room}"
    elif count < now:
        effect = f"{now - count} of {now} replicas end once they have answered"
    else:
        effect = "no replica starts or ends now"
    return f"{before} → {after}: {effect}." if before != after else f"{after}: {effect}."
