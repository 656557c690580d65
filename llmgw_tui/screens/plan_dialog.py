"""The dialog over a serve plan: what serving and editing a model have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widget import Widget
from textual.widgets import Button, Static

from llmgw_core.api.serve_views import ServePlanView
from llmgw_core.api.views import Command
from llmgw_core.serve.form import ServeForm, problems
from llmgw_tui.actions import Scope, key_name
from llmgw_tui.bindings import bindings_for
from llmgw_tui.orders import Outcome
from llmgw_tui.planning import Answer, Planner, Question
from llmgw_tui.rows import serve as said
from llmgw_tui.screens.dialog import Dialog, escaped_title, plain
from llmgw_tui.screens.serve_field import FieldBox
from llmgw_tui.serve_fields import FIELDS, ROWS, choices
from llmgw_tui.text import clean

if TYPE_CHECKING:
    from llmgw_tui.app import ConsoleApp

PARTS_OF_VERDICT = ("refusal", "warning", "where", "message")


class PlanDialog(Dialog[Outcome]):
    """All fields of a model, what is known of them, and what will happen.

    It opens at once: what the engine says of the source comes later, and again while a person
    types. What was typed is never replaced. Subclasses say what becomes of the form.
    """

    CSS_PATH: ClassVar[list[str]] = ["dialog.tcss", "serve.tcss"]  # type: ignore[assignment]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-low"), (32, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_for(Scope.SERVE),
        # before the keys after them are given to a field: else fast typing lands in the wrong one
        Binding("tab,down", "app.focus_next", show=False, priority=True),
        Binding("shift+tab,up", "app.focus_previous", show=False, priority=True),
    ]
    AUTO_FOCUS: ClassVar[str | None] = "#field-name Input"
    app: ConsoleApp
    verb = "Serve"
    fixed: frozenset[str] = frozenset()
    """Fields that cannot be changed here."""

    def __init__(self, source: str, values: Mapping[str, str], heading: str) -> None:
        super().__init__()
        self.heading = heading
        self.source = source
        """What the engine is asked about."""
        self.typed: dict[str, str] = {}
        """What a person has changed."""
        self.view: ServePlanView | None = None
        """The newest plan."""
        self._first = dict(values)
        self._seen = {name: clean(values.get(name, "")) for name in FIELDS}
        """What each field held when it was looked at last."""
        self._answered: Question | None = None
        """What the newest plan answers."""
        self._error = ""
        self._message = ""
        self._wanted = False
        """Serve was pressed while the plan was not known yet."""
        self._waiting = False
        self._verdict: dict[str, tuple[str, str]] = {}
        self.planner = self._new_planner()

    # what subclasses say

    def question(self) -> Question:
        """What the engine is asked now."""
        return Question(self.source, dict(self.typed))

    def command(self) -> Command:
        """What the button does; called only when nothing is wrong."""
        raise NotImplementedError

    def toml(self) -> str:
        """The entry that the form means; empty where it is not known."""
        raise NotImplementedError

    def needs_plan(self) -> bool:
        """Whether the button waits for a plan of just this form."""
        return True

    def refusal(self) -> str:
        """Why it cannot be done at all."""
        return self.view.refusal if self.view is not None else ""

    def warning(self) -> str:
        """What would keep it from running today."""
        return self.view.warning if self.view is not None else ""

    def consequence(self) -> str:
        """What will happen."""
        return said.consequence(self.view.where) if self.view is not None else ""

    def wrong(self) -> dict[str, str]:
        """What is wrong, by field."""
        return problems(self.form()) if self.view is not None else {}

    # the parts

    def compose(self) -> ComposeResult:
        """Facts, fields that scroll, and what stands still under them."""
        with Vertical(id="dialog"):
            yield plain("", id="facts")
            with VerticalScroll(id="fields", can_focus=False):
                for row in ROWS:
                    with Horizontal(classes="pair"):
                        for field in row:
                            yield FieldBox(field, self._first.get(field.name, ""),
                                           fixed=field.name in self.fixed)  # fmt: skip
            with VerticalScroll(id="verdict", can_focus=False):
                for part in PARTS_OF_VERDICT:
                    yield plain("", id=part)
            yield plain("", id="help-line")
            with Horizontal(id="buttons"):
                yield from self.buttons()

    def buttons(self) -> Iterable[Widget]:
        """Cancel, the text, and the verb."""
        yield Button("Cancel", id="cancel", compact=True)
        yield Button("Show as TOML", id="toml", compact=True)
        yield Button(self.verb, id="go", variant="primary", compact=True)

    def on_mount(self) -> None:
        """Ask the engine; nothing here waits for it."""
        keys = self.app.keys_of
        hints = [(keys["serve-go"], self.verb.lower()), (keys["serve-toml"], "as TOML")]
        shown = [f"{key_name(own[0])} {word}" for own, word in hints if own]
        frame = self.query_one("#dialog")
        frame.border_subtitle = escaped_title("  ".join([*shown, "esc cancel"]))
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self._offer()
        self.look()

    def look(self) -> None:
        """Ask about the source from the start; what was asked before is given up."""
        self.planner = self._new_planner()
        self.run_worker(self.planner.run(), group="plan", exclusive=True, exit_on_error=False)
        self.planner.ask(self.question(), at_once=True)
        self.show_all()

    def _new_planner(self) -> Planner:
        return Planner(lambda: self.app.link.client, self._told)

    def box(self, name: str) -> FieldBox:
        """A field by its name."""
        return self.query_one(f"#field-{name}", FieldBox)

    def values(self) -> dict[str, str]:
        """What stands in all fields."""
        return {name: self.box(name).value for name in FIELDS}

    def form(self) -> ServeForm:
        """The form as it stands."""
        return ServeForm(**self.values())

    @property
    def known(self) -> bool:
        """Whether the plan shown is of just this form."""
        return self._answered is not None and self._answered == self.question()

    # what a person does

    @on(FieldBox.Edited)
    def _edited(self, event: FieldBox.Edited) -> None:
        event.stop()
        box = self.box(event.field)
        value = box.value
        box.being_typed = value != event.value
        if value == self._seen[event.field]:
            return  # caught up with before
        self._seen[event.field] = value
        self._wanted = False
        self._message = ""
        self.edited(event.field, value)
        self.show_all()

    def edited(self, name: str, value: str) -> None:
        """Remember it, unless it is just what the plan says, and estimate again."""
        if self.view is not None and value == clean(self.view.filled.get(name, "\0")):
            self.typed.pop(name, None)
        else:
            self.typed[name] = value
        self.planner.ask(self.question())

    @on(FieldBox.Left)
    def _left(self, event: FieldBox.Left) -> None:
        event.stop()
        self.screen.focus_next()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The line at the bottom explains the field that has the focus."""
        box = next((b for b in event.widget.ancestors if isinstance(b, FieldBox)), None)
        help_ = box.field.help if box is not None else ""
        self.query_one("#help-line", Static).update(help_)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """The two buttons besides Cancel."""
        if event.button.id == "go":
            self.go()
        elif event.button.id == "toml":
            self.show_toml()

    def show_toml(self) -> None:
        """The entry as a text that could stand in the configuration."""
        from llmgw_tui.screens.confirm import TextDialog

        text = "" if self.wrong() else self.toml()
        if not text:
            self._tell("There is no entry to show yet: " + self._why_not())
            return
        heading = f"{clean(self.form().name)} as it would stand in the configuration"
        self.app.push_screen(TextDialog(escaped_title(heading), text.splitlines(), classes="good"))

    def _why_not(self) -> str:
        return next(iter(self.wrong().values()), "") or self._error or "the engine is still looking"

    def go(self) -> None:
        """Do it, as soon as the plan of just this form is known."""
        if self._waiting:
            return
        self._catch_up()
        wrong = self.wrong()
        if wrong:
            self.box(next(iter(wrong))).query("Input, Pick").first().focus()
        elif self.needs_plan() and not self.known:
            self._wanted = self.view is not None  # what nobody has seen is not served
            self._error = ""
            self.planner.ask(self.question(), at_once=True)
            self.show_all()
        elif not self.refusal():
            self._waiting = True
            self._tell("Asking the engine…", bad=False)
            self.app.orders.give([self.command()], self._done)

    def _catch_up(self) -> None:
        """Take what was typed just before the key: its message may still be on the way."""
        for name in FIELDS:
            value = self.box(name).value
            if value != self._seen[name]:
                self._seen[name] = value
                self.edited(name, value)

    def _done(self, outcomes: list[Outcome]) -> None:
        self._waiting = False
        outcome = outcomes[0]
        if not self.is_attached:
            self.app.say(outcome.text, severity="information" if outcome.ok else "error")
        elif outcome.ok:
            self.dismiss(outcome)
        else:
            self._tell(outcome.text)

    # what the engine says

    def _told(self, answer: Answer) -> None:
        if not self.is_attached:
            return
        self._error = answer.error
        if answer.view is None:
            self._wanted = False
        else:
            self.view, self._answered = answer.view, answer.question
            before = len(self.typed)
            self.fill(answer.view)
            if len(self.typed) > before:
                self.planner.ask(self.question(), at_once=True)
        self.show_all()
        if self._wanted and self.known:
            self._wanted = False
            self.go()

    def fill(self, view: ServePlanView) -> None:
        """Put what the plan says into all fields that nobody has touched.

        A text that cannot be shown as it is counts as typed the way it is shown.
        """
        for name in FIELDS:
            if name in self.typed or name not in view.form or self.box(name).being_typed:
                continue
            text = self._seen[name] = clean(view.form[name])
            if FIELDS[name].picked:
                self.box(name).offer(choices(name, view, text), text)
            else:
                self.box(name).put(text)
            if text != view.form[name] and name != "source":
                self.typed[name] = text
        self._offer()

    def _offer(self) -> None:
        for name, field in FIELDS.items():
            if field.picked:
                now = self.box(name).value or self._first.get(name, "")
                self.box(name).offer(choices(name, self.view, now), now)

    # what is shown

    def show_all(self) -> None:
        """Facts, notes, problems and verdict as they are now."""
        wrong, values = self.wrong(), self.values()
        notes = said.notes(self.view, values) if self.view is not None else {}
        for name in FIELDS:
            self.box(name).say(notes.get(name, ""), wrong.get(name, ""))
        self.query_one("#facts", Static).update(clean(self._facts()), layout=False)
        self.query_one("#dialog").border_title = escaped_title(self.title_now())
        refusal = self.refusal()
        self._part("refusal", refusal or self._error, "bad", "✖")
        self._part("warning", self.warning(), "warns", "▲")
        where = self.consequence()
        self._part("where", "" if refusal or self._error else where, "says", "")
        self._part("message", self._message, "bad", "")
        self.query_one("#go", Button).disabled = bool(
            refusal or wrong or (self.needs_plan() and self.view is None)
        )

    def title_now(self) -> str:
        """What stands in the frame."""
        return self.heading

    def _facts(self) -> str:
        pending = not self.known and not self._error
        if self.view is None:
            return f"looking at {self.source}…" if pending else self.source
        return said.facts(self.view) + (" · estimating…" if pending else "")

    def _part(self, name: str, text: str, classes: str, glyph: str) -> None:
        if self._verdict.get(name) == (text, classes):
            return
        self._verdict[name] = (text, classes)
        part = self.query_one(f"#{name}", Static)
        sign = ("! " if self.app.ascii else f"{glyph} ") if glyph else ""
        part.update(f"{sign}{clean(text)}" if text else "")
        part.display = bool(text)
        part.set_classes(classes)

    def _tell(self, text: str, *, bad: bool = True) -> None:
        self._message = text
        self._part("message", text, "bad" if bad else "says", "")


def shown_form(form: ServeForm) -> dict[str, str]:
    """A form as its fields show it."""
    return {name: clean(str(text)) for name, text in asdict(form).items()}


Closed = Callable[[Outcome | None], None]
