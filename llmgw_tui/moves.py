"""Actions that move about on the screen or open a dialog: one method each, named after its id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol, cast

import msgspec

from llmgw_tui.action_table import BY_ID, VIEWS
from llmgw_tui.actions import Kind
from llmgw_tui.mirror_moves import Given, MirrorMoves, Targets
from llmgw_tui.model_moves import ModelMoves
from llmgw_tui.orders import Outcome
from llmgw_tui.outside import page, write_new
from llmgw_tui.rows import words
from llmgw_tui.screens.frame import FramedScreen
from llmgw_tui.state import Phase, model_named, node_named, replica_named, version_named

LOG_ACTIONS = frozenset({
    "log-follow", "log-wrap", "log-next", "log-before", "log-mark", "log-clear", "log-copy",
})  # fmt: skip


class Handler(Protocol):
    """Carries out one action."""

    def __call__(self, targets: Targets, given: Given) -> None:
        """Do it to the targets, with the options that were typed."""
        ...


class Moves(MirrorMoves, ModelMoves):
    """``handler`` finds the method of an action that is not a plain engine command."""

    def handler(self, action_id: str) -> Handler | None:
        """The method, or None where the action is an engine command."""
        if action_id.startswith("view-"):
            name = action_id.removeprefix("view-")
            return lambda targets, given: self.go(name)
        if action_id in LOG_ACTIONS:
            return lambda targets, given: self._in_log(action_id)
        return cast("Handler | None", getattr(self, f"do_{action_id.replace('-', '_')}", None))

    # views

    def go(self, view: str) -> None:
        """Show a view; cards on top are closed."""
        app = self._app
        if view not in VIEWS:
            return
        while len(app.screen_stack) > 1 and isinstance(app.screen, FramedScreen):
            app.pop_screen()
        app.call_later(app.main.show_view, view)

    def open_card(self, kind: Kind, id_: str) -> None:
        """Everything known about one thing."""
        from llmgw_tui.screens.card import CardScreen

        top = self._app.screen
        if isinstance(top, CardScreen) and (top.kind, top.object_id) == (kind, id_):
            return
        self._app.push_screen(CardScreen(kind, id_))

    def do_open(self, targets: Targets, given: Given) -> None:
        """The card of the row under the cursor."""
        selection = self._app.selection()
        if selection is not None and selection.cursor is not None:
            self.open_card(selection.kind, selection.cursor)

    do_describe = do_open

    def do_last_view(self, targets: Targets, given: Given) -> None:
        """The view before this one."""
        self.go(self._app.main.last_view)

    def do_show_node(self, targets: Targets, given: Given) -> None:
        """To the node of a replica."""
        replica = replica_named(self._app.shown, targets[0])
        if replica is None or not replica.nodes:
            self._app.say("It has no node yet", severity="warning")
            return
        self.go("nodes")
        self._app.call_later(self._app.main.point_at, replica.nodes[0])

    def do_logs(self, targets: Targets, given: Given) -> None:
        """The log of a replica."""
        self._logs(targets, previous=False)

    def do_previous_logs(self, targets: Targets, given: Given) -> None:
        """The log of a replica's run before this."""
        self._logs(targets, previous=True)

    def _logs(self, targets: Targets, *, previous: bool) -> None:
        self.go("logs")
        if targets:
            self._app.call_later(self._app.main.follow, targets[0], previous=previous)

    def _in_log(self, action_id: str) -> None:
        main = self._app.main
        if main.view_name != "logs":
            self._app.say("That works on a log: 6 shows one", severity="warning")
        else:
            main.logs.do(action_id)

    def do_log_highlight(self, targets: Targets, given: Given) -> None:
        """The line for a text that is to stand out."""
        if self._app.main.view_name == "logs" and self._app.screen is self._app.main:
            self._app.main.open_prompt("find", self._app.main.logs.pane.highlight_text)

    def do_log_pager(self, targets: Targets, given: Given) -> None:
        """Read the log in a pager."""
        if self._app.main.view_name == "logs":
            text = self._app.main.logs.pane.text()
            self._app.run_worker(page(self._app, text), exit_on_error=False, group="pager")

    # the screen

    def do_command(self, targets: Targets, given: Given) -> None:
        """The line for commands."""
        if isinstance(screen := self._app.screen, FramedScreen):
            screen.open_prompt(":")

    def do_filter(self, targets: Targets, given: Given) -> None:
        """The line for filters."""
        if isinstance(screen := self._app.screen, FramedScreen):
            screen.open_prompt("/", screen.filtered_by())

    def do_help(self, targets: Targets, given: Given) -> None:
        """Keys and commands."""
        from llmgw_tui.screens.help import HelpScreen

        self._app.push_screen(HelpScreen(self._app.scope()))

    def do_palette(self, targets: Targets, given: Given) -> None:
        """Find anything."""
        self._app.open_palette()

    def do_back(self, targets: Targets, given: Given) -> None:
        """One step back."""
        app = self._app
        if isinstance(screen := app.screen, FramedScreen) and screen.step_back():
            return
        if len(app.screen_stack) > 1:
            app.pop_screen()

    def do_leave(self, targets: Targets, given: Given) -> None:
        """Back, or quit where there is nothing to go back to."""
        if len(self._app.screen_stack) > 1:
            self._app.pop_screen()
        else:
            self.do_quit(targets, given)

    def do_pause(self, targets: Targets, given: Given) -> None:
        """Freeze what is shown, or let it go."""
        self._app.pause()

    def do_refresh(self, targets: Targets, given: Given) -> None:
        """Newest state, everything painted."""
        self._app.run_worker(self._app.refresh_all(), exit_on_error=False, group="refresh",
                             exclusive=True)  # fmt: skip

    def do_maximize(self, targets: Targets, given: Given) -> None:
        """The focused pane alone, or all again."""
        screen = self._app.screen
        if screen.maximized is not None:
            screen.minimize()
        elif screen.focused is not None:
            screen.maximize(screen.focused)

    def do_header(self, targets: Targets, given: Given) -> None:
        """Show or hide the top line."""
        bar = self._app.screen.query("#header").first()
        bar.display = not bar.display

    def do_fold_metrics(self, targets: Targets, given: Given) -> None:
        """Show or hide the numbers."""
        self._app.main.fold("metrics")

    def do_fold_events(self, targets: Targets, given: Given) -> None:
        """Show or hide the events."""
        self._app.main.fold("ticker")

    def do_theme(self, targets: Targets, given: Given) -> None:
        """Take the colours that were named, or let a person pick."""
        self._app.pick_theme(str(given["theme"]) if "theme" in given else None)

    def do_history(self, targets: Targets, given: Given) -> None:
        """What was done in this session."""
        from llmgw_tui.screens.confirm import TextDialog

        lines = [
            f"{words.clock(done.at)}  {'done  ' if done.ok else 'failed'}  {done.spelled}\n"
            f"                  {done.text}"
            for done in reversed(self._app.orders.done)
        ]
        self._app.push_screen(TextDialog("Done in this session", lines or ["Nothing yet."]))

    def do_faults(self, targets: Targets, given: Given) -> None:
        """Only what needs attention, or all again."""
        self._app.main.toggle("faults")

    def do_wide(self, targets: Targets, given: Given) -> None:
        """More columns, or fewer."""
        self._app.main.toggle("wide")

    # dialogs

    def do_scale(self, targets: Targets, given: Given) -> None:
        """How a model runs."""
        from llmgw_tui.screens.scale import ScaleDialog

        app = self._app
        model = model_named(app.link.snapshot, targets[0])
        if model is None:
            app.say(f"{targets[0]} is not in the catalog", severity="warning")
            return

        def scaled(outcome: Outcome | None) -> None:
            if outcome is not None:
                app.say(outcome.text)

        app.push_screen(ScaleDialog(model, app.orders), scaled)

    def do_trust(self, targets: Targets, given: Given) -> None:
        """Accept a host key, where one waits for it."""
        from llmgw_tui.screens.trust import TrustDialog

        app = self._app
        node = node_named(app.link.snapshot, targets[0])
        if node is None or node.state != "refused" or node.fingerprint is None:
            app.say(f"{targets[0]}: no host key waits for a decision", severity="warning")
            return

        def accepted(fingerprint: str | None) -> None:
            if fingerprint is not None:
                app.verbs.order(BY_ID["trust"], targets, {"fingerprint": fingerprint})

        app.push_screen(TrustDialog(node), accepted)

    def do_quit(self, targets: Targets, given: Given) -> None:
        """Leave, after asking what becomes of serving where this console runs the controller."""
        from llmgw_tui.screens.quit import QuitDialog

        app = self._app
        if isinstance(app.screen, QuitDialog):
            return
        if app.link.phase is not Phase.LIVE:
            app.exit(0)
        elif app.link.where != "here":
            app.leave(f"Left the console; {app.link.where} goes on serving.")
        else:
            dialog = QuitDialog(app.link, app.orders, read_only=app.read_only)
            app.push_screen(dialog, app.leave)

    # taking away

    def do_copy_id(self, targets: Targets, given: Given) -> None:
        """Names to the clipboard."""
        selection = self._app.selection()
        if selection is not None:
            ids = selection.marked or ((selection.cursor,) if selection.cursor else ())
            self._app.copy("\n".join(ids))

    def do_copy_row(self, targets: Targets, given: Given) -> None:
        """The row as JSON to the clipboard."""
        selection = self._app.selection()
        snapshot = self._app.shown
        if selection is None or selection.cursor is None or snapshot is None:
            return
        find = {
            Kind.NODE: node_named, Kind.REPLICA: replica_named, Kind.MODEL: model_named,
            Kind.VERSION: version_named,
        }  # fmt: skip
        row = find[selection.kind](snapshot, selection.cursor)
        if row is not None:
            self._app.copy(json.dumps(msgspec.to_builtins(row), indent=2, ensure_ascii=False))

    def do_save(self, targets: Targets, given: Given) -> None:
        """What is shown, to a file."""
        app, view = self._app, self._app.main.view_name
        if view == "logs":
            text, what = app.main.logs.pane.text(), "log"
        else:
            rows = [msgspec.to_builtins(row) for row in app.main.shown_rows()]
            text = json.dumps(rows, indent=2, ensure_ascii=False) if rows else ""
            what = f"{len(rows)} rows"
        if not text:
            app.say("There is nothing to save here", severity="warning")
            return
        stamp = words.clock(app.now()).replace(":", "")
        path = Path.cwd() / f"llmgw-{view}-{stamp}.{'log' if view == 'logs' else 'json'}"
        try:
            write_new(path, text + "\n")
        except OSError as error:
            app.say(f"{path.name} could not be written: {error.strerror}", severity="error")
            return
        app.say(f"Saved {what} as {path.name}")
