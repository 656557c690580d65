"""A list of live objects: the cursor and the marks are objects, never row numbers.

Textual's own table paints every visible cell again when one of them changes; this one keeps a
painted line for each row, and asks only for the lines that differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from llmgw_tui.rows.parts import Col, Look
from llmgw_tui.widgets.columns import fit_columns
from llmgw_tui.widgets.row_order import in_order, let_through
from llmgw_tui.widgets.row_painter import Fitted, Ground, Line, RowPainter
from llmgw_tui.widgets.row_styles import STYLES, STYLES_CSS

HEADER = 1
HOLD_S = 1.0
"""How long the order stays as it is after the cursor moved, so that no row slides away."""

Row = Any
"""Rows are of the type that the columns are for; one list holds one type."""


class ObjectTable(ScrollView, can_focus=True):
    """Rows of objects under fixed columns, painted line by line."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*(f"object-table--{style}" for style in STYLES)}
    DEFAULT_CSS = f"""
    ObjectTable {{
      height: 1fr; width: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0;
      overflow-x: hidden; background: transparent;
      {STYLES_CSS}
    }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False, id="list-up"),
        Binding("down,j", "move(1)", "Down", show=False, id="list-down"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="list-page-up"),
        Binding("pagedown", "page(1)", "Page down", show=False, id="list-page-down"),
        Binding("home,g", "edge(0)", "First", show=False, id="list-first"),
        Binding("end,G", "edge(-1)", "Last", show=False, id="list-last"),
        Binding("space", "mark", "Mark", show=False, id="list-mark"),
        Binding("ctrl+@,ctrl+space", "mark_range", "Mark to here", show=False, id="list-range"),
        Binding("ctrl+backslash", "clear_marks", "No marks", show=False, id="list-clear"),
        Binding("shift+left", "sort_column(-1)", "Sort by left", show=False, id="list-sort-left"),
        Binding("shift+right", "sort_column(1)", "Sort by right", show=False, id="list-sort-right"),
        Binding("O", "turn_order", "Turn order", show=False, id="list-turn"),
    ]

    class Pointed(Message):
        """The cursor is on another object."""

    class Marked(Message):
        """Other objects are marked, or other marks are hidden."""

    class Activated(Message):
        """The object under the cursor was clicked again."""

    def __init__(
        self,
        columns: Sequence[Col[Row]],
        key: Callable[[Row], str],
        *,
        id: str | None = None,
        classes: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.columns = tuple(columns)
        self.key = key
        self.wide = False
        self.marks: set[str] = set()
        self.sort_key: str | None = None
        self.descending = False
        self.filter_text = ""
        self.only: Callable[[Row], bool] | None = None
        """Rows that do not satisfy it are hidden, as by the filter; heeded by ``set_rows``."""
        self._clock = clock
        self._moved_at = float("-inf")
        self._all: tuple[Row, ...] = ()
        self._rows: list[Row] = []
        self._ids: list[str] = []
        self._index: dict[str, int] = {}
        self._look = Look(0.0)
        self._cursor: str | None = None
        self._anchor: str | None = None
        self._told: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
        self._painter = RowPainter(self.columns, self._resolve)
        self._fitted_for: tuple[int, bool] = (-1, False)
        self._fitted_now: Fitted = ()

    # rows

    @property
    def rows(self) -> Sequence[Row]:
        """The rows as filtered and sorted."""
        return self._rows

    @property
    def renders(self) -> int:
        """Lines painted since the start: what tests count."""
        return self._painter.renders

    def set_rows(self, rows: Sequence[Row], look: Look) -> None:
        """These are the rows now; only lines that differ are painted again."""
        self._all, self._look = tuple(rows), look
        self._arrange()

    def set_filter(self, text: str) -> None:
        """Show only rows that match (see ``llmgw_tui.filter``)."""
        if text != self.filter_text:
            self.filter_text = text
            self._moved_at = float("-inf")
            self._arrange()

    def _arrange(self) -> None:
        shown = let_through(
            self._all, self.columns, self._look, text=self.filter_text, only=self.only
        )
        ordered = self._ordered(shown)
        ids = [self.key(row) for row in ordered]
        before_ids, before_rows = self._ids, self._rows
        in_view = self._index.get(self._cursor or "", -1) in self._visible()
        self._rows, self._ids = ordered, ids
        self._index = {id_: number for number, id_ in enumerate(ids)}
        present = {self.key(row) for row in self._all}
        self.marks &= present
        self._painter.keep(present)
        self._follow(before_ids)
        self._tell_marks()
        size = Size(max(self.size.width, 1), len(ids) + HEADER)
        if size != self.virtual_size:
            self.virtual_size = size
        if ids != before_ids:
            if in_view:
                self._show_cursor()
            self.refresh()
            return
        self._refresh_rows([
            number for number in self._visible()
            if before_rows[number] != ordered[number]
            or self._painter.reads_differently(ids[number], ordered[number], self._look)
        ])  # fmt: skip

    def _visible(self) -> range:
        """The numbers of the rows that are in view."""
        top = self.scroll_offset.y
        return range(top, min(top + max(self.size.height - HEADER, 0), len(self._rows)))

    def _ordered(self, rows: Sequence[Row]) -> list[Row]:
        if self._clock() - self._moved_at < HOLD_S and self._index:
            last = len(self._index)
            return sorted(rows, key=lambda row: self._index.get(self.key(row), last))
        column = next((c for c in self.columns if c.key == self.sort_key), None)
        return in_order(rows, column, descending=self.descending)

    # cursor and marks

    @property
    def cursor_id(self) -> str | None:
        """The object under the cursor."""
        return self._cursor

    @cursor_id.setter
    def cursor_id(self, id_: str | None) -> None:
        if id_ is None or id_ not in self._index or id_ == self._cursor:
            return
        old, self._cursor = self._cursor, id_
        for changed in (old, id_):
            if changed in self._index:
                self._refresh_row(self._index[changed])
        self._show_cursor()
        self.post_message(self.Pointed())

    def _follow(self, before: list[str]) -> None:
        """Keep the cursor on its object; on the next one down where that is gone."""
        if self._cursor in self._index:
            return
        old, self._cursor = self._cursor, None
        if self._ids:
            place = before.index(old) if old in before else 0
            left = (id_ for id_ in before[place:] if id_ in self._index)
            self._cursor = next(left, None) or self._ids[min(place, len(self._ids) - 1)]
        if old != self._cursor:
            self.post_message(self.Pointed())

    @property
    def marked_in_view(self) -> tuple[str, ...]:
        """The marked objects that nothing hides, in their order: what a verb acts on."""
        return tuple(id_ for id_ in self._ids if id_ in self.marks)

    def _tell_marks(self) -> None:
        told = (frozenset(self.marks), frozenset(self.marks - self._index.keys()))
        if told != self._told:
            self._told = told
            self.post_message(self.Marked())

    def clear_marks(self) -> None:
        """No object is marked."""
        self.marks = set()
        self._tell_marks()
        self.refresh()

    action_clear_marks = clear_marks

    def action_mark(self) -> None:
        """Mark or unmark the object under the cursor and go one down."""
        if self._cursor is not None:
            self.marks ^= {self._cursor}
            self._anchor = self._cursor
            self._refresh_row(self._index[self._cursor])
            self._tell_marks()
            self.action_move(1)

    def action_mark_range(self) -> None:
        """Mark everything from the last mark to the cursor."""
        if self._cursor is None:
            return
        here = self._index[self._cursor]
        # Where the anchor has gone, only this one: a range nobody sees must not be marked.
        first, last = sorted((self._index.get(self._anchor or "", here), here))
        self.marks |= set(self._ids[first : last + 1])
        self._tell_marks()
        self.refresh()

    def action_move(self, by: int) -> None:
        """Go up or down."""
        if self._ids:
            self._moved_at = self._clock()
            place = self._index.get(self._cursor or "", 0) + by
            self.cursor_id = self._ids[min(max(place, 0), len(self._ids) - 1)]

    def action_page(self, by: int) -> None:
        """Go up or down by what is visible."""
        self.action_move(by * max(self.size.height - HEADER - 1, 1))

    def action_edge(self, place: int) -> None:
        """Go to the first or the last."""
        if self._ids:
            self._moved_at = self._clock()
            self.cursor_id = self._ids[place]

    # order

    def sort_by(self, key: str | None, *, descending: bool = False) -> None:
        """Order by a column, or as given with None."""
        self.sort_key, self.descending = key, descending
        self._moved_at = float("-inf")
        self._arrange()
        self.refresh()

    def action_sort_column(self, by: int) -> None:
        """Order by the next column that can be ordered by."""
        keys = self._sortable()
        if keys:
            now = keys.index(self.sort_key) if self.sort_key in keys else -1 if by > 0 else 0
            self.sort_by(keys[(now + by) % len(keys)])

    def action_turn_order(self) -> None:
        """Turn the order round."""
        keys = self._sortable()
        if self.sort_key is not None or keys:
            self.sort_by(self.sort_key or keys[0], descending=not self.descending)

    def _sortable(self) -> list[str]:
        """The columns in view that can be ordered by."""
        shown = (self.columns[number] for number, _ in self._fitted())
        return [column.key for column in shown if column.sort is not None]

    # painting

    def notify_style_update(self) -> None:
        """Another theme: nothing painted before is right."""
        super().notify_style_update()
        self._painter.forget()

    def on_resize(self) -> None:
        """Another width: the columns differ."""
        self.virtual_size = Size(max(self.size.width, 1), len(self._ids) + HEADER)
        self._show_cursor()
        self.refresh()

    def on_focus(self) -> None:
        """The cursor looks different."""
        self._refresh_cursor()

    def on_blur(self) -> None:
        """The cursor looks different."""
        self._refresh_cursor()

    def _refresh_cursor(self) -> None:
        if self._cursor in self._index:
            self._refresh_row(self._index[self._cursor])

    def _refresh_row(self, number: int) -> None:
        self._refresh_rows([number])

    def _refresh_rows(self, numbers: Sequence[int]) -> None:
        """Paint these again, in order; neighbours as one region, since each region costs."""
        top, width, height = self.scroll_offset.y - HEADER, self.size.width, self.size.height
        regions: list[Region] = []
        for y in (number - top for number in numbers):
            if not HEADER <= y < height:
                continue
            if regions and regions[-1].bottom == y:
                regions[-1] = regions[-1].grow((0, 0, 1, 0))
            else:
                regions.append(Region(0, y, width, 1))
        if regions:
            self.refresh(*regions)

    def _show_cursor(self) -> None:
        number = self._index.get(self._cursor or "")
        if number is None:
            return
        top, visible = self.scroll_offset.y, max(self.size.height - HEADER, 1)
        if number < top:
            self.scroll_to(y=number, animate=False)
        elif number >= top + visible:
            self.scroll_to(y=number - visible + 1, animate=False)

    def _resolve(self, name: str, ground: Ground) -> Style:
        """A style by its name, on what lies behind the row."""
        style = self.rich_style
        if name:
            style += self.get_component_rich_style(f"object-table--{name}", partial=True)
        if ground is not Ground.PLAIN:
            whole = self.get_component_rich_style(f"object-table--{ground}")
            style += Style(bgcolor=whole.bgcolor, bold=whole.bold or None)
        return style

    def _fitted(self) -> Fitted:
        """The columns in view."""
        asked = (self.size.width - 1, self.wide)
        if asked != self._fitted_for:
            self._fitted_for = asked
            self._fitted_now = tuple(fit_columns(self.columns, asked[0], wide=asked[1]))
        return self._fitted_now

    def _arrow(self, key: str) -> str:
        if key != self.sort_key:
            return ""
        up, down = ("^", "v") if self._look.ascii else ("▲", "▼")
        return down if self.descending else up

    def render_line(self, y: int) -> Strip:
        """The head, or the line of a row."""
        width, fitted = self.size.width, self._fitted()
        if y < HEADER:
            return self._painter.head(fitted, width, self._arrow)
        number = y - HEADER + self.scroll_offset.y
        if number >= len(self._rows):
            return self._painter.blank(width)
        id_ = self._ids[number]
        ground = Ground.PLAIN
        if id_ == self._cursor:
            ground = Ground.CURSOR if self.has_focus else Ground.BLURRED
        cells = self._painter.cells(self._rows[number], self._look)
        line = Line(cells, fitted, width, ground, id_ in self.marks, self._look.ascii)
        return self._painter.row(id_, line)

    # mouse

    def on_click(self, event: events.Click) -> None:
        """Point at a row; a click on the object under the cursor opens it; the head sorts."""
        y = event.y
        if y < HEADER:
            self._sort_at(event.x)
            return
        number = y - HEADER + self.scroll_offset.y
        if number >= len(self._ids):
            return
        if self._ids[number] == self._cursor:
            self.post_message(self.Activated())
        else:
            self._moved_at = self._clock()
            self.cursor_id = self._ids[number]

    def _sort_at(self, x: int) -> None:
        left = 1
        for number, size in self._fitted():
            if left <= x < left + size and self.columns[number].sort is not None:
                key = self.columns[number].key
                self.sort_by(key, descending=key == self.sort_key and not self.descending)
                return
            left += size + 1
