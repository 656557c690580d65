"""Editing an added model: the serve dialog, filled from its entry."""

from __future__ import annotations

from dataclasses import asdict

from llmgw_core.api.views import Command, ModelView
from llmgw_core.serve.form import ServeForm, problems
from llmgw_tui.editing import edited, edited_toml, form_of, model_of
from llmgw_tui.planning import Question
from llmgw_tui.screens.plan_dialog import PlanDialog, shown_form
from llmgw_tui.text import clean


class EditDialog(PlanDialog):
    """What the form does not have stays as it is; the estimate is advice, and is not waited for."""

    verb = "Save"
    fixed = frozenset({"name"})
    AUTO_FOCUS = "#field-aliases Input"

    def __init__(self, view: ModelView) -> None:
        self._model = model_of(view)
        self._before = form_of(self._model)
        self._replicas = view.replicas.total
        super().__init__(view.source, shown_form(self._before), f"Edit {clean(view.name)}")
        self.typed = asdict(self._before)
        self._shown = shown_form(self._before)

    def question(self) -> Question:
        """About the source that stands in the field now."""
        fields = {name: text for name, text in self.typed.items() if name != "source"}
        return Question(self.source, fields)

    def edited(self, name: str, value: str) -> None:
        """Everything counts as typed; what is as it was shown is as it was."""
        old = str(getattr(self._before, name))
        self.typed[name] = old if value == self._shown[name] else value
        self.planner.ask(self.question())

    def needs_plan(self) -> bool:
        """What an entry says may be saved while the engine is away from its weights."""
        return False

    def refusal(self) -> str:
        """The engine checks the entry itself: what the plan refuses is a warning here."""
        return ""

    def warning(self) -> str:
        """What the plan refuses, and what would keep it from running."""
        said = [self.view.refusal, self.view.warning] if self.view is not None else []
        return ", and ".join(text for text in said if text)

    def consequence(self) -> str:
        """What becomes of the replicas."""
        if self.wrong() or self.now() == self._before:
            return "Nothing is changed yet."
        new, old = edited(self._model, self._before, self.now()), self._model
        if new.profiles[0].revision(new.source) == old.profiles[0].revision(old.source):
            return "Counts at once; no replica is started anew for it."
        total = self._replicas
        if not total:
            return "Counts from the next replica on."
        which = "Its replica is" if total == 1 else f"Its {total} replicas are"
        return f"{which} replaced, one by one as their successors become ready."

    def on_descendant_blur(self) -> None:
        """Another source is looked at when its field is left."""
        source = self.typed["source"].strip()
        if source and source != self.source:
            self.source, self.view, self._answered = source, None, None
            self.look()

    def now(self) -> ServeForm:
        """The form as it would be saved."""
        return ServeForm(**self.typed)

    def wrong(self) -> dict[str, str]:
        """What is wrong, by field."""
        return problems(self.now())

    def toml(self) -> str:
        """The whole entry."""
        return edited_toml(self._model, self._before, self.now())

    def command(self) -> Command:
        """Put it in place of the old one."""
        return Command("edit", {"name": self._model.name, "toml": self.toml()})
