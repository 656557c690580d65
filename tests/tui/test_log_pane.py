"""A log as it grows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from llmgw_tui.widgets.log_pane import LINES_MOST, SLACK, LogPane, tidy


class Shown(App[None]):
    """Only a log."""

    def compose(self) -> ComposeResult:
        yield LogPane()


@asynccontextmanager
async def pane(size: tuple[int, int] = (40, 12)) -> AsyncIterator[tuple[LogPane, Pilot[None]]]:
    app = Shown()
    async with app.run_test(size=size) as pilot:
        log = app.query_one(LogPane)
        log.focus()
        await pilot.pause()
        yield log, pilot


def visible(log: LogPane) -> list[str]:
    return [log.render_line(y).text.rstrip() for y in range(log.size.height)]


async def test_it_follows_the_end_until_a_person_scrolls_up_and_again_at_the_end() -> None:
    async with pane() as (log, pilot):
        log.append_lines(f"line {n}" for n in range(100))
        await pilot.pause()
        assert "line 99" in visible(log)
        await pilot.press("k", "k", "k")
        await pilot.pause()
        assert not log.following
        before = visible(log)
        log.append_lines(["more"] * 50)
        await pilot.pause()
        assert visible(log) == before
        await pilot.press("s")
        await pilot.pause()
        assert log.following
        assert visible(log)[-1] == "more"


@pytest.mark.parametrize("wrap", [False, True])
async def test_every_line_stands_once_also_after_clear_and_filter(wrap: bool) -> None:
    async with pane() as (log, pilot):
        if wrap:
            await pilot.press("w")
        log.append_lines(["old"])
        log.clear()
        log.append_lines(["one"])
        log.filter_by("x")
        log.filter_by("")
        log.append_lines(["two"])
        await pilot.pause()
        assert [line for line in visible(log) if line] == ["one", "two"]


async def test_filter_keeps_what_matches_and_bang_turns_it_round() -> None:
    async with pane() as (log, pilot):
        log.append_lines(["GET /health", "error: disk", "GET /v1"])
        log.filter_by("get")
        await pilot.pause()
        assert log.text() == "GET /health\nGET /v1"
        log.filter_by("!get")
        log.append_lines(["get again", "warning"])
        assert log.text() == "error: disk\nwarning"


async def test_highlight_marks_exactly_the_match_and_leaves_the_rest() -> None:
    async with pane() as (log, pilot):
        log.append_lines(["İİİ x here"])
        log.highlight("X")
        await pilot.pause()
        strip = log.render_line(0)
        assert strip.text.rstrip() == "İİİ x here"
        assert [s.text for s in strip if s.style is not None and s.style.bold] == ["x"]


async def test_wrapping_goes_by_cells() -> None:
    async with pane() as (log, pilot):
        await pilot.press("w")
        log.append_lines(["漢" * 30])
        await pilot.pause()
        assert [line for line in visible(log) if line] == ["漢" * 19, "漢" * 11]


async def test_hostile_lines_are_plain() -> None:
    assert tidy("\x1b[31mred\x1b[0m \x1b]0;title\x07x [bold]\x07") == "red x [bold]·"
    async with pane() as (log, pilot):
        log.append_lines(["[/x] \x1b[2J\r\n", "\x00\x9b31m"])
        await pilot.pause()
        assert visible(log)[0].startswith("[/x]")


async def test_the_oldest_go_and_what_is_read_stays() -> None:
    async with pane() as (log, pilot):
        log.append_lines(str(n) for n in range(LINES_MOST + SLACK))
        await pilot.pause()
        await pilot.press("k", "k", "k", "k")
        await pilot.pause()
        before = visible(log)
        log.append_lines(["new"] * 500)
        await pilot.pause()
        assert visible(log) == before
        assert len(log.text().splitlines()) == LINES_MOST


async def test_all_lines_are_saved_not_only_the_shown(tmp_path: Path) -> None:
    async with pane() as (log, _):
        log.append_lines(["a", "b"])
        log.filter_by("a")
        log.save(tmp_path / "log.txt")
    assert (tmp_path / "log.txt").read_text() == "a\nb\n"
