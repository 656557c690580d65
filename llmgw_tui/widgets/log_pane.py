"""A log as it grows: plain lines, painted only where they are looked at."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from llmgw_tui.text import clean

LINES_MOST = 20_000
SLACK = 1_000
"""Lines beyond the bound before the oldest go, many at once."""
LINE_MOST = 4_000
TAB = "    "
MARK = "─" * 40

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


class LogPane(ScrollView, can_focus=True):
    """Lines of text; follows the end until a person scrolls up."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "log-pane--found", "log-pane--here", "log-pane--mark", "log-pane--note",
    }  # fmt: skip
    DEFAULT_CSS = """
    LogPane { height: 1fr; width: 1fr; background: transparent; scrollbar-size-vertical: 1;
      scrollbar-size-horizontal: 1;
      & > .log-pane--found { background: $warning 40%; text-style: bold; }
      & > .log-pane--here { background: $primary 30%; }
      & > .log-pane--mark { color: $text-accent; text-style: bold; }
      & > .log-pane--note { color: $text-muted; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "follow", "Follow", show=False, id="log-follow"),
        Binding("w", "wrap", "Wrap", show=False, id="log-wrap"),
        Binding("m", "mark", "Mark", show=False, id="log-mark"),
        Binding("n", "next(1)", "Next match", show=False, id="log-next"),
        Binding("N", "next(-1)", "Match before", show=False, id="log-before"),
        Binding("j", "scroll_down", "Down", show=False, id="log-down"),
        Binding("k", "scroll_up", "Up", show=False, id="log-up"),
        Binding("g", "scroll_home", "First", show=False, id="log-first"),
        Binding("G", "scroll_end", "Last", show=False, id="log-last"),
    ]

    class FollowChanged(Message):
        """The pane follows the end from now on, or no longer does."""

        def __init__(self, following: bool) -> None:
            super().__init__()
            self.following = following

    def __init__(
        self, *, empty_text: str = "", id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.empty_text = empty_text
        """Stands there before the first line."""
        self.following = True
        self.wrapping = False
        self.filter_text = ""
        self.highlight_text = ""
        self._lines: deque[str] = deque()
        self._shown: list[str] = []
        self._folded: list[str] = []
        self._widest = 1
        """Cells of the widest line shown; what has gone may have been wider."""
        self._here: int | None = None
        """Which of the folded lines is the match that a person went to."""

    # lines

    def append_lines(self, lines: Iterable[str]) -> None:
        """Add lines at the end; the oldest beyond the bound go."""
        # Of a batch beyond the bound only the end is looked at.
        new = [tidy(line) for line in deque(lines, maxlen=LINES_MOST + SLACK)]
        too_many = len(self._lines) + len(new) - LINES_MOST
        top, gone = int(self.scroll_offset.y), 0
        if too_many > SLACK:
            gone = self._drop_oldest(min(too_many, len(self._lines)))
            new = new[-LINES_MOST:]
        self._lines.extend(new)
        self._show(new)
        self._resized()
        if gone and not self.following:
            self.scroll_to(y=max(top - gone, 0), animate=False, force=True)

    def _show(self, lines: Iterable[str]) -> None:
        """Add what passes the filter to what is painted."""
        added = [line for line in lines if self._passes(line)]
        folded = self._fold(added)
        self._shown += added
        self._folded += folded
        self._widest = max(self._widest, *map(cell_len, folded), 1)

    def _drop_oldest(self, count: int) -> int:
        """Keep the bound; how many of the folded lines went."""
        dropped = [self._lines.popleft() for _ in range(count)]
        passed = [line for line in dropped if self._passes(line)]
        gone = len(self._fold(passed))
        del self._shown[: len(passed)]
        del self._folded[:gone]
        if self._here is not None:
            self._here = self._here - gone if self._here >= gone else None
        return gone

    def clear(self) -> None:
        """No lines."""
        self._lines.clear()
        self._rebuild()

    def text(self) -> str:
        """What is shown, for copying."""
        return "\n".join(self._shown)

    def save(self, path: Path) -> None:
        """Write all lines, the hidden ones too, to a file.

        Raises:
            OSError: it cannot be written.
        """
        path.write_text("".join(f"{line}\n" for line in self._lines), encoding="utf-8")

    def filter_by(self, text: str) -> None:
        """Show only lines that hold this, case ignored; a leading ! turns it round."""
        self.filter_text = text.strip()
        self._rebuild()

    def highlight(self, text: str) -> None:
        """Make matches stand out, with everything round them left in place."""
        self.highlight_text = text.strip()
        self._here = None
        self.refresh()

    def _passes(self, line: str) -> bool:
        wanted = self.filter_text.removeprefix("!").lower()
        if not wanted or line == MARK:
            return True
        return (wanted in line.lower()) is not self.filter_text.startswith("!")

    def _rebuild(self) -> None:
        self._shown, self._folded = [], []
        self._widest, self._here = 1, None
        self._show(self._lines)
        self._resized()

    def _fold(self, lines: list[str]) -> list[str]:
        width = max(self.size.width - 1, 1)
        if not self.wrapping:
            return list(lines)
        return [piece for line in lines for piece in _pieces(line, width)]

    def _resized(self) -> None:
        self.virtual_size = Size(self._widest, len(self._folded))
        if self.following:
            self.scroll_to(y=self.max_scroll_y, animate=False, force=True)
        self.refresh()

    def on_resize(self) -> None:
        """Another width: wrapped lines differ."""
        if self.wrapping:
            self._rebuild()
        else:
            self._resized()

    # keys

    def watch_scroll_y(self, old: float, new: float) -> None:
        """Scrolling up stops following; reaching the end goes on."""
        super().watch_scroll_y(old, new)
        at_end = new >= self.max_scroll_y
        if new < old and self.following and not at_end:
            self._follow(False)
        elif new > old and at_end and not self.following:
            self._follow(True)

    def _follow(self, on: bool) -> None:
        self.following = on
        self.post_message(self.FollowChanged(on))

    def action_follow(self) -> None:
        """Follow the end, or stay here."""
        self._follow(not self.following)
        if self.following:
            self.scroll_to(y=self.max_scroll_y, animate=False, force=True)

    def action_wrap(self) -> None:
        """Fold long lines, or let them run out to the right."""
        self.wrapping = not self.wrapping
        self._rebuild()

    def action_mark(self) -> None:
        """Draw a line under what was read."""
        self.append_lines([MARK])

    def action_next(self, by: int) -> None:
        """Go to the next line that matches the highlight, or the one before; round at the ends."""
        wanted = (self.highlight_text or self.filter_text).lower()
        found = [i for i, line in enumerate(self._folded) if wanted and wanted in line.lower()]
        if not found:
            return
        top, height = int(self.scroll_offset.y), max(self.size.height, 1)
        at = self._here
        if at is None or not top <= at < top + height:  # from what is seen, then
            at = top - 1 if by > 0 else top + height
        ahead = [i for i in found if (i > at if by > 0 else i < at)] or found
        self._here = ahead[0] if by > 0 else ahead[-1]
        if self.following:
            self._follow(False)
        if not top <= self._here < top + height:
            self.scroll_to(y=max(self._here - height // 2, 0), animate=False, force=True)
        self.refresh()

    # painting

    def render_line(self, y: int) -> Strip:
        """One visible line."""
        left, top = self.scroll_offset
        number, width = y + int(top), self.size.width
        base = self.rich_style
        if not self._folded and y == 0:
            note = base + self.get_component_rich_style("log-pane--note", partial=True)
            return Strip([Segment(self._why_empty(), note)]).crop_extend(0, width, base)
        if number >= len(self._folded):
            return Strip.blank(width, base)
        line = self._folded[number]
        if number == self._here:
            base += self.get_component_rich_style("log-pane--here", partial=True)
        strip = Strip(self._segments(line, base))
        return strip.crop_extend(int(left), int(left) + width, base)

    def _why_empty(self) -> str:
        if not self._lines:
            return clean(self.empty_text)
        return f"None of {len(self._lines)} lines matches {clean(self.filter_text)}"

    def _segments(self, line: str, base: Style) -> list[Segment]:
        if line.startswith("────") and not line.strip("─"):
            mark = self.get_component_rich_style("log-pane--mark", partial=True)
            return [Segment(line, base + mark)]
        if not self.highlight_text:
            return [Segment(line, base)]
        found = base + self.get_component_rich_style("log-pane--found", partial=True)
        pieces, at = [], 0
        for match in re.finditer(re.escape(self.highlight_text), line, re.IGNORECASE):
            pieces += [Segment(line[at : match.start()], base), Segment(match[0], found)]
            at = match.end()
        return [*pieces, Segment(line[at:], base)]


def tidy(line: str) -> str:
    """A log line without escape sequences or anything else that a terminal would obey."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    line = line.rstrip("\r\n").replace("\t", TAB)[:LINE_MOST]
    # Most lines are plain already, and would only push names out of the cache of clean.
    return line if line.isascii() and line.isprintable() else clean(line)


def _pieces(line: str, width: int) -> list[str]:
    """A line in pieces of at most so many cells; an empty one is one piece."""
    if not line.isascii():
        return chop_cells(line, width)
    return [line[at : at + width] for at in range(0, len(line), width)] or [""]
