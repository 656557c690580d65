"""The list of live objects, in a small application of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.geometry import Region
from textual.pilot import Pilot

from llmgw_tui.rows.parts import Col, Look, Part
from llmgw_tui.themes import status_variable_defaults
from llmgw_tui.widgets.object_table import HOLD_S, ObjectTable

SIZES = [(80, 24), (40, 12)]


@dataclass(frozen=True)
class Thing:
    """A row."""

    id: str
    state: str = "ready"
    load: float | None = 0.0
    since: float = 0.0


COLUMNS: tuple[Col[Thing], ...] = (
    Col(key="name", title="NAME", width=10, grow=1, cell=lambda t, _: (Part(t.id, "strong"),),
        sort=lambda t: t.id),
    Col(key="state", title="STATE", width=10, cell=lambda t, _: (Part("● ", "ready"),
        Part(t.state)), sort=lambda t: t.state),
    Col(key="load", title="LOAD", width=4, right=True, sort=lambda t: t.load,
        cell=lambda t, _: (Part("–" if t.load is None else f"{t.load:.0f}"),)),
    Col(key="age", title="AGE", width=8, drop=1,
        cell=lambda t, look: (Part(f"{look.now - t.since:.0f}s" if t.since else "", "muted"),)),
    Col(key="extra", title="EXTRA", width=10, drop=2, cell=lambda t, _: (Part("more"),)),
    Col(key="wide", title="WIDE", width=6, wide=True, drop=3, cell=lambda t, _: (Part("wide"),)),
)  # fmt: skip


class TableApp(App[None]):
    """One list, and a clock that the test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 100.0
        self.pointed = 0
        self.activated = 0

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return status_variable_defaults()

    def compose(self) -> ComposeResult:
        yield ObjectTable(COLUMNS, lambda t: t.id, clock=lambda: self.time)

    def on_object_table_pointed(self) -> None:
        self.pointed += 1

    def on_object_table_activated(self) -> None:
        self.activated += 1


class Driver:
    """What a test does to the list, and what it sees of it."""

    def __init__(self, app: TableApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot
        self.table = app.query_one(ObjectTable)

    async def give(self, *rows: Thing, now: float = 0.0, ascii: bool = False) -> None:
        self.table.set_rows(rows, Look(now, ascii))
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def after_hold(self) -> None:
        self.app.time += HOLD_S

    @property
    def lines(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip) for strip in strips]

    @property
    def names(self) -> list[str]:
        return [line[1:].split()[0] for line in self.lines[1:] if line.strip()]


@asynccontextmanager
async def driver(size: tuple[int, int] = (80, 24)) -> AsyncIterator[Driver]:
    app = TableApp()
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        yield Driver(app, pilot)


def things(count: int) -> list[Thing]:
    return [Thing(f"t{number:03}", load=float(number)) for number in range(count)]


@pytest.mark.parametrize("size", SIZES)
async def test_the_cursor_stays_on_its_object(size: tuple[int, int]) -> None:
    async with driver(size) as d:
        a, b, c = Thing("a"), Thing("b"), Thing("c")
        await d.give(a, b, c)
        await d.press("j")
        assert d.table.cursor_id == "b"
        await d.after_hold()
        await d.give(Thing("0"), a, b, c)
        assert d.table.cursor_id == "b"
        d.table.sort_by("name", descending=True)
        await d.pilot.pause()
        assert d.names == ["c", "b", "a", "0"]
        assert d.table.cursor_id == "b"
        await d.give(Thing("0"), a, c)
        assert d.table.cursor_id == "a"  # the next one down
        await d.give()
        assert d.table.cursor_id is None
        await d.press("j", "space", "ctrl+space", "G", "pagedown")  # nothing to act on, no fault


@pytest.mark.parametrize("size", SIZES)
async def test_a_cursor_in_view_stays_in_view(size: tuple[int, int]) -> None:
    async with driver(size) as d:
        rows = things(100)
        await d.give(*rows)
        await d.press("j", "j")
        await d.after_hold()
        await d.give(*(Thing(f"new{number}") for number in range(50)), *rows)
        assert d.table.cursor_id == "t002"
        assert "t002" in d.names


@pytest.mark.parametrize("size", SIZES)
async def test_the_ends_of_a_long_list_are_reached(size: tuple[int, int]) -> None:
    async with driver(size) as d:
        await d.give(*things(100))
        await d.press("G")
        assert d.names[-1] == "t099"
        await d.press("pageup")
        assert d.table.cursor_id == f"t{99 - (size[1] - 2):03}"
        await d.press("g")
        assert d.names[0] == "t000"
        assert d.lines[0].split()[0] == "NAME"


async def test_the_order_holds_still_just_after_the_cursor_moved() -> None:
    async with driver() as d:
        low, high = Thing("low", load=1), Thing("high", load=2)
        await d.give(low, high)
        d.table.sort_by("load")
        await d.press("j")
        risen = replace(low, load=3)
        await d.give(risen, high)
        assert d.names == ["low", "high"]
        await d.after_hold()
        await d.give(risen, high)
        assert d.names == ["high", "low"]


async def test_one_changed_row_paints_one_line() -> None:
    async with driver() as d:
        rows = things(200)
        await d.give(*rows)
        painted = d.table.renders
        await d.give(*rows)
        assert d.table.renders == painted
        rows[3] = replace(rows[3], state="failed")
        await d.give(*rows)
        assert d.table.renders == painted + 1
        assert "failed" in d.lines[4]
        rows[150] = replace(rows[150], state="failed")  # out of view
        await d.give(*rows)
        assert d.table.renders == painted + 1


async def test_only_rows_that_show_an_age_are_painted_as_time_passes() -> None:
    async with driver() as d:
        rows = [Thing("a", since=1.0), Thing("b"), Thing("c")]
        await d.give(*rows, now=10.0)
        painted = d.table.renders
        await d.give(*rows, now=11.0)
        assert d.table.renders == painted + 1
        assert "10s" in d.lines[1]


async def test_marks_are_of_objects_and_go_with_them() -> None:
    async with driver() as d:
        await d.give(*things(5))
        await d.press("space", "j", "ctrl+space")
        assert d.table.marks == {"t000", "t001", "t002"}
        await d.after_hold()
        await d.give(*things(5)[1:])
        assert d.table.marks == {"t001", "t002"}
        assert [line[0] for line in d.lines[1:4]] == ["▌", "▌", " "]
        await d.press("ctrl+backslash")
        assert not d.table.marks


async def test_a_range_whose_start_has_gone_marks_only_the_cursor() -> None:
    async with driver() as d:
        await d.give(*things(9))
        await d.press("j", "j", "j", "space", "j", "j")
        await d.give(*(t for t in things(9) if t.id != "t003"))
        await d.press("ctrl+space")
        assert d.table.marks == {"t006"}


async def test_marks_that_a_filter_hides_are_kept_but_not_acted_on() -> None:
    async with driver() as d:
        await d.give(Thing("a", "failed"), Thing("b"), Thing("c", "failed"))
        await d.press("space", "space")
        assert d.table.marks == {"a", "b"}
        d.table.set_filter("state:failed")
        assert d.table.marks == {"a", "b"}
        assert list(d.table.marked_in_view) == ["a"]
        d.table.set_filter("")
        assert list(d.table.marked_in_view) == ["a", "b"]
        d.table.only = lambda thing: thing.state != "failed"
        await d.give(Thing("a", "failed"), Thing("b"), Thing("c", "failed"))
        assert d.names == ["b"]
        assert list(d.table.marked_in_view) == ["b"]


async def test_many_changed_rows_are_painted_as_few_regions() -> None:
    async with driver() as d:
        rows = things(200)
        await d.give(*rows)
        asked: list[int] = []
        refresh = d.table.refresh

        def counted(*regions: Region, **options: bool) -> ObjectTable:
            asked.append(len(regions))
            return refresh(*regions, **options)

        d.table.refresh = counted  # type: ignore[method-assign]
        rows = [replace(row, state="failed") for row in rows]
        d.table.set_rows(rows, Look(0.0))
        assert asked == [1]
        await d.pilot.pause()
        asked.clear()
        rows[2], rows[5] = replace(rows[2], state="x"), replace(rows[5], state="x")
        d.table.set_rows(rows, Look(0.0))
        assert asked == [2]


HOSTILE = [
    "\x1b[2J\x1b[31mboo", "[/x] [red]", "日本語" * 9, "a\nb\r\tc", "\u202eevil",
    "e\u0301\u0301\u0301", "☁\ufe0f👩\u200d👧", "x" * 500, "", "\x00\x9b31m",
]  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
async def test_hostile_text_does_not_move_the_columns(size: tuple[int, int]) -> None:
    async with driver(size) as d:
        rows = [Thing(text, state=text, load=7777) for text in HOSTILE]
        await d.give(*rows)
        head = d.lines[0]
        right = head.index("LOAD") + 4
        for line in d.lines[1 : 1 + len(HOSTILE)]:
            assert cell_len(line) == size[0]
            assert not any(char in line for char in "\x1b\x00\x9b\n\r\u202e\u200d")
            before = line[: line.index("7777") + 4]
            assert cell_len(before) == right


async def test_columns_go_by_rank_and_the_wide_form_brings_more() -> None:
    async with driver((80, 24)) as d:
        await d.give(*things(2))
        assert d.lines[0].split() == ["NAME", "STATE", "LOAD", "AGE", "EXTRA"]
        d.table.wide = True
        d.table.refresh()
        await d.pilot.pause()
        assert "WIDE" in d.lines[0]
    async with driver((40, 12)) as d:
        await d.give(*things(2))
        assert d.lines[0].split() == ["NAME", "STATE", "LOAD", "AGE"]


async def test_the_head_shows_the_order_and_unknown_comes_last() -> None:
    async with driver() as d:
        await d.give(Thing("a", load=None), Thing("b", load=2), Thing("c", load=1))
        await d.press("shift+right", "shift+right", "shift+right")
        assert "LOA▲" in d.lines[0]  # the arrow is not what is cut
        assert d.names == ["c", "b", "a"]
        await d.press("O")
        assert "LOA▼" in d.lines[0]
        assert d.names == ["b", "c", "a"]
        await d.press("shift+right")
        assert "NAME▲" in d.lines[0]  # columns without an order are passed over


async def test_a_filter_hides_rows_and_the_cursor_goes_on() -> None:
    async with driver() as d:
        await d.give(Thing("a", "failed"), Thing("b"), Thing("c", "failed"))
        d.table.set_filter("state:failed")
        await d.pilot.pause()
        assert d.names == ["a", "c"]
        d.table.set_filter("!failed")
        await d.pilot.pause()
        assert d.names == ["b"]
        assert d.table.cursor_id == "b"
        d.table.set_filter("")
        await d.pilot.pause()
        assert d.names == ["a", "b", "c"]


async def test_the_mouse_points_opens_sorts_and_scrolls() -> None:
    async with driver() as d:
        await d.give(*things(100))
        await d.pilot.click(ObjectTable, offset=(5, 3))
        assert d.table.cursor_id == "t002"
        assert d.app.activated == 0
        await d.pilot.click(ObjectTable, offset=(5, 3))
        assert d.app.activated == 1
        await d.pilot.click(ObjectTable, offset=(2, 0))
        await d.pilot.click(ObjectTable, offset=(2, 0))
        assert d.table.descending
        assert d.table.cursor_id == "t002"


async def test_each_move_is_told_once() -> None:
    async with driver() as d:
        await d.give(*things(3))
        told = d.app.pointed
        await d.press("j", "j", "j")
        assert d.app.pointed == told + 2  # at the end there is nothing to tell


async def test_ascii_has_ascii_marks_and_arrows() -> None:
    async with driver() as d:
        await d.give(Thing("a"), ascii=True)
        await d.press("space", "shift+right")
        assert d.lines[1].startswith("*a")
        assert "NAME^" in d.lines[0]


async def test_another_theme_paints_everything_again() -> None:
    async with driver() as d:
        await d.give(*things(3))
        painted = d.table.renders
        d.app.theme = "textual-light"
        await d.pilot.pause()
        await d.pilot.pause()
        assert d.table.renders >= painted + 3


async def test_a_smaller_window_keeps_the_cursor_in_view() -> None:
    async with driver() as d:
        await d.give(*things(50))
        await d.press(*(["j"] * 18))
        await d.pilot.resize_terminal(40, 12)
        await d.pilot.pause()
        assert "t018" in d.names
