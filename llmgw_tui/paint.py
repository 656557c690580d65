"""From the names of styles to the colours of the theme that is in force."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from llmgw_tui.rows.parts import Part
from llmgw_tui.text import clean

STYLES = {
    "": "",
    "muted": "$foreground 60%",
    "strong": "bold",
    "accent": "bold $text-primary",
    "brand": "bold $text-accent",
    "badge": "bold reverse $text-warning",
    "key": "bold $text-accent",
    "ready": "$ready",
    "loading": "$loading",
    "draining": "$draining",
    "failed": "bold $failed",
    "stale": "$stale",
    "unknown": "$unknown",
    "spark": "$spark-hi",
}
"""What each style name of ``rows.parts`` is, in Textual's words."""


def content(parts: Sequence[Part]) -> Content:
    """Styled text in which nothing from outside is read as markup or control code."""
    return Content.assemble(*((clean(part.text), STYLES.get(part.style, "")) for part in parts))


def clean_lines(text: str) -> str:
    """Text of several lines, each of them plain."""
    return "\n".join(clean(line) for line in text.split("\n"))
