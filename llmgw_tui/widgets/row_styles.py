"""The looks that a list knows by name."""

from __future__ import annotations

STYLES = {
    "head": "color: $text-muted; text-style: bold;",
    "cursor": "background: $primary 40%; text-style: bold;",
    "cursor-blurred": "background: $boost;",
    "muted": "color: $text-muted;",
    "strong": "text-style: bold;",
    "accent": "color: $text-primary; text-style: bold;",
    "brand": "color: $text-accent; text-style: bold;",
    "key": "color: $text-accent; text-style: bold;",
    "badge": "color: $text-warning; text-style: bold reverse;",
    "ready": "color: $ready;",
    "loading": "color: $loading;",
    "draining": "color: $draining;",
    "failed": "color: $failed; text-style: bold;",
    "stale": "color: $stale;",
    "unknown": "color: $unknown;",
    "spark": "color: $spark-hi;",
}
"""What each is in Textual's CSS: the head, what lies behind the cursor, and those of the parts of
cells (see ``rows.parts``)."""

STYLES_CSS = "\n".join(f"& > .object-table--{name} {{ {css} }}" for name, css in STYLES.items())
