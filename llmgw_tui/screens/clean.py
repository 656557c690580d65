"""What a clean-up of the mirror would delete, and whether it may."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual.widget import Widget
from textual.widgets import Button

from llmgw_tui.rows.amounts import size
from llmgw_tui.screens.confirm import NAMES_SHOWN, counted
from llmgw_tui.screens.dialog import Dialog, plain
from llmgw_tui.text import clean


@dataclass(frozen=True, slots=True)
class Waste:
    """One thing that no version needs."""

    path: str
    bytes: int | None
    why: str


def waste_of(data: object) -> list[Waste]:
    """What ``mirror.clean`` answered, the largest first."""
    rows = data.get("waste") if isinstance(data, Mapping) else None
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        return []
    found = [
        Waste(str(row.get("path", "")), _whole(row.get("bytes")), str(row.get("why", "")))
        for row in rows
        if isinstance(row, Mapping)
    ]
    return sorted(found, key=lambda waste: -(waste.bytes or 0))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None


class CleanDialog(Dialog[bool]):
    """Lists what a dry run found; what is deleted is found anew by the engine."""

    AUTO_FOCUS: ClassVar[str | None] = "#cancel"
    wide = True

    def __init__(self, waste: Sequence[Waste]) -> None:
        super().__init__()
        self._waste = tuple(waste)
        total = sum(one.bytes or 0 for one in self._waste)
        self.heading = f"Delete {counted(len(self._waste), 'thing')}, {size(total)}?"

    def body(self) -> Iterable[Widget]:
        """Sizes, names, and why each is not needed."""
        shown = self._waste[:NAMES_SHOWN]
        lines = [f"{size(one.bytes):>10}  {clean(one.path)}\n{'':>12}{clean(one.why)}"
                 for one in shown]  # fmt: skip
        rest = len(self._waste) - len(shown)
        yield plain("\n".join([*lines, *([f"{'':>12}and {rest} more"] if rest else [])]),
                    classes="waste")  # fmt: skip
        yield plain("Versions that are whole, and pulls under way, are not touched.",
                    classes="says")  # fmt: skip

    def buttons(self) -> Iterable[Widget]:
        """Cancel has the focus."""
        yield Button("Cancel", id="cancel", compact=True)
        yield Button("Delete", id="go", variant="error", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """The verb itself."""
        if event.button.id == "go":
            self.dismiss(True)
