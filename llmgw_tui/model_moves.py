"""Actions on models that open a dialog: serving, editing, class, owner, resources, removal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from llmgw_core.api.views import ModelView
from llmgw_tui.action_table import BY_ID
from llmgw_tui.mirror_moves import Given, Targets
from llmgw_tui.orders import Outcome
from llmgw_tui.state import model_named

if TYPE_CHECKING:
    from llmgw_tui.app import ConsoleApp


class ModelMoves:
    """One method for each, named after the action's id."""

    _app: ConsoleApp

    def do_serve(self, targets: Targets, given: Given) -> None:
        """The serve dialog of a source; without one, asks for it."""
        from llmgw_tui.screens.serve import SourceDialog

        source = str(given.get("source", "")).strip()
        if source:
            self.serve(source)
        else:
            self._app.push_screen(SourceDialog(), self.serve)

    def serve(self, source: str | None) -> None:
        """The serve dialog of a source; None is a person who gave up."""
        from llmgw_tui.screens.serve import ServeDialog

        if source:
            self._app.push_screen(ServeDialog(source), self._done)

    def _done(self, outcome: Outcome | None) -> None:
        if outcome is not None:
            self._app.say(outcome.text)

    def do_serve_go(self, targets: Targets, given: Given) -> None:
        """The dialog's button."""
        from llmgw_tui.screens.plan_dialog import PlanDialog

        if isinstance(screen := self._app.screen, PlanDialog):
            screen.go()
        else:
            self._app.say("That works in the serve dialog: n opens it", severity="warning")

    def do_serve_toml(self, targets: Targets, given: Given) -> None:
        """The dialog's entry as text."""
        from llmgw_tui.screens.plan_dialog import PlanDialog

        if isinstance(screen := self._app.screen, PlanDialog):
            screen.show_toml()
        else:
            self._app.say("That works in the serve dialog: n opens it", severity="warning")

    # models that were added

    def do_edit(self, targets: Targets, given: Given) -> None:
        """The serve dialog, filled from the entry."""
        from llmgw_tui.editing import hidden_in

        model = self._added(targets[0])
        if model is None:
            return
        hidden = hidden_in(model)
        if hidden or not model.profiles:
            what = f"hides {', '.join(hidden)}" if hidden else "has no profile"
            self._app.say(
                f"{model.name} {what}, which the dialog could not keep: write the entry to a file "
                f"and type in a shell: llmgw run edit {model.name} FILE",
                severity="warning",
            )
            return
        from llmgw_tui.screens.edit import EditDialog

        self._app.push_screen(EditDialog(model), self._done)

    def do_class(self, targets: Targets, given: Given) -> None:
        """Another class."""
        from llmgw_tui.screens.model_fields import WordDialog

        if (model := self._added(targets[0])) is not None:
            known = sorted({other.model_class for other in self._models()})
            dialog = WordDialog(
                model, self._app.orders, field="class", now=model.model_class, known=known
            )
            self._app.push_screen(dialog, self._done)

    def do_owner(self, targets: Targets, given: Given) -> None:
        """Another owner."""
        from llmgw_tui.screens.model_fields import WordDialog

        if (model := self._added(targets[0])) is not None:
            known = sorted({other.owner for other in self._models() if other.owner})
            dialog = WordDialog(
                model, self._app.orders, field="owner", now=model.owner or "", known=known
            )
            self._app.push_screen(dialog, self._done)

    def do_resources(self, targets: Targets, given: Given) -> None:
        """Other amounts that a replica reserves."""
        from llmgw_tui.screens.model_fields import ResourcesDialog

        model = self._added(targets[0])
        if model is not None and model.profiles:
            self._app.push_screen(ResourcesDialog(model, self._app.orders), self._done)

    def do_remove(self, targets: Targets, given: Given) -> None:
        """Out of the catalog, after saying what ends with it."""
        models = [model for name in targets if (model := self._added(name)) is not None]
        if not models or len(models) < len(targets):
            return
        count = sum(model.replicas.total for model in models)
        ends = "No replica runs" if count == 0 else (
            "Its replica ends" if count == 1 else f"{count} replicas end"
        ) + " once they have answered" * (count > 1)  # fmt: skip
        whom = "It leaves" if len(models) == 1 else "They leave"
        confirm = f"{whom} the catalog. {ends}; requests for it are then refused. Weights stay."
        action = replace(BY_ID["remove"], confirm=confirm)
        self._app.verbs.order(action, [model.name for model in models], {})

    def _models(self) -> tuple[ModelView, ...]:
        snapshot = self._app.link.snapshot
        return snapshot.models if snapshot is not None else ()

    def _added(self, name: str) -> ModelView | None:
        """A model that may be changed here; else says why not."""
        model = model_named(self._app.link.snapshot, name)
        if model is None:
            self._app.say(f"{name} is not in the catalog", severity="warning")
        elif model.declared:
            self._app.say(
                f"{name} is declared in the configuration: change it there, then :reload",
                severity="warning",
            )
            return None
        return model
