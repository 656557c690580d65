"""The application: it wires the link to the engine, the screens and the verbs, and nothing else."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import ClassVar, Literal

from textual import events
from textual.app import App
from textual.binding import BindingType

from llmgw_core.api.views import Command, EventView, Snapshot
from llmgw_core.errors import LlmgwError
from llmgw_tui.action_table import ACTIONS, BY_ID
from llmgw_tui.actions import Action, Scope, allowed, effective_keys, keymap_faults
from llmgw_tui.bindings import bindings_for
from llmgw_tui.clipboard import MOST_BYTES, send
from llmgw_tui.command_line import complete
from llmgw_tui.launch import LaunchOptions, release_collector
from llmgw_tui.looks import Looks
from llmgw_tui.orders import Orders, Outcome
from llmgw_tui.paint import clean_lines
from llmgw_tui.rows.header import Piece, Standing, header
from llmgw_tui.screens.frame import FramedScreen
from llmgw_tui.screens.main import MainScreen
from llmgw_tui.state import EngineLink, Phase
from llmgw_tui.targets import Selection
from llmgw_tui.themes import status_variable_defaults
from llmgw_tui.typing_ahead import KeysInOrder
from llmgw_tui.verbs import Verbs

log = logging.getLogger(__name__)

APPLY_EVERY_S = 0.2
CLOCK_EVERY_S = 1.0
TOAST_S = 4.0
ERROR_TOAST_S = 10.0
HANDOVER_WITHIN_S = 10.0


class ConsoleApp(App[int]):
    """The console. It holds no truth but cursor, marks, filters and what is frozen by a pause."""

    TITLE = "llmgw"
    CSS_PATH: ClassVar[list[str | PurePath]] = ["app.tcss", "screens/main.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = bindings_for(Scope.ANY)
    ENABLE_COMMAND_PALETTE = False  # the palette is opened by an action of the table
    NOTIFICATION_TIMEOUT = TOAST_S

    def __init__(self, options: LaunchOptions, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self.options = options
        self.ascii = options.ascii
        self.read_only = options.read_only
        self.now = clock
        self.link = EngineLink(options.connect)
        self.orders = Orders(lambda: self.link.client, clock, read_only=options.read_only)
        self.verbs = Verbs(self)
        self.looks = Looks(self, options.theme, options.console_theme_dirs)
        self.looks.first()
        self.keys_typed = KeysInOrder(self, self._deliver, time.monotonic)
        self.going_on = asyncio.Event()
        """Set unless the screen is paused."""
        self.going_on.set()
        self.farewell = ""
        """A sentence left behind on the terminal."""
        self._frozen: Snapshot | None = None
        self._frozen_events: tuple[EventView, ...] = ()
        self._link_task: asyncio.Task[None] | None = None
        self.keys_of = effective_keys(ACTIONS, options.keys)

    # life

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our own variables, for themes that do not set them."""
        return status_variable_defaults()

    def get_default_screen(self) -> MainScreen:
        """The one that is always there."""
        return MainScreen()

    @property
    def main(self) -> MainScreen:
        """The screen under all others."""
        screen = self.screen_stack[0]
        assert isinstance(screen, MainScreen)  # noqa: S101 - get_default_screen made it
        return screen

    def on_mount(self) -> None:
        """Keys first; what else a person has set, and the engine, only after the first paint."""
        self.set_keymap(dict(self.options.keys))
        self.set_class(self.ascii, "-ascii")
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        release_collector()
        faults = [*self.looks.load(), *keymap_faults(ACTIONS, self.options.keys)]
        if faults:
            self.say("\n".join(faults), severity="warning")
        self._link_task = asyncio.create_task(self._run_link(), name="console link")
        self.set_interval(APPLY_EVERY_S, self._apply_new)
        self.set_interval(CLOCK_EVERY_S, self._tick)

    async def _run_link(self) -> None:
        """The boundary of the task that reads from the engine."""
        try:
            await self.link.run()
        except LlmgwError as error:
            self._could_not_start(error)
        except Exception as error:  # a fault of ours must be seen, and must not freeze the screen
            log.exception("reading from the engine failed")
            self._could_not_start(LlmgwError(f"The console failed: {error!r}", hint="see the log"))

    def _could_not_start(self, error: LlmgwError) -> None:
        from llmgw_tui.screens.confirm import TextDialog

        dialog = TextDialog("The engine could not be reached", [str(error)], classes="bad")
        self.push_screen(dialog, lambda _: self.exit(error.exit_code))

    async def end(self) -> None:
        """Give up everything that this console owns; called once, after it was left."""
        await self.orders.close()
        if self._link_task is not None:
            self._link_task.cancel()
            await asyncio.gather(self._link_task, return_exceptions=True)
        await self.link.close()

    def leave(self, farewell: str | None) -> None:
        """End, leaving a sentence on the terminal; None stays."""
        if farewell is not None:
            self.farewell = farewell
            self.exit(0)

    # what is shown

    @property
    def paused(self) -> bool:
        """Whether the screen is frozen."""
        return not self.going_on.is_set()

    @property
    def shown(self) -> Snapshot | None:
        """The snapshot on the screen: the newest, or the one that a pause holds."""
        return self._frozen if self.paused else self.link.snapshot

    @property
    def shown_events(self) -> Sequence[EventView]:
        """Events for the screen, newest first."""
        return self._frozen_events if self.paused else tuple(reversed(self.link.events))

    def _apply_new(self) -> None:
        if self.link.dirty and not self.paused:
            self.link.dirty = False
            self.apply()

    def _tick(self) -> None:
        """Ages and clocks move even when nothing else does."""
        if not self.paused and self.link.phase is Phase.LIVE:
            self.apply()
        elif self.is_running and isinstance(screen := self.screen, FramedScreen):
            screen.update_bars()

    def apply(self) -> None:
        """Bring what is seen up to date."""
        if not self.is_running:  # a timer may come once more while the widgets are taken away
            return
        for screen in (self.screen, self.main):
            if isinstance(screen, FramedScreen) and screen.is_mounted:
                screen.apply()
                screen.update_bars()
            if screen is self.main:
                break

    def pause(self) -> None:
        """Freeze what is shown, or show the newest again."""
        frozen, frozen_events = self.link.snapshot, self.shown_events
        if self.paused:
            self.going_on.set()
        else:
            self.going_on.clear()
        self._frozen = frozen if self.paused else None
        self._frozen_events = tuple(frozen_events) if self.paused else ()
        self.apply()

    async def refresh_all(self) -> None:
        """Ask for the newest state and paint everything."""
        try:
            await self.link.newest()
        except LlmgwError as error:
            self.say(str(error), severity="error")
        self.apply()
        self.screen.refresh(layout=True)

    def header(self) -> list[Piece]:
        """What the line at the top says."""
        standing = Standing(
            self.options.cluster, self.link.phase, self.link.where, paused=self.paused,
            read_only=self.read_only, lost_because=self.link.lost_because, ascii=self.ascii,
        )  # fmt: skip
        return header(standing, self.shown, self.now())

    def scope(self) -> Scope | None:
        """Which keys work on the top screen besides those that work anywhere."""
        screen = self.screen
        return screen.scope() if isinstance(screen, FramedScreen) else None

    def selection(self) -> Selection | None:
        """What verbs act on."""
        screen = self.screen
        return screen.selection() if isinstance(screen, FramedScreen) else None

    def bar_actions(self, scope: Scope | None) -> list[tuple[Action, str]]:
        """Actions for the line at the bottom, with their keys: this place's first."""
        here = [a for a in ACTIONS if a.shown and scope in a.scopes]
        here.sort(key=lambda action: len(action.scopes))  # what only this place has comes first
        anywhere = [a for a in ACTIONS if a.shown and Scope.ANY in a.scopes]
        return [
            (action, self.keys_of[action.id][0])
            for action in (*anywhere, *here)
            if allowed(action, read_only=self.read_only) and self.keys_of[action.id]
        ]

    def complete(self, line: str) -> list[str]:
        """Completions for the ``:`` line."""
        return complete(line, self.shown, self.available_themes)

    # acting

    async def on_event(self, event: events.Event) -> None:
        """Keys from the terminal go one after the other; all else as Textual has it."""
        if isinstance(event, events.Key) and not event.is_forwarded:
            await self.keys_typed.take(event)
        else:
            await super().on_event(event)

    async def _deliver(self, key: events.Key) -> None:
        await super().on_event(key)

    def action_act(self, action_id: str) -> None:
        """A key was pressed."""
        self.act(action_id)

    def act(self, action_id: str) -> None:
        """Do an action of the table to what is selected."""
        self.verbs.perform(BY_ID[action_id])

    async def action_quit(self) -> None:
        """Textual's own way out asks too."""
        self.act("quit")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In read-only mode what changes something is not there."""
        if action == "act" and parameters and isinstance(parameters[0], str):
            return allowed(BY_ID[parameters[0]], read_only=self.read_only)
        return True

    def say(
        self, text: str, *, severity: Literal["information", "warning", "error"] = "information"
    ) -> None:
        """A toast, as plain text."""
        timeout = TOAST_S if severity == "information" else ERROR_TOAST_S
        self.notify(clean_lines(text), severity=severity, timeout=timeout, markup=False)

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        """What came of commands, each as a toast."""
        for outcome in outcomes if self.is_running else ():
            self.say(outcome.text, severity="information" if outcome.ok else "error")

    def open_palette(self) -> None:
        """Find anything that can be done."""
        from textual.command import CommandPalette

        from llmgw_tui.palette import ActionProvider

        if not isinstance(self.screen, CommandPalette):
            self.push_screen(CommandPalette([ActionProvider], placeholder="What shall be done?"))

    def pick_theme(self, name: str | None) -> None:
        """Change the colours, or let a person pick with a preview."""
        self.looks.pick(name)

    def copy(self, text: str) -> None:
        """Send text to the terminal's clipboard, which may or may not take it."""
        if not text:
            return
        size = len(text.encode())
        if size > MOST_BYTES:
            self.say(f"{size} bytes are too many for a terminal's clipboard", severity="warning")
            return
        send(self, text)
        lines = text.count("\n") + 1
        self.say("Sent to the terminal's clipboard" + (f": {lines} lines" if lines > 1 else ""))


async def _run(options: LaunchOptions) -> tuple[int, str]:
    app = ConsoleApp(options)
    loop = asyncio.get_running_loop()
    ended_by: list[int] = []

    def end(number: int) -> None:
        ended_by.append(number)
        app.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, end, number)
    watch = asyncio.create_task(_leave_with_engine(app), name="console engine")
    try:
        code = await app.run_async(mouse=options.mouse)
        if signal.SIGHUP in ended_by:
            await _hand_over(app)
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await app.end()
    return code if code is not None else app.return_code or 0, app.farewell


async def _leave_with_engine(app: ConsoleApp) -> None:
    """Close the console when the engine in this process has been ended, by whomever."""
    if app.options.ended is None:
        return
    sentence = await app.options.ended()
    app.farewell = app.farewell or sentence
    app.exit(0)


async def _hand_over(app: ConsoleApp) -> None:
    """The terminal has gone: a daemon takes over what this console ran."""
    client = app.link.client
    if client is None or client.where != "here" or app.read_only:
        return
    try:
        async with asyncio.timeout(HANDOVER_WITHIN_S):
            await client.command(Command("handover"))
    except (LlmgwError, TimeoutError):
        log.exception("handing over after the terminal went away failed")


def run(options: LaunchOptions) -> int:
    """Run the console in an event loop of its own; returns the exit code."""
    code, farewell = asyncio.run(_run(options))
    if farewell:
        sys.stdout.write(farewell + "\n")
    return code
