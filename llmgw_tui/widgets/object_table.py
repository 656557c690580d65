"""A list of live objects: the cursor and the marks are objects, never row numbers.

Textual's own table paints every visible cell again when one of them changes; this one keeps a
painted line for each row, and asks only for the lines that differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from llmgw_tui.filter import matches
from llmgw_tui.rows.parts import Col, Look, Part
from llmgw_tui.widgets.columns import fit_columns, fit_parts, titled

HEADER = 1
HOLD_S = 1.0
"""How long the order stays as it is after the cursor moved, so that no row slides away."""
STYLES = (
    "muted", "strong", "accent", "brand", "badge", "key", "ready", "loading", "draining",
    "failed", "stale", "unknown", "spark",
)  # fmt: skip
MARK, ASCII_MARK = "▌", "*"

Row = Any
"""Rows are of the type that the columns are for; one list holds one type."""


class ObjectTable(ScrollView, can_focus=True):
    """Rows of objects under fixed columns, painted line by line."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "object-table--head",
        "object-table--cursor",
        "object-table--cursor-blurred",
        *(f"object-table--{style}" for style in STYLES),
    }
    DEFAULT_CSS = """
    ObjectTable { height: 1fr; width: 1fr; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0;
      overflow-x: hidden; background: transparent;
      & > .object-table--head { color: $text-muted; text-style: bold; }
      & > .object-table--cursor { background: $primary 40%; text-style: bold; }
      & > .object-table--cursor-blurred { background: $boost; }
      & > .object-table--muted { color: $text-muted; }
      & > .object-table--strong { text-style: bold; }
      & > .object-table--accent { color: $text-primary; text-style: bold; }
      & > .object-table--brand { color: $text-accent; text-style: bold; }
      & > .object-table--key { color: $text-accent; text-style: bold; }
      & > .object-table--badge { color: $text-warning; text-style: bold reverse; }
      & > .object-table--ready { color: $ready; }
      & > .object-table--loading { color: $loading; }
      & > .object-table--draining { color: $draining; }
      & > .object-table--failed { color: $failed; text-style: bold; }
      & > .object-table--stale { color: $stale; }
      & > .object-table--unknown { color: $unknown; }
      & > .object-table--spark { color: $spark-hi; }
    }
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
        self.renders = 0
        """Lines painted since the start: what tests count."""
        self._clock = clock
        self._moved_at = float("-inf")
        self._all: tuple[Row, ...] = ()
        self._rows: list[Row] = []
        self._ids: list[str] = []
        self._index: dict[str, int] = {}
        self._look = Look(0.0)
        self._cursor: str | None = None
        self._anchor: str | None = None
        self._painted: dict[str, tuple[tuple[Any, ...], Strip]] = {}
        self._styles: dict[str, Style] = {}

    # rows

    @property
    def rows(self) -> Sequence[Row]:
        """The rows as filtered and sorted."""
        return self._rows

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
        rows = [row for row in self._all if self._matches(row)] if self.filter_text else self._all
        ordered = self._ordered(rows)
        ids = [self.key(row) for row in ordered]
        before_ids, before_rows = self._ids, self._rows
        in_view = self._index.get(self._cursor or "", -1) in self._visible()
        self._rows, self._ids = ordered, ids
        self._index = {id_: number for number, id_ in enumerate(ids)}
        present = {self.key(row) for row in self._all}
        self.marks &= present
        self._painted = {k: v for k, v in self._painted.items() if k in present}
        self._follow(before_ids)
        size = Size(max(self.size.width, 1), len(ids) + HEADER)
        if size != self.virtual_size:
            self.virtual_size = size
        if ids != before_ids:
            if in_view:
                self._show_cursor()
            self.refresh()
            return
        for number in self._visible():
            old, new = before_rows[number], ordered[number]
            if old != new or self._depends_on_time(ids[number], new):
                self._refresh_row(number)

    def _visible(self) -> range:
        """The numbers of the rows that are in view."""
        top = self.scroll_offset.y
        return range(top, min(top + max(self.size.height - HEADER, 0), len(self._rows)))

    def _depends_on_time(self, id_: str, row: Row) -> bool:
        """Whether a row that did not change reads differently now (ages, countdowns)."""
        painted = self._painted.get(id_)
        return painted is not None and painted[0][1] != self._cells(row)

    def _matches(self, row: Row) -> bool:
        cells = {c.key: "".join(p.text for p in c.cell(row, self._look)) for c in self.columns}
        return matches(cells, self.filter_text)

    def _ordered(self, rows: Sequence[Row]) -> list[Row]:
        if self._clock() - self._moved_at < HOLD_S and self._index:
            last = len(self._index)
            return sorted(rows, key=lambda row: self._index.get(self.key(row), last))
        column = next((c for c in self.columns if c.key == self.sort_key), None)
        if column is None or column.sort is None:
            return list(rows)
        sort: Callable[[Row], Any] = column.sort
        known = [row for row in rows if sort(row) is not None]
        unknown = [row for row in rows if sort(row) is None]
        return sorted(known, key=sort, reverse=self.descending) + unknown

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

    def clear_marks(self) -> None:
        """No object is marked."""
        self.marks = set()
        self.refresh()

    def action_clear_marks(self) -> None:
        """No object is marked."""
        self.clear_marks()

    def action_mark(self) -> None:
        """Mark or unmark the object under the cursor and go one down."""
        if self._cursor is not None:
            self.marks ^= {self._cursor}
            self._anchor = self._cursor
            self._refresh_row(self._index[self._cursor])
            self.action_move(1)

    def action_mark_range(self) -> None:
        """Mark everything from the last mark to the cursor."""
        if self._cursor is None:
            return
        here = self._index[self._cursor]
        # Where the anchor has gone, only this one: a range nobody sees must not be marked.
        first, last = sorted((self._index.get(self._anchor or "", here), here))
        self.marks |= set(self._ids[first : last + 1])
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
        self._painted.clear()
        self._styles.clear()

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
        y = number - self.scroll_offset.y + HEADER
        if HEADER <= y < self.size.height:
            self.refresh(Region(0, y, self.size.width, 1))

    def _show_cursor(self) -> None:
        number = self._index.get(self._cursor or "")
        if number is None:
            return
        top, visible = self.scroll_offset.y, max(self.size.height - HEADER, 1)
        if number < top:
            self.scroll_to(y=number, animate=False)
        elif number >= top + visible:
            self.scroll_to(y=number - visible + 1, animate=False)

    def _style(self, name: str) -> Style:
        if name not in self._styles:
            if name == "":
                self._styles[name] = self.rich_style
            else:
                part = self.get_component_rich_style(f"object-table--{name}", partial=True)
                self._styles[name] = self.rich_style + part
        return self._styles[name]

    def _cells(self, row: Row) -> tuple[tuple[Part, ...], ...]:
        return tuple(column.cell(row, self._look) for column in self.columns)

    def _fitted(self) -> list[tuple[int, int]]:
        """(number, cells) of the columns in view."""
        return fit_columns(self.columns, self.size.width - 1, wide=self.wide)

    def render_line(self, y: int) -> Strip:
        """The head, or the line of a row."""
        width = self.size.width
        shown = self._fitted()
        if y < HEADER:
            return self._paint_head(shown, width)
        number = y - HEADER + self.scroll_offset.y
        if number >= len(self._rows):
            return Strip.blank(width, self._style(""))
        id_, row = self._ids[number], self._rows[number]
        cells = self._cells(row)
        state = (id_ == self._cursor, self.has_focus, id_ in self.marks)
        key = (row, cells, state, width, self.wide, self.descending, self._look.ascii)
        kept = self._painted.get(id_)
        if kept is not None and kept[0] == key:
            return kept[1]
        strip = self._paint(cells, shown, width, *state)
        self._painted[id_] = (key, strip)
        return strip

    def _paint_head(self, shown: Sequence[tuple[int, int]], width: int) -> Strip:
        style = self._style("head")
        up, down = ("^", "v") if self._look.ascii else ("▲", "▼")
        pieces = [Segment(" ", style)]
        for number, size in shown:
            column = self.columns[number]
            arrow = (down if self.descending else up) if column.key == self.sort_key else ""
            pieces.append(Segment(titled(column, size, arrow), style))
            pieces.append(Segment(" ", style))
        return Strip(pieces).adjust_cell_length(width, style).simplify()

    def _paint(
        self,
        cells: Sequence[Sequence[Part]],
        shown: Sequence[tuple[int, int]],
        width: int,
        cursor: bool,
        focused: bool,
        marked: bool,
    ) -> Strip:
        self.renders += 1
        base = Style()
        if cursor:
            kind = "object-table--cursor" if focused else "object-table--cursor-blurred"
            whole = self.get_component_rich_style(kind)
            base = Style(bgcolor=whole.bgcolor, bold=whole.bold or None)
        plain = self._style("") + base
        mark = ASCII_MARK if self._look.ascii else MARK
        pieces = [Segment(mark if marked else " ", self._style("accent") + base)]
        left = width - 1
        for number, size in shown:
            spans = any(part.spans for part in cells[number])
            room = left - 1 if spans else size
            for text, name in fit_parts(cells[number], room, right=self.columns[number].right):
                pieces.append(Segment(text, self._style(name) + base))
            pieces.append(Segment(" ", plain))
            left -= room + 1
            if spans:
                break
        return Strip(pieces).adjust_cell_length(width, plain).simplify()

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
