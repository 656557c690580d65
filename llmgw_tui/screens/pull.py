"""What to pull into the mirror, and under which name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import ClassVar

from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Button, Input, Static

from llmgw_core.api.views import Command
from llmgw_tui.actions import version_arguments
from llmgw_tui.orders import Orders, Outcome
from llmgw_tui.screens.dialog import Dialog, plain
from llmgw_tui.text import clean

SOURCES = (
    "hf:ORG/REPO[@REV][:FILE or PATTERN]   weights of a repository\n"
    "https://HOST/FILE.gguf                one file\n"
    "/a/path                               on the controller's machine"
)


def pull_command(args: Mapping[str, object]) -> Command:
    """The command, with a path made absolute: the engine may work in another folder."""
    source = str(args["source"])
    if "://" not in source and not source.startswith(("hf:", "mirror:")):
        source = str(Path(source).expanduser().absolute())
    return Command("mirror.pull", {**args, "source": source})


class PullDialog(Dialog[None]):
    """Source and name; the engine's refusal is shown in place."""

    AUTO_FOCUS: ClassVar[str | None] = "#source"
    heading = "Pull weights into the mirror"

    def __init__(self, orders: Orders, tell: Callable[[list[Outcome]], None]) -> None:
        super().__init__()
        self._orders = orders
        self._tell = tell
        self._waiting = False

    def body(self) -> Iterable[Widget]:
        """The two fields, and what may stand in them."""
        with Horizontal(classes="field"):
            yield plain("Source", classes="label")
            yield Input(id="source", classes="long", compact=True)
        with Horizontal(classes="field"):
            yield plain("Name", classes="label")
            yield Input(
                id="name", classes="long", compact=True,
                placeholder="MODEL/VERSION; empty: after the source",
            )  # fmt: skip
        yield plain(SOURCES, classes="says above")
        yield plain("", classes="message says", id="message")

    def buttons(self) -> Iterable[Widget]:
        """Cancel and the verb."""
        yield Button("Cancel", id="cancel", compact=True)
        yield Button("Pull", id="go", variant="primary", compact=True)

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
        source = self.query_one("#source", Input).value.strip()
        name = self.query_one("#name", Input).value.strip()
        if not source:
            raise ValueError("Source: say what to pull")
        args: dict[str, object] = {"source": source}
        if name:
            if name.count("/") > 1 or not all(name.split("/")):
                raise ValueError("Name: MODEL or MODEL/VERSION")
            args.update(version_arguments(name))
        return pull_command(args)

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
        self._say("Looking it up; esc leaves that to the engine…")
        self._orders.give([command], self._answered)

    def _answered(self, outcomes: list[Outcome]) -> None:
        self._waiting = False
        if outcomes[0].ok or not self.is_current:
            self._tell(outcomes)
            if self.is_current:
                self.dismiss(None)
        else:
            self._say(outcomes[0].text, bad=True)
