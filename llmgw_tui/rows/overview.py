"""The numbers and the events of the overview. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from llmgw_core.api.views import EventView, ModelView
from llmgw_tui.rows import words
from llmgw_tui.rows.card import scale_for, severity_style
from llmgw_tui.rows.events import severity_glyph
from llmgw_tui.rows.parts import Part
from llmgw_tui.spark import spark

LABEL_WIDTH = 10
VALUE_WIDTH = 7
SCALE_WIDTH = 9
TIME_WIDTH = 9


def numbers(model: ModelView, width: int, *, ascii_only: bool) -> list[list[Part]]:
    """Lines for the selected model: three curves on fixed scales, and what it is."""
    rows = (
        ("tokens/s", model.tokens_history, scale_for(model.tokens_history), model.tokens_per_s),
        ("running", model.running_history, scale_for(model.running_history, 8), model.running),
        ("waiting", model.waiting_history, scale_for(model.waiting_history, 8), model.waiting),
    )
    lines = [
        _curve(label, values, high, now, width, ascii_only) for label, values, high, now in rows
    ]
    mode = words.mode_words(model.mode, model.scaling.min, model.scaling.max)
    room = model.headroom.free
    lines.append([
        Part(f"{model.replicas.ready}"), Part(f" of {model.replicas.total} ready", "muted"),
        Part("   "), Part(mode),
        *([Part("   room for ", "muted"), Part(str(room)), Part(" more", "muted")]
          if room is not None else []),
    ])  # fmt: skip
    if model.reason:
        lines.append([Part(model.reason, words.mark_of(words.MODEL_MARKS, model.state).style)])
    return lines


def _curve(
    label: str, values: Sequence[float | None], high: float, now: float | None, width: int,
    ascii_only: bool,
) -> list[Part]:  # fmt: skip
    room = width - LABEL_WIDTH - VALUE_WIDTH - (SCALE_WIDTH if width >= 44 else 0)
    curve = spark(values, 0.0, high, max(4, room), ascii=ascii_only)
    scale = f"{'0…' + f'{high:g}':>{SCALE_WIDTH}}" if width >= 44 else ""
    value = words.number(now)
    return [
        Part(f"{label:<{LABEL_WIDTH}}", "muted"), Part(curve, "spark"),
        Part(f"{value:>{VALUE_WIDTH}}", "strong" if now is not None else "muted"),
        Part(scale, "muted"),
    ]  # fmt: skip


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
