"""Small dialogs about one added model: its class, its owner, what a replica reserves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from llmgw_core.api.views import Command, ModelView, ProfileView
from llmgw_tui.orders import Orders, Outcome
from llmgw_tui.screens.choice import Choice
from llmgw_tui.screens.dialog import Dialog, escaped_title, plain
from llmgw_tui.text import clean

NEW_CLASS = (
    "Class {now} → {new}: counts from now on, where replicas compete for room; none ends now."
)
NEW_OWNER = "Owner {now} → {new}: what it uses is charged to that quota from now on."


_AMOUNTS = (("memory", "min_memory_gb", "Memory"), ("cores", "cpu_cores", "Cores"))


class ModelDialog(Dialog[Outcome]):
    """Asks, sends the command, and shows a refusal in place."""

    verb = "Change"

    def __init__(self, model: ModelView, orders: Orders, heading: str) -> None:
        super().__init__()
        self.model = model
        self.heading = heading
        self._orders = orders
        self._waiting = False

    def command(self) -> Command:
        """What the fields ask for.

        Raises:
            ValueError: a field cannot be used; the message is a sentence.
        """
        raise NotImplementedError

    def consequence(self) -> str:
        """What it will do, in a sentence."""
        raise NotImplementedError

    def buttons(self) -> Iterable[Widget]:
        """Cancel and the verb."""
        yield Button("Cancel", id="cancel", compact=True)
        yield Button(self.verb, id="go", variant="primary", compact=True)

    def on_mount(self) -> None:
        """Say what stands there now."""
        self.explain()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """The verb."""
        if event.button.id == "go":
            self.go()

    def on_choice_changed(self) -> None:
        """Another one."""
        self.explain()

    def on_choice_taken(self) -> None:
        """Enter on it is the button."""
        self.go()

    def on_input_changed(self) -> None:
        """Another value."""
        self.explain()

    def on_input_submitted(self) -> None:
        """Enter in a field is the button."""
        self.go()

    def explain(self) -> None:
        """What the fields would do, or what is wrong with them."""
        try:
            self.command()
        except ValueError as error:
            self._say(str(error), bad=True)
        else:
            self._say(self.consequence())

    def go(self) -> None:
        """Ask the engine."""
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

    def _say(self, text: str, *, bad: bool = False) -> None:
        message = self.query_one("#message", Static)
        message.update(clean(text))
        message.set_class(bad, "bad")
        message.set_class(not bad, "says")


class WordDialog(ModelDialog):
    """One of the words that the configuration knows, or another that is typed."""

    def __init__(
        self, model: ModelView, orders: Orders, *, field: str, now: str, known: Sequence[str]
    ) -> None:
        super().__init__(model, orders, escaped_title(f"{field.capitalize()} of {model.name}"))
        self._field = field
        self._now = now
        self._known = tuple(known)

    def body(self) -> Iterable[Widget]:
        """A field, with what other models have beside it."""
        with Horizontal(classes="field"):
            yield plain(self._field.capitalize(), classes="label")
            yield Input(self._now, id="word", compact=True)
        if self._known:
            yield plain("In use: " + ", ".join(map(clean, self._known)), classes="hint")
        if self._field == "owner":
            yield plain("Empty: nobody's quota is charged.", classes="hint")
        yield plain("", classes="message says", id="message")

    def _word(self) -> str:
        return self.query_one("#word", Input).value.strip()

    def command(self) -> Command:
        """Give it the word."""
        word = self._word()
        if self._field == "class" and not word:
            raise ValueError("Class: write the name of a class")
        return Command(self._field, {"name": self.model.name, self._field: word or None})

    def consequence(self) -> str:
        """From what to what."""
        word = self._word()
        if word == self._now:
            return "That is what it is now."
        text = NEW_CLASS if self._field == "class" else NEW_OWNER
        return text.format(now=self._now or "nobody", new=word or "nobody")


class ResourcesDialog(ModelDialog):
    """The memory and cores that a replica of one profile reserves."""

    AUTO_FOCUS: ClassVar[str | None] = "#memory"

    def __init__(self, model: ModelView, orders: Orders) -> None:
        super().__init__(model, orders, escaped_title(f"Resources of {clean(model.name)}"))

    def body(self) -> Iterable[Widget]:
        """The profile, where there are several, and the two amounts."""
        profiles = self.model.profiles
        if len(profiles) > 1:
            names = [(p.name, clean(p.name)) for p in profiles]
            yield Choice(names, profiles[0].name, id="profile")
        for name, label, hint in (
            ("memory", "Memory", "GiB; empty reserves none"),
            ("cores", "Cores", "and the engine's threads; empty reserves none"),
        ):
            with Horizontal(classes="field"):
                yield plain(label, classes="label")
                yield Input(self._amount(profiles[0], name), id=name, compact=True)
                yield plain(hint, classes="hint")
        yield plain("", classes="message says", id="message")

    def _amount(self, profile: ProfileView, name: str) -> str:
        value = profile.min_memory_gb if name == "memory" else profile.cpu_cores
        return "" if value is None else f"{value:g}"

    def _profile(self) -> ProfileView:
        choice = self.query(Choice)
        name = choice.first().value if choice else self.model.profiles[0].name
        return next(p for p in self.model.profiles if p.name == name)

    def on_choice_changed(self) -> None:
        """Another profile has other amounts."""
        for name in ("memory", "cores"):
            self.query_one(f"#{name}", Input).value = self._amount(self._profile(), name)

    def command(self) -> Command:
        """Both amounts, as they stand."""
        args: dict[str, object] = {"name": self.model.name, "profile": self._profile().name}
        for name, key, label in _AMOUNTS:
            text = self.query_one(f"#{name}", Input).value.strip()
            try:
                args[key] = float(text) if text else None
            except ValueError:
                raise ValueError(f"{label}: a number, not {text!r}") from None
        return Command("resources", args)

    def consequence(self) -> str:
        """What becomes of the replicas."""
        total = self.model.replicas.total
        if not total:
            return "Counts from the next replica on."
        which = "its replica is" if total == 1 else f"its {total} replicas are"
        return f"A change is a change of the profile: {which} replaced by ones that reserve this."
