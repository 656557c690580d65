"""Actions about the mirror that are more than one command: one method each, named after its id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from llmgw_core.api.views import Command
from llmgw_tui.action_table import BY_ID
from llmgw_tui.actions import version_arguments
from llmgw_tui.orders import Outcome
from llmgw_tui.state import version_named

if TYPE_CHECKING:
    from llmgw_tui.app import ConsoleApp

Given = Mapping[str, object]
Targets = tuple[str, ...]


class MirrorMoves:
    """The part of ``Moves`` that is about the mirror."""

    def __init__(self, app: ConsoleApp) -> None:
        self._app = app

    def do_mirror_pull(self, targets: Targets, given: Given) -> None:
        """Pull what was typed, or ask."""
        from llmgw_tui.screens.pull import PullDialog, pull_command

        app = self._app
        if "source" in given:
            app.orders.give([pull_command(given)], app.tell)
        else:
            app.push_screen(PullDialog(app.orders, app.tell))

    def do_mirror_resume(self, targets: Targets, given: Given) -> None:
        """Pull the same files under the same name."""
        app = self._app
        found = [version_named(app.link.snapshot, key) for key in targets]
        commands = [
            Command("mirror.pull",
                    {"source": v.source, "model": v.model, "version": v.version})
            for v in found if v is not None and v.source and v.state not in {"done", "pulling"}
        ]  # fmt: skip
        if commands:
            app.orders.give(commands, lambda all_: app.verbs.told(BY_ID["mirror-resume"], all_))
        else:
            app.say("Nothing to go on with: no pull of it ended early", severity="warning")

    def do_mirror_verify(self, targets: Targets, given: Given) -> None:
        """Have the versions read; what is not as it was stored is an error."""
        app, action = self._app, BY_ID["mirror-verify"]

        def told(outcomes: list[Outcome]) -> None:
            app.verbs.told(action, [verified(outcome) for outcome in outcomes])

        commands = [Command("mirror.verify", dict(version_arguments(key))) for key in targets]
        app.say(f"Reading {', '.join(targets)} again; this can take minutes")
        app.orders.give(commands, told)

    def do_mirror_clean(self, targets: Targets, given: Given) -> None:
        """Show what would go, and ask."""
        from llmgw_tui.screens.clean import CleanDialog, waste_of

        app = self._app

        def answered(yes: bool | None) -> None:
            if yes:
                app.orders.give([Command("mirror.clean", {"dry_run": False})], app.tell)

        def looked(outcomes: list[Outcome]) -> None:
            waste = waste_of(outcomes[0].data)
            if not outcomes[0].ok or not waste:
                app.tell(outcomes)
            elif app.is_running:
                app.push_screen(CleanDialog(waste), answered)

        app.orders.give([Command("mirror.clean", {"dry_run": True})], looked)

    def do_mirror_serve(self, targets: Targets, given: Given) -> None:
        """Open the serve dialog on the version."""
        self._app.verbs.perform(BY_ID["serve"], (), {"source": targets[0]})


def verified(outcome: Outcome) -> Outcome:
    """An answered verification, failed where it found something."""
    from dataclasses import replace

    data = outcome.data
    damaged = isinstance(data, Mapping) and data.get("ok") is False
    return replace(outcome, ok=False) if damaged else outcome
