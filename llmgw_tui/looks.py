"""Which theme is in force, and changing it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llmgw_tui.app import ConsoleApp


class Looks:
    """The console's themes."""

    def __init__(self, app: ConsoleApp, wanted: str | None, folders: Sequence[Path]) -> None:
        self._app = app
        self._wanted = wanted
        self._folders = tuple(folders)

    def start(self) -> list[str]:
        return []

    def pick(self, name: str | None) -> None:
        if name in self._app.available_themes:
            self._app.theme = name
