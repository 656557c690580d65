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

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


class LogPane(ScrollView, can_focus=True):
    """Lines of text; follows the end until a person scrolls up."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"log-pane--found", "log-pane--mark", "log-pane--bad"}
    DEFAULT_CSS = """
    LogPane { height: 1fr; width: 1fr; background: transparent; scrollbar-size-vertical: 1;
      scrollbar-size-horizontal: 1;
      & > .log-pane--found { background: $warning 40%; text-style: bold; }
      & > .log-pane--mark { color: $text-accent; text-style: bold; }
      & > .log-pane--bad { color: $text-error; }
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

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.following = True
        self.wrapping = False
        self.filter_text = ""
        self.highlight_text = ""
        self._lines: deque[str] = deque()
        self._shown: list[str] = []
        self._folded: list[str] = []

    # lines

    def append_lines(self, lines: Iterable[str]) -> None:
        """Add lines at the end; the oldest beyond the bound go."""
        new = [tidy(line) for line in lines]
        self._lines.extend(new)
        if len(self._lines) > LINES_MOST + SLACK:
            self._drop_oldest(len(self._lines) - LINES_MOST)
            return
        added = [line for line in new if self._passes(line)]
        self._shown += added
        self._folded += self._fold(added)
        self._resized()

    def _drop_oldest(self, count: int) -> None:
        """Keep the bound; what a person reads stays where it is on the screen."""
        dropped = [self._lines.popleft() for _ in range(count)]
        gone = len(self._fold([line for line in dropped if self._passes(line)]))
        top = self.scroll_offset.y
        self._rebuild()
        if not self.following:
            self.scroll_to(y=max(top - gone, 0), animate=False, force=True)

    def clear(self) -> None:
        """No lines."""
        self._lines.clear()
        self._rebuild()

    def text(self) -> str:
        """What is shown, for copying."""
        return "\n".join(self._shown)

    def save(self, path: Path) -> None:
        """Write all lines, the hidden ones too, to a file."""
        path.write_text("".join(f"{line}\n" for line in self._lines), encoding="utf-8")

    def filter_by(self, text: str) -> None:
        """Show only lines that hold this, case ignored; a leading ! turns it round."""
        self.filter_text = text.strip()
        self._rebuild()

    def highlight(self, text: str) -> None:
        """Make matches stand out, with everything round them left in place."""
        self.highlight_text = text.strip()
        self.refresh()

    def _passes(self, line: str) -> bool:
        wanted = self.filter_text.removeprefix("!").lower()
        if not wanted:
            return True
        return (wanted in line.lower()) is not self.filter_text.startswith("!")

    def _rebuild(self) -> None:
        self._shown = [line for line in self._lines if self._passes(line)]
        self._folded = self._fold(self._shown)
        self._resized()

    def _fold(self, lines: list[str]) -> list[str]:
        width = max(self.size.width - 1, 1)
        if not self.wrapping:
            return list(lines)
        return [piece for line in lines for piece in chop_cells(line, width) or [""]]

    def _resized(self) -> None:
        width = max((cell_len(line) for line in self._folded[-2000:]), default=1)
        self.virtual_size = Size(max(width, 1), len(self._folded))
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
        self.append_lines(["─" * 40])

    def action_next(self, by: int) -> None:
        """Go to the next line that matches the highlight."""
        found = [i for i, line in enumerate(self._folded) if self._is_found(line)]
        top = int(self.scroll_offset.y)
        later = [i for i in found if i > top] if by > 0 else [i for i in found if i < top]
        if later:
            self.scroll_to(y=later[0] if by > 0 else later[-1], animate=False, force=True)

    def _is_found(self, line: str) -> bool:
        wanted = self.highlight_text or self.filter_text
        return bool(wanted) and wanted.lower() in line.lower()

    # painting

    def render_line(self, y: int) -> Strip:
        """One visible line."""
        left, top = self.scroll_offset
        number, width = y + int(top), self.size.width
        base = self.rich_style
        if number >= len(self._folded):
            return Strip.blank(width, base)
        line = self._folded[number]
        strip = Strip(self._segments(line, base))
        return strip.crop_extend(int(left), int(left) + width, base)

    def _segments(self, line: str, base: Style) -> list[Segment]:
        if line.startswith("────"):
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
    return clean(_ANSI.sub("", line.replace("\t", TAB))[:LINE_MOST])
