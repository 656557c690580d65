"""Actions on models that open a dialog: serving, editing, class, owner, resources, removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmgw_tui.mirror_moves import Given, Targets
from llmgw_tui.orders import Outcome

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
