"""What a painted frame of a busy list costs: ``python -m tests.bench.bench_frames``.

1,000 rows of 10 columns that all change twice a second, at 160x50 without a terminal; our list and
Textual's own, one after the other. CPU time of this process, from giving the rows until the
screen is painted.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from dataclasses import dataclass

from rich.text import Text
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import DataTable

from llmgw_tui.rows.parts import Col, Look, Part
from llmgw_tui.themes import status_variable_defaults
from llmgw_tui.widgets.object_table import ObjectTable

COLUMNS = 10
SIZE = (160, 50)
EVERY_S = 0.5
WARM_UP = 2
AIM_MS = 25.0


@dataclass(frozen=True, slots=True)
class Row:
    """A row of numbers."""

    id: str
    values: tuple[int, ...]


def rows_at(tick: int, count: int, changed: int) -> list[Row]:
    """The rows at a moment: the first ``changed`` differ from those of the moment before."""
    return [
        Row(f"row{number:05}", tuple((number + column + (tick if number < changed else 0)) % 997
                                     for column in range(COLUMNS)))
        for number in range(count)
    ]  # fmt: skip


def column(number: int) -> Col[Row]:
    """One column, in the style of ours that carry a state."""
    return Col(
        key=f"c{number}", title=f"C{number}", width=14, right=number > 0,
        cell=lambda row, _: (Part("● ", "ready"), Part(f"{row.values[number]}")),
    )  # fmt: skip


class BenchApp(App[None]):
    """One list."""

    def __init__(self, stock: bool) -> None:
        super().__init__()
        self.stock = stock

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The colours that our list names."""
        return status_variable_defaults()

    def compose(self) -> ComposeResult:
        """Ours, or Textual's."""
        if self.stock:
            yield DataTable(cursor_type="row")
        else:
            yield ObjectTable([column(number) for number in range(COLUMNS)], lambda row: row.id)


def first(table: DataTable[Text], rows: list[Row]) -> None:
    """Textual's list, filled."""
    for number in range(COLUMNS):
        table.add_column(f"C{number}", key=f"c{number}", width=14)
    for row in rows:
        table.add_row(*(cell(value) for value in row.values), key=row.id)


def cell(value: int) -> Text:
    """The same content as ours."""
    return Text.assemble(("● ", "green"), f"{value}")


def update(table: DataTable[Text], old: list[Row], new: list[Row]) -> None:
    """Textual's list, with only the cells that differ given anew."""
    for before, row in zip(old, new, strict=True):
        for number, value in enumerate(row.values):
            if before.values[number] != value:
                table.update_cell(row.id, f"c{number}", cell(value))


async def painted(pilot: Pilot[None]) -> None:
    """Wait until the screen has nothing left to paint."""
    await pilot.pause()
    while pilot.app.screen._dirty_widgets:
        await pilot.pause()


async def measure(stock: bool, count: int, changed: int, frames: int) -> list[float]:
    """Milliseconds of CPU for each frame."""
    app = BenchApp(stock)
    took = []
    async with app.run_test(size=SIZE) as pilot:
        old = rows_at(0, count, changed)
        if stock:
            first(app.query_one(DataTable), old)
        else:
            app.query_one(ObjectTable).set_rows(old, Look(0.0))
        await painted(pilot)
        for tick in range(1, frames + WARM_UP + 1):
            await asyncio.sleep(EVERY_S)
            new = rows_at(tick, count, changed)
            start = time.process_time()
            if stock:
                update(app.query_one(DataTable), old, new)
            else:
                app.query_one(ObjectTable).set_rows(new, Look(tick * EVERY_S))
            await painted(pilot)
            took.append((time.process_time() - start) * 1000)
            old = new
    return took[WARM_UP:]


def main() -> int:
    """Measure both and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--frames", type=int, default=20)
    given = parser.parse_args()
    for changed in (given.rows, 1):
        for stock in (False, True):
            took = asyncio.run(measure(stock, given.rows, changed, given.frames))
            name = "DataTable" if stock else "ObjectTable"
            p95 = statistics.quantiles(took, n=20)[-1]
            aim = "" if stock else f"  (aim: below {AIM_MS:.0f} ms)"
            print(f"{name:12} {changed:5} of {given.rows} rows changed: "
                  f"median {statistics.median(took):7.1f} ms  p95 {p95:7.1f} ms{aim}")  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
