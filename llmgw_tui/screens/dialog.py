"""The frame that all dialogs share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Static

Answer = TypeVar("Answer")


def plain(text: str, *, classes: str = "", id: str | None = None) -> Static:
    """Text from anywhere, shown as it is."""
    return Static(text, markup=False, classes=classes, id=id)


class Dialog(ModalScreen[Answer]):
    """A question in the middle of the screen: esc gives it up, arrows move between buttons.

    Handlers of subclasses do not call ``super()``: Textual calls those of each class.
    """

    CSS_PATH = "dialog.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "give_up", "Cancel"),
        Binding("left", "app.focus_previous", show=False),
        Binding("right", "app.focus_next", show=False),
    ]
    heading: str = ""
    wide: bool = False

    def compose(self) -> ComposeResult:
        """The frame, around ``body`` and ``buttons``."""
        with VerticalScroll(id="dialog", classes="-wide" if self.wide else "") as frame:
            frame.can_focus = False
            frame.border_title = None
            yield from self.body()
            with Horizontal(id="buttons"):
                yield from self.buttons()

    def on_mount(self) -> None:
        """Set the title as plain text."""
        frame = self.query_one("#dialog")
        frame.border_title = escaped_title(self.heading)

    def body(self) -> Iterable[Widget]:
        """What the dialog says and asks."""
        return ()

    def buttons(self) -> Iterable[Widget]:
        """Its buttons, the harmless one first."""
        yield Button("Close", id="cancel", compact=True)

    def action_give_up(self) -> None:
        """Close it and change nothing."""
        self.dismiss(None)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """The harmless button."""
        if event.button.id == "cancel":
            event.stop()
            self.action_give_up()


def escaped_title(text: str) -> str:
    """Text for a border title, where Textual reads markup: brackets become harmless."""
    return text.replace("[", "\\[")
