"""Serving weights: asking which, and the dialog that already knows the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from textual.widget import Widget
from textual.widgets import Button, Input

from llmgw_core.api.views import Command
from llmgw_core.serve.form import LABELS, ServeForm
from llmgw_tui.screens.dialog import Dialog, plain
from llmgw_tui.screens.plan_dialog import PlanDialog, shown_form
from llmgw_tui.text import clean

if TYPE_CHECKING:
    from llmgw_tui.app import ConsoleApp

SOURCES = (
    ("mirror:MODEL/VERSION", "in the mirror; MODEL alone for its newest"),
    ("hf:ORG/REPO", "of a model hub; with :FILE for one file of it"),
    ("https://…", "an address of weights"),
    ("/models/x.gguf", "a file or folder on nodes"),
)


class SourceDialog(Dialog[str]):
    """Asks which weights are to be served."""

    AUTO_FOCUS: ClassVar[str | None] = "#source"
    heading = "Serve which weights?"
    app: ConsoleApp

    def body(self) -> Iterable[Widget]:
        """A field, and what can be written into it."""
        yield Input(id="source", compact=True)
        lines = "\n".join(f"{source:<22}{meaning}" for source, meaning in SOURCES)
        yield plain(lines, classes="message says")

    def buttons(self) -> Iterable[Widget]:
        """Cancel and on."""
        yield Button("Cancel", id="cancel", compact=True)
        yield Button("Look at it", id="go", variant="primary", compact=True, disabled=True)

    def on_input_changed(self, event: Input.Changed) -> None:
        """The button works once something stands there."""
        self.query_one("#go", Button).disabled = not event.value.strip()

    def on_input_submitted(self) -> None:
        """Enter is the button."""
        self._go()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """On to the dialog."""
        if event.button.id == "go":
            self._go()

    def _go(self) -> None:
        if source := self.query_one("#source", Input).value.strip():
            self.dismiss(source)


class ServeDialog(PlanDialog):
    """Everything that is known of weights that are to be served, filled in."""

    def __init__(self, source: str) -> None:
        values = shown_form(ServeForm(source=source))
        super().__init__(source, values, f"Serve {clean(source)}")
        self._leaving_source = ""

    def edited(self, name: str, value: str) -> None:
        """Another source is looked at when its field is left, not at each letter."""
        if name == "source":
            self._leaving_source = value.strip()
        else:
            super().edited(name, value)

    def on_descendant_blur(self) -> None:
        """Look at another source, if one was typed."""
        self._take_source()

    def _take_source(self) -> None:
        source, self._leaving_source = self._leaving_source, ""
        if not source or source in {self.source, self.view.source if self.view else ""}:
            return
        self.source = source
        self.view, self._answered = None, None
        self.look()

    def title_now(self) -> str:
        """The model, once it is known; the source until then."""
        return f"Serve {clean(self.view.model if self.view is not None else self.source)}"

    def go(self) -> None:
        """Of the source that stands there."""
        self._take_source()
        super().go()

    def wrong(self) -> dict[str, str]:
        """What is wrong, and a name that is given already."""
        found = super().wrong()
        name = self.box("name").value.strip()
        if self.view is not None and name and "name" not in found:
            taken = self._taken(name)
            if taken:
                found["name"] = taken
        return found

    def _taken(self, name: str) -> str:
        snapshot = self.app.link.snapshot
        for model in snapshot.models if snapshot is not None else ():
            if name == model.name:
                how = "declared in the configuration" if model.declared else "served already"
                return f"{LABELS['name']}: {model.name} is {how}; choose another name"
            if name in model.aliases:
                return f"{LABELS['name']}: this is an alias of {model.name}; choose another name"
        return ""

    def toml(self) -> str:
        """What the engine made of the form."""
        return self.view.toml if self.view is not None and self.known else ""

    def command(self) -> Command:
        """Add it to the catalog."""
        return Command("add", {"toml": self.toml()})
