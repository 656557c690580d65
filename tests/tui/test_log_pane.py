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


@pytest.mark.parametrize("size", [(80, 24), (40, 12)])
async def test_it_follows_the_end_until_a_person_scrolls_up_and_again_at_the_end(
    size: tuple[int, int],
) -> None:
    async with pane(size) as (log, pilot):
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


async def test_a_batch_beyond_the_bound_keeps_its_end() -> None:
    async with pane() as (log, pilot):
        log.append_lines(["old"] * 10)
        log.append_lines(str(n) for n in range(2 * LINES_MOST))
        await pilot.pause()
        lines = log.text().splitlines()
        assert len(lines) == LINES_MOST
        assert (lines[0], lines[-1]) == (str(LINES_MOST), str(2 * LINES_MOST - 1))
        assert visible(log)[-1] == lines[-1]


async def test_n_goes_from_match_to_match_and_round_and_stops_following() -> None:
    async with pane() as (log, pilot):
        log.append_lines(f"{'hit' if n % 40 == 5 else 'line'} {n}" for n in range(100))
        log.highlight("HIT")
        await pilot.pause()
        assert "hit 85" not in visible(log)
        await pilot.press("N")
        assert "hit 85" in visible(log)
        assert not log.following
        for shown in ("hit 45", "hit 5", "hit 85"):
            await pilot.press("N")
            assert shown in visible(log)
        await pilot.press("n")
        assert "hit 5" in visible(log)


async def test_a_row_scrolled_to_the_right_stays_there_as_lines_come() -> None:
    async with pane() as (log, pilot):
        log.append_lines(["0123456789" * 20])
        await pilot.pause()
        log.scroll_to(x=105, animate=False)
        await pilot.pause()
        log.append_lines(["short"] * 3000)
        await pilot.press("g")
        await pilot.pause()
        log.scroll_to(y=0, animate=False)
        await pilot.pause()
        assert visible(log)[0].startswith("56789")


async def test_a_mark_is_seen_whatever_the_filter() -> None:
    async with pane() as (log, pilot):
        log.append_lines(["a", "b"])
        log.filter_by("a")
        await pilot.press("m")
        log.append_lines(["a2"])
        await pilot.pause()
        assert [line[:2] for line in visible(log) if line] == ["a", "──", "a2"]


async def test_an_empty_pane_says_why() -> None:
    async with pane() as (log, pilot):
        log.empty_text = "nothing [/yet]"
        await pilot.pause()
        assert visible(log)[0] == "nothing [/yet]"
        log.append_lines(["a", "b"])
        log.filter_by("zzz")
        await pilot.pause()
        assert visible(log)[0] == "None of 2 lines matches zzz"


async def test_following_is_told_when_it_changes() -> None:
    told: list[bool] = []

    class Told(Shown):
        def on_log_pane_follow_changed(self, event: LogPane.FollowChanged) -> None:
            told.append(event.following)

    app = Told()
    async with app.run_test(size=(40, 12)) as pilot:
        log = app.query_one(LogPane)
        log.focus()
        log.append_lines(["x"] * 50)
        await pilot.press("s", "s")
        await pilot.pause()
    assert told == [False, True]
