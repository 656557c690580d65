"""The numbers and the events of the overview. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmgw_core.api.views import EventView, ModelView
from llmgw_tui.rows import words
from llmgw_tui.rows.card import scale_for, severity_style
from llmgw_tui.rows.events import severity_glyph
from llmgw_tui.rows.parts import Part
from llmgw_tui.rows.plot import columns, newest
from llmgw_tui.spark import spark

LABEL_WIDTH = 10
VALUE_WIDTH = 7
SCALE_WIDTH = 9
TIME_WIDTH = 9
WITH_SCALE = 44
"""From this width on the scale is written beside a curve."""
TALL = 14
TALL_CURVE = 3
"""From this height on curves are several lines high."""


def numbers(model: ModelView, width: int, height: int, *, ascii_only: bool) -> list[list[Part]]:
    """Lines for the selected model: three curves on fixed scales, and what it is.

    Where there is room the curves are several lines high.
    """
    rows = (
        ("tokens/s", model.tokens_history, scale_for(model.tokens_history), model.tokens_per_s),
        ("running", model.running_history, scale_for(model.running_history, 8), model.running),
        ("waiting", model.waiting_history, scale_for(model.waiting_history, 8), model.waiting),
    )
    high = height >= TALL
    lines: list[list[Part]] = []
    for label, values, top, now in rows:
        curve = Curve(label, values, top, now, width, ascii_only)
        lines += curve.tall(TALL_CURVE) if high else [curve.flat()]
        lines += [[Part("")]] if high else []
    lines += _standing(model)
    return lines


def _standing(model: ModelView) -> list[list[Part]]:
    mode = words.mode_words(model.mode, model.scaling.min, model.scaling.max)
    room = model.headroom.free
    line = [
        Part(f"{model.replicas.ready}"), Part(f" of {model.replicas.total} ready", "muted"),
        Part("   "), Part(mode),
    ]  # fmt: skip
    if room is not None:
        line += [Part("   room for ", "muted"), Part(str(room)), Part(" more", "muted")]
    if not model.reason:
        return [line]
    return [line, [Part(model.reason, words.mark_of(words.MODEL_MARKS, model.state).style)]]


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve with its label to the left and its value and scale to the right."""

    label: str
    values: Sequence[float | None]
    top: float
    now: float | None
    width: int
    ascii: bool

    @property
    def _room(self) -> int:
        scale = SCALE_WIDTH if self.width >= WITH_SCALE else 0
        return max(4, self.width - LABEL_WIDTH - VALUE_WIDTH - scale)

    def _value(self) -> Part:
        text = f"{words.number(self.now):>{VALUE_WIDTH}}"
        return Part(text, "muted" if self.now is None else "strong")

    def _scale(self, text: str) -> Part:
        return Part(f"{text:>{SCALE_WIDTH}}" if self.width >= WITH_SCALE else "", "muted")

    def flat(self) -> list[Part]:
        """One line."""
        curve = spark(self.values, 0.0, self.top, self._room, ascii=self.ascii)
        label = Part(f"{self.label:<{LABEL_WIDTH}}", "muted")
        return [label, Part(curve, "spark"), self._value(), self._scale(f"0…{self.top:g}")]

    def tall(self, height: int) -> list[list[Part]]:
        """Several lines; the value stands beside the lowest, the scale at both ends."""
        drawn = columns(newest(self.values, self._room), self.top, height, ascii_only=self.ascii)
        lines = []
        for number, text in enumerate(drawn):
            first, last = number == 0, number == height - 1
            label = Part(f"{self.label if first else '':<{LABEL_WIDTH}}", "muted")
            value = self._value() if last else Part(" " * VALUE_WIDTH)
            scale = self._scale(f"{self.top:g}" if first else "0" if last else "")
            lines.append([label, Part(text, "spark"), value, scale])
        return lines


def ticker(
    events: Iterable[EventView], width: int, height: int, *, ascii_only: bool
) -> list[list[Part]]:
    """The newest events first, wrapped under their time, as many lines as there is room for."""
    lines: list[list[Part]] = []
    room = max(8, width - TIME_WIDTH - 2)
    for event in events:
        glyph = severity_glyph(event, ascii_only)
        style = severity_style(event.severity)
        wrapped = textwrap.wrap(event.text, room, max_lines=4, placeholder=" …") or [""]
        lines.append([
            Part(words.clock(event.time) + " ", "muted"), Part(f"{glyph} ", style),
            Part(wrapped[0], style),
        ])  # fmt: skip
        lines += [[Part(" " * (TIME_WIDTH + 2)), Part(text, style)] for text in wrapped[1:]]
        if len(lines) >= height:
            break
    return lines[:height]
