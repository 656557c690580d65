"""Which theme is in force, and changing it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import App

from llmgw_tui.themes import DEFAULT, load_named, load_themes

if TYPE_CHECKING:
    from llmgw_tui.app import ConsoleApp

RELOAD = "reload"


class Looks:
    """The console's themes."""

    def __init__(self, app: ConsoleApp, wanted: str | None, folders: Sequence[Path]) -> None:
        self._app = app
        self._wanted = wanted
        self._folders = tuple(folders)
        self._ours: list[str] = []

    def first(self) -> None:
        """Take the theme wanted for the first paint, from its own file alone.

        Before the styles are read for the first time: to read them again costs a twentieth of
        all that is done until then.
        """
        wanted = load_named(self._wanted or DEFAULT, self._folders)
        if wanted is not None:
            self._app.register_theme(wanted.theme)
            self._app.set_reactive(App.theme, wanted.theme.name)
            self._app.stylesheet.set_variables(self._app.get_css_variables())

    def load(self) -> list[str]:
        """Load all themes and take the one wanted; sentences about those that are bad."""
        loaded, faults = load_themes(self._folders)
        for one in loaded:
            self._app.register_theme(one.theme)
        self._ours = [one.theme.name for one in loaded]
        wanted = self._wanted or DEFAULT
        if wanted in self._app.available_themes:
            self._app.theme = wanted
        elif self._wanted is not None:
            faults.append(f'There is no theme "{wanted}"; :theme lists them')
        return faults

    def reload(self) -> None:
        """Read all themes again and paint in what the one in force says now."""
        loaded, faults = load_themes(self._folders)
        for one in loaded:
            self._app.register_theme(one.theme)
        self._ours = [one.theme.name for one in loaded]
        self._app.refresh_css()  # to set the theme that is in force already changes nothing
        if faults:
            self._app.say("\n".join(faults), severity="warning")
        else:
            self._app.say(f"{len(loaded)} themes were read again")

    @property
    def names(self) -> list[str]:
        """All themes, ours first."""
        others = sorted(set(self._app.available_themes) - set(self._ours))
        return [*self._ours, *others]

    def take(self, name: str) -> bool:
        """Put a theme in force; says so where there is none of the name."""
        if name not in self._app.available_themes:
            self._app.say(f'There is no theme "{name}"; :theme lists them', severity="warning")
            return False
        self._app.theme = name
        return True

    def pick(self, name: str | None) -> None:
        """Take the named theme, or let a person pick, with each shown at once.

        ``reload`` is no theme: it reads the files again.
        """
        if name == RELOAD:
            self.reload()
            return
        if name is not None:
            self.take(name)
            return
        from llmgw_tui.screens.themes import ThemeDialog

        before = self._app.theme

        def picked(chosen: str | None) -> None:
            self._app.theme = chosen if chosen is not None else before

        self._app.push_screen(ThemeDialog(self.names, before), picked)
