"""A row of the list of events. Pure."""

from __future__ import annotations

from llmgw_core.api.views import EventView
from llmgw_tui.rows import words
from llmgw_tui.rows.card import severity_style
from llmgw_tui.rows.parts import Col, Look, Part

_GLYPHS = {"info": ("·", " "), "warning": ("▲", "!"), "error": ("✖", "x")}


def is_fault(event: EventView) -> bool:
    """Whether the event needs attention."""
    return event.severity != "info"


def severity_glyph(event: EventView, ascii_only: bool) -> str:
    """A sign beside the colour."""
    glyph, plain = _GLYPHS.get(event.severity, ("·", " "))
    return plain if ascii_only else glyph


def about(event: EventView) -> str:
    """What it is about: the replica, else the model, else the node."""
    return event.replica or event.model or event.node or ""


def _text(event: EventView, look: Look) -> tuple[Part, ...]:
    style = severity_style(event.severity)
    return (Part(f"{severity_glyph(event, look.ascii)} {event.text}", style),)


EVENT_COLUMNS: tuple[Col[EventView], ...] = (
    Col(key="time", title="TIME", width=8, sort=lambda e: -e.seq,
        cell=lambda e, _: (Part(words.clock(e.time), "muted"),)),
    Col(key="text", title="WHAT HAPPENED", width=58, grow=1, cell=_text),
    Col(key="about", title="ABOUT", width=14, drop=1, sort=about,
        cell=lambda e, _: (Part(about(e)),)),
    Col(key="actor", title="BY", width=12, drop=2, sort=lambda e: e.actor,
        cell=lambda e, _: (Part(e.actor, "muted"),)),
    Col(key="kind", title="KIND", width=18, drop=3, wide=True, sort=lambda e: e.kind,
        cell=lambda e, _: (Part(e.kind, "muted"),)),
)  # fmt: skip
