"""What stands on the card of a version in the mirror. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from llmgw_core.api.views import EventView, MirrorFileView, MirrorVersionView
from llmgw_tui.rows import amounts, words
from llmgw_tui.rows.card import Grid, Line, Section, entry, events_section
from llmgw_tui.rows.mirror import amount, sentence, state_words
from llmgw_tui.rows.parts import Part, stated
from llmgw_tui.state import version_key

SHA_SHOWN = 12


def version_card(
    version: MirrorVersionView, events: Iterable[EventView], now: float, ascii_only: bool
) -> list[Section]:
    """Everything known about a version."""
    mark = words.mark_of(words.VERSION_MARKS, version.state)
    wrong = sentence(version)
    key = version_key(version)
    about = [e for e in events if e.kind.startswith("mirror.") and key in e.text.split()]
    status = [
        entry("state", stated(mark, state_words(version), ascii_only)),
        *([entry("why", Part(wrong, mark.style))] if wrong else []),
        entry("size", amount(version)),
        entry("used by", ", ".join(version.used_by) or "no model"),
        entry("on nodes", ", ".join(version.nodes) or "none"),
    ]
    origin = [
        entry("source", version.source or words.UNKNOWN),
        entry("revision", version.revision or words.UNKNOWN),
        entry("created", _created(version.created, now)),
    ]
    return [
        Section("Status", tuple(status)),
        Section("Origin", tuple(origin)),
        Section(f"Files  {len(version.files)}", _files(version.files, ascii_only)),
        events_section(about, now),
    ]


def _created(created: float | None, now: float) -> str:
    if not created:
        return words.UNKNOWN
    return f"{words.day_and_clock(created, now)}, {words.age(created, now)} ago"


def _files(files: tuple[MirrorFileView, ...], ascii_only: bool) -> tuple[Line | Grid, ...]:
    if not files:
        return (entry("", Part("None known yet.", "muted")),)
    lines: list[Line | Grid] = []
    for file in files:
        lines.append(_file(file, ascii_only))
        if file.error:
            lines.append(entry("", Part(f"  {file.error}", "failed")))
    return tuple(lines)


def _file(file: MirrorFileView, ascii_only: bool) -> Grid:
    """State, bytes, rate or SHA-256, and the name in the room that is left."""
    mark = words.mark_of(words.FILE_MARKS, file.state)
    whole = file.state in {"done", "damaged"} and file.bytes_total is not None
    amount = (
        amounts.size(file.bytes_total)
        if whole
        else amounts.done_of(file.bytes_done, file.bytes_total)
    )
    moving = file.rate is not None
    note = amounts.rate(file.rate) if moving else (file.sha256 or words.UNKNOWN)[:SHA_SHOWN]
    return Grid((
        (stated(mark, file.state, ascii_only), 10),
        (Part(amount), -16),
        (Part(note, "" if moving else "muted"), SHA_SHOWN),
        (Part(file.file), 0),
    ))  # fmt: skip
