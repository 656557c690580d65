"""What ctrl+p finds: every action, every theme, every card."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from llmgw_tui.action_table import ACTIONS
from llmgw_tui.actions import Kind, allowed, key_name
from llmgw_tui.command_line import names_of
from llmgw_tui.text import clean

if TYPE_CHECKING:
    from llmgw_tui.app import ConsoleApp

CARDS_SEARCHED = 500
"""Of each kind; more are found by ``/`` in their list."""


class ActionProvider(Provider):
    """Entries made from the action table, the themes and what the fleet holds."""

    @property
    def _console(self) -> ConsoleApp:
        return cast("ConsoleApp", self.app)

    def _actions(self) -> Iterator[tuple[str, str, partial[None]]]:
        for action in ACTIONS:
            if not allowed(action, read_only=self._console.read_only) or action.id == "palette":
                continue
            keys = ", ".join(key_name(key) for key in action.keys)
            title = action.title[:1].upper() + action.title[1:]
            help_text = f"{keys + '  ' if keys else ''}{action.help}"
            yield title, help_text, partial(self._console.act, action.id)

    def _themes(self) -> Iterator[tuple[str, str, partial[None]]]:
        for name in sorted(self._console.available_themes):
            yield f"Theme {name}", "Change the colours", partial(self._console.pick_theme, name)

    def _cards(self) -> Iterator[tuple[str, str, partial[None]]]:
        for kind in Kind:
            for name in names_of(kind, self._console.shown)[:CARDS_SEARCHED]:
                text = f"{kind.capitalize()} {clean(name)}"
                yield text, "Open its card", partial(self._console.verbs.open_card, kind, name)

    async def discover(self) -> Hits:
        """All actions, in the table's order."""
        for title, help_text, run in self._actions():
            yield DiscoveryHit(Content(title), run, text=title, help=help_text)

    async def search(self, query: str) -> Hits:
        """Actions, themes and cards that match."""
        matcher = self.matcher(query)
        for source in (self._actions, self._themes, self._cards):
            for title, help_text, run in source():
                score = matcher.match(title)
                if score > 0:
                    shown = matcher.highlight(title) if "[" not in title else Content(title)
                    yield Hit(score, shown, run, text=title, help=help_text)
