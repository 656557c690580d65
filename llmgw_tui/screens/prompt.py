"""The line at the bottom in which commands and filters are typed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from llmgw_tui.screens.dialog import plain
from llmgw_tui.text import clean

HISTORY_KEPT = 100

_HINTS = {
    "/": "text  !text  column:value   enter keeps it, esc clears it",
    "find": "a text that stands out   n and N go to the next and the one before, esc clears it",
}

Completer = Callable[[str], list[str]]


class PromptInput(Input):
    """Its keys: tab completes, up and down go through what was typed before."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "prompt('cancel')", show=False),
        Binding("tab", "prompt('complete')", show=False),
        Binding("up", "prompt('older')", show=False),
        Binding("down", "prompt('newer')", show=False),
    ]

    def action_prompt(self, what: str) -> None:
        """Hand the key to the prompt around it."""
        if isinstance(prompt := self.parent.parent if self.parent else None, Prompt):
            prompt.handle(what)


class Prompt(Widget):
    """Hidden until it is opened, for a command (``:``) or a filter (``/``)."""

    class Submitted(Message):
        """Enter was pressed on a command."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Filtered(Message):
        """The filter changed; with ``final`` it is left."""

        def __init__(self, text: str, *, final: bool) -> None:
            super().__init__()
            self.text = text
            self.final = final

    class Sought(Message):
        """A text that is to stand out."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Closed(Message):
        """It is hidden again; the focus can go back."""

    def __init__(self, completer: Completer) -> None:
        super().__init__()
        self._completer = completer
        self._sign = ":"
        self._history: deque[str] = deque(maxlen=HISTORY_KEPT)
        self._at = 0
        self.display = False

    def compose(self) -> ComposeResult:
        """Candidates over the line itself."""
        yield plain("", id="candidates")
        with Horizontal(id="prompt-line"):
            yield plain(":", id="sign")
            yield PromptInput(id="prompt", compact=True, select_on_focus=False)

    @property
    def line(self) -> PromptInput:
        """The field."""
        return self.query_one(PromptInput)

    def open(self, sign: str, text: str = "") -> None:
        """Show it and take the focus. Signs: ``:``, ``/`` and ``find``."""
        self._sign = sign
        self._at = 0
        self.query_one("#sign", Static).update(sign, layout=False)
        with self.prevent(Input.Changed):
            self.line.value = text
        self.line.cursor_position = len(text)
        self.display = True
        self._suggest()
        self.line.focus()

    def close(self) -> None:
        """Hide it."""
        self.display = False
        self.post_message(self.Closed())

    def handle(self, what: str) -> None:
        """One of the keys of the field."""
        match what:
            case "cancel":
                if self._sign == "/":
                    self.post_message(self.Filtered("", final=True))
                elif self._sign == "find":
                    self.post_message(self.Sought(""))
                self.close()
            case "complete":
                self._complete()
            case "older" | "newer":
                self._recall(1 if what == "older" else -1)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if self._sign == "/":
            self.post_message(self.Filtered(event.value, final=False))
        elif self._sign == "find":
            self.post_message(self.Sought(event.value))
        self._suggest()

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        text = event.value
        self.close()
        if self._sign == "/":
            self.post_message(self.Filtered(text, final=True))
        elif self._sign == "find":
            self.post_message(self.Sought(text))
        elif text.strip():
            self._history.append(text)
            self.post_message(self.Submitted(text))

    def _candidates(self) -> list[str]:
        return self._completer(self.line.value) if self._sign == ":" else []

    def _suggest(self) -> None:
        label = self.query_one("#candidates", Static)
        if self._sign != ":":
            label.update(_HINTS[self._sign], layout=False)
            return
        last = [clean(line.rpartition(" ")[2]) if " " in self.line.value else clean(line)
                for line in self._candidates()[:24]]  # fmt: skip
        label.update("  ".join(last), layout=False)

    def _complete(self) -> None:
        candidates = self._candidates()
        if not candidates:
            return
        common = _common_start(candidates)
        whole = candidates[0] if len(candidates) == 1 else common
        if len(whole) <= len(self.line.value):
            whole = candidates[0]
        self.line.value = whole + (" " if len(candidates) == 1 else "")
        self.line.cursor_position = len(self.line.value)

    def _recall(self, step: int) -> None:
        if self._sign != ":" or not self._history:
            return
        self._at = max(0, min(len(self._history), self._at + step))
        self.line.value = self._history[-self._at] if self._at else ""
        self.line.cursor_position = len(self.line.value)


def _common_start(texts: list[str]) -> str:
    first, last = min(texts), max(texts)
    for i, char in enumerate(first):
        if i >= len(last) or last[i] != char:
            return first[:i]
    return first
