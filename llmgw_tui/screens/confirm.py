"""Asking before something is done, and showing what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from textual.widget import Widget
from textual.widgets import Button, Input, Static

from llmgw_tui.actions import Action
from llmgw_tui.orders import Outcome
from llmgw_tui.paint import clean_lines
from llmgw_tui.screens.dialog import Dialog, plain
from llmgw_tui.text import clean

NAMES_SHOWN = 12
TYPED_ABOVE = 5
"""With more targets than this the verb has to be typed."""


def counted(count: int, noun: str) -> str:
    """``1 node``, ``3 nodes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class ConfirmDialog(Dialog[bool]):
    """Lists exactly what an action would be done to; the list does not change any more."""

    AUTO_FOCUS: ClassVar[str | None] = "#cancel"

    def __init__(
        self,
        action: Action,
        targets: Sequence[str],
        notes: Mapping[str, str] | None = None,
        foreseen: Callable[[], Awaitable[list[str]]] | None = None,
    ) -> None:
        super().__init__()
        self._action = action
        self._foreseen = foreseen
        self._notes = notes or {}
        self.targets = tuple(targets)
        noun = action.target or "thing"
        what = (
            clean(self.targets[0]) if len(self.targets) == 1 else counted(len(self.targets), noun)
        )
        self._verb = action.spellings[-1].split()[-1]
        self.heading = f"{self._verb.capitalize()} {what}?"

    def body(self) -> Iterable[Widget]:
        """The names, what will happen, and where it is many a word to type."""
        shown = self.targets[:NAMES_SHOWN]
        rest = len(self.targets) - len(shown)
        more = [f"  and {rest} more"] if rest else []
        names = [f"  {clean(name)}{self._noted(name)}" for name in shown]
        yield plain("\n".join([*names, *more]), classes="names")
        yield plain(self._action.confirm, classes="says")
        if self._foreseen is not None:
            told = plain("", classes="waste", id="foreseen")
            told.display = False
            yield told
        if self._needs_word:
            yield plain(f'These are many: type "{self._verb}" to go on.', classes="warns")
            yield Input(id="word", compact=True)

    def on_mount(self) -> None:
        """Ask what it would do; the dialog can be answered meanwhile."""
        if self._foreseen is not None:
            self.run_worker(self._tell(self._foreseen), exit_on_error=False)

    async def _tell(self, foreseen: Callable[[], Awaitable[list[str]]]) -> None:
        lines = await foreseen()
        if lines and self.is_attached:
            told = self.query_one("#foreseen", Static)
            told.update(clean_lines("\n".join(lines)))
            told.display = True

    def _noted(self, name: str) -> str:
        note = self._notes.get(name, "")
        return f"   {clean(note)}" if note else ""

    @property
    def _needs_word(self) -> bool:
        return len(self.targets) > TYPED_ABOVE

    def buttons(self) -> Iterable[Widget]:
        """Cancel has the focus."""
        yield Button("Cancel", id="cancel", compact=True)
        yield Button(
            self._verb.capitalize(), id="go", variant="error", compact=True,
            disabled=self._needs_word,
        )  # fmt: skip

    def on_input_changed(self, event: Input.Changed) -> None:
        """The button works once the word stands there."""
        self.query_one("#go", Button).disabled = event.value.strip() != self._verb

    def on_input_submitted(self) -> None:
        """Enter in the field moves on to the button; it does nothing by itself."""
        self.query_one("#go", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """The verb itself."""
        if event.button.id == "go":
            self.dismiss(True)


class ResultsDialog(Dialog[None]):
    """What came of an action on several things, one line each."""

    wide = True

    def __init__(self, title: str, outcomes: Sequence[Outcome], *, ascii_only: bool) -> None:
        super().__init__()
        done = sum(outcome.ok for outcome in outcomes)
        self.heading = f"{title}: {done} of {len(outcomes)} done"
        self._outcomes = outcomes
        self._good, self._bad = ("+", "x") if ascii_only else ("✔", "✖")

    def body(self) -> Iterable[Widget]:
        """Those that failed first."""
        for outcome in sorted(self._outcomes, key=lambda outcome: outcome.ok):
            mark = self._good if outcome.ok else self._bad
            yield plain(
                f"{mark} {clean(outcome.target)}  {clean(outcome.text)}",
                classes="good" if outcome.ok else "bad",
            )


class TextDialog(Dialog[None]):
    """Something to read."""

    wide = True

    def __init__(self, title: str, lines: Iterable[str], *, classes: str = "says") -> None:
        super().__init__()
        self.heading = title
        self._lines = tuple(lines)
        self._line_classes = classes

    def body(self) -> Iterable[Widget]:
        """The lines, as they are."""
        text: Static = plain(clean_lines("\n".join(self._lines)))
        text.add_class(self._line_classes)
        yield text
