"""A field of the serve dialog: label, editor, a note beside it and a problem under it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult, RenderResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input, Static

from llmgw_tui.screens.dialog import plain
from llmgw_tui.serve_fields import Field
from llmgw_tui.text import clean


class Pick(Widget, can_focus=True):
    """One of a few words on a line: all of them where there is room, else the chosen one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1)", show=False),
        Binding("right,space", "move(1)", show=False),
    ]
    ALLOW_SELECT = False
    value: reactive[str] = reactive("")

    class Changed(Message):
        """Another one was chosen."""

    def __init__(self, options: Sequence[tuple[str, str]], value: str) -> None:
        super().__init__()
        self._options = tuple(options)
        self.set_reactive(Pick.value, value)

    def offer(self, options: Sequence[tuple[str, str]], value: str) -> None:
        """Other options, without a message."""
        self._options = tuple(options)
        self.set_reactive(Pick.value, value)
        self.refresh()

    def render(self) -> RenderResult:
        """All with a dot on the chosen one, or the chosen one between angles."""
        chosen_style = "bold reverse" if self.has_focus else "bold"
        if not self._all_fit():
            word = next((clean(word) for value, word in self._options if value == self.value), "")
            return Content.styled(f"< {word} >", chosen_style)
        parts = []
        for value, word in self._options:
            chosen = value == self.value
            text = f"({'•' if chosen else ' '}) {clean(word)}"
            parts.append(Content.styled(text, chosen_style if chosen else "$foreground 60%"))
        return Content("  ").join(parts)

    def _widths(self) -> list[int]:
        return [cell_len(clean(word)) + 4 for _, word in self._options]

    def _all_fit(self) -> bool:
        widths = self._widths()
        return sum(widths) + 2 * len(widths) - 2 <= self.content_size.width

    def action_move(self, step: int) -> None:
        """The next one, round and round."""
        values = [value for value, _ in self._options]
        if values:
            at = values.index(self.value) if self.value in values else 0
            self.value = values[(at + step) % len(values)]

    def watch_value(self) -> None:
        """Say so."""
        self.post_message(self.Changed())

    def on_focus(self) -> None:
        """Shown on the chosen word."""
        self.refresh()

    def on_blur(self) -> None:
        """No longer shown."""
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Choose what was clicked; the next one where only one is shown."""
        if not self._all_fit():
            self.action_move(1)
            return
        left = 0
        for (value, _), width in zip(self._options, self._widths(), strict=True):
            if left <= event.x < left + width:
                self.value = value
            left += width + 2


class FieldBox(Vertical):
    """One field; a message tells what a person has put into it."""

    class Edited(Message):
        """A person changed the value."""

        def __init__(self, name: str, value: str) -> None:
            super().__init__()
            self.field = name
            self.value = value

    class Left(Message):
        """Enter was pressed in it."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.field = name

    def __init__(self, field: Field, value: str = "", *, fixed: bool = False) -> None:
        super().__init__(id=f"field-{field.name}", classes="-short" if field.short else "")
        self.field = field
        self._shown = clean(value)
        self._said = ("", "")
        self.being_typed = False
        """A change is on its way to the dialog."""
        self._fixed = fixed

    def compose(self) -> ComposeResult:
        """Label, editor and note on a line; under it the problem, while there is one."""
        with Horizontal(classes="line"):
            yield plain(self.field.label, classes="label")
            if self.field.picked:
                yield Pick(((self._shown, self._shown),), self._shown)
            else:
                yield plain("[", classes="edge")  # where it ends is seen without colour, too
                yield Input(self._shown, compact=True, disabled=self._fixed, select_on_focus=False)
                yield plain("]", classes="edge")
            yield plain("", classes="note")
        yield plain("", classes="problem bad")

    def on_mount(self) -> None:
        """Without a problem there is no line for it."""
        self.query_one(".problem").display = False
        self._note_shown("")

    @property
    def value(self) -> str:
        """What stands in it."""
        if self.field.picked:
            return self.query_one(Pick).value
        return self.query_one(Input).value

    def put(self, text: str) -> None:
        """Show a value that no person typed, unless one is typing there just now."""
        editor = self.query_one(Input)
        if self._shown != text and editor.value == self._shown:
            self._shown = text
            editor.value = text
            editor.cursor_position = len(text)

    def offer(self, options: Sequence[tuple[str, str]], value: str) -> None:
        """Show what can be picked, and what is."""
        self.query_one(Pick).offer(options, value)

    def say(self, note: str, problem: str) -> None:
        """The note beside it, and what is wrong with it."""
        if self._said == (note, problem):
            return  # laying out all fields anew at each key would be felt
        self._said = (note, problem)
        self._note_shown(clean(note))
        line = self.query_one(".problem", Static)
        line.update(clean(problem))
        line.display = bool(problem)
        self.set_class(bool(problem), "-wrong")

    def _note_shown(self, text: str) -> None:
        note = self.query_one(".note", Static)
        note.update(text)
        note.display = bool(text)

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        if event.value != self._shown:  # else it is what was put there, not what a person typed
            self._shown = event.value
            self.being_typed = True
            self.post_message(self.Edited(self.field.name, event.value))

    @on(Pick.Changed)
    def _picked(self, event: Pick.Changed) -> None:
        event.stop()
        self.post_message(self.Edited(self.field.name, self.value))

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Left(self.field.name))
