"""How numbers, times and states are written. Pure; None is unknown and is shown as –."""

from __future__ import annotations

import time
from dataclasses import dataclass

UNKNOWN = "–"


def number(value: float | None, digits: int = 0) -> str:
    """A plain number; from ten thousand on shortened (``12.3k``)."""
    if value is None:
        return UNKNOWN
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.1f}{unit}"
    return f"{value:.{digits}f}"


def share(value: float | None) -> str:
    """0 to 1 as per cent."""
    return UNKNOWN if value is None else f"{value * 100:.0f} %"


def gib(value: float | None) -> str:
    """GiB, with one decimal below a hundred."""
    if value is None:
        return UNKNOWN
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def millis(seconds: float | None) -> str:
    """A short time in milliseconds, or seconds from ten on."""
    if seconds is None:
        return UNKNOWN
    if seconds >= 10:
        return f"{seconds:.0f} s"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def span(seconds: float | None) -> str:
    """A length of time in its largest unit or two: ``8 s``, ``3 min``, ``2 h 05``, ``4 d``."""
    if seconds is None:
        return UNKNOWN
    whole = max(0, int(seconds))
    if whole < 100:
        return f"{whole} s"
    if whole < 6000:
        return f"{whole // 60} min"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02}"
    return f"{whole // 86400} d"


def age(since: float, now: float) -> str:
    """How long ago; unknown where the time is not known (0)."""
    return span(now - since) if since else UNKNOWN


def clock(at: float) -> str:
    """The time of day, local."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def day_and_clock(at: float, now: float) -> str:
    """The time of day; with the date where it was not today."""
    then, today = time.localtime(at), time.localtime(now)
    same = then[:3] == today[:3]
    return time.strftime("%H:%M:%S" if same else "%Y-%m-%d %H:%M:%S", then)


@dataclass(frozen=True, slots=True)
class Mark:
    """How a state looks: never by colour alone."""

    glyph: str
    ascii: str
    style: str
    """The name of a status colour of the theme."""
    fault: bool = False
    """Needs attention."""


_UNKNOWN_STATE = Mark("?", "?", "unknown")

NODE_MARKS = {
    "connecting": Mark("◔", "~", "loading"),
    "ready": Mark("●", "*", "ready"),
    "cordoned": Mark("◌", "-", "draining"),
    "draining": Mark("◐", "<", "draining"),
    "unreachable": Mark("✖", "x", "failed", fault=True),
    "refused": Mark("▲", "!", "failed", fault=True),
}
REPLICA_MARKS = {
    "pending": Mark("◌", ".", "stale", fault=True),
    "fetching": Mark("◔", "~", "loading"),
    "starting": Mark("◔", "~", "loading"),
    "loading": Mark("◑", "~", "loading"),
    "ready": Mark("●", "*", "ready"),
    "draining": Mark("◐", "<", "draining"),
    "stopping": Mark("◐", "<", "draining"),
    "stopped": Mark("○", "o", "stale"),
    "failed": Mark("✖", "x", "failed", fault=True),
    "unknown": Mark("?", "?", "unknown", fault=True),
}
MODEL_MARKS = {
    "ready": Mark("●", "*", "ready"),
    "starting": Mark("◔", "~", "loading"),
    "pending": Mark("◌", ".", "stale", fault=True),
    "failed": Mark("✖", "x", "failed", fault=True),
    "degraded": Mark("◐", "<", "draining", fault=True),
    "stopped": Mark("○", "o", "stale"),
    "on demand": Mark("○", "o", "loading"),
}
GATEWAY_MARKS = {
    "starting": Mark("◔", "~", "loading"),
    "serving": Mark("●", "*", "ready"),
    "draining": Mark("◐", "<", "draining"),
    "down": Mark("✖", "x", "failed", fault=True),
}
VERSION_MARKS = {
    "pulling": Mark("◔", "~", "loading"),
    "done": Mark("●", "*", "ready"),
    "incomplete": Mark("◌", ".", "stale", fault=True),
    "failed": Mark("✖", "x", "failed", fault=True),
    "damaged": Mark("▲", "!", "failed", fault=True),
}
FILE_MARKS = {
    "waiting": Mark("◌", ".", "stale"),
    "fetching": Mark("◔", "~", "loading"),
    "checking": Mark("◑", "~", "loading"),
    "done": Mark("●", "*", "ready"),
    "failed": Mark("✖", "x", "failed", fault=True),
    "damaged": Mark("▲", "!", "failed", fault=True),
}
MODES = {"always": "always", "ondemand": "on demand", "stopped": "stopped"}


def mark_of(marks: dict[str, Mark], state: str) -> Mark:
    """The look of a state; a state this console does not know is shown with a question mark."""
    return marks.get(state, _UNKNOWN_STATE)


def mode_words(mode: str, least: int, most: int) -> str:
    """A run mode with its count: ``always 2``, ``on demand max 2``, ``stopped``."""
    match mode.replace(" ", ""):
        case "always":
            return f"always {least}" if least == most else f"always {least}…{most}"
        case "ondemand":
            return f"on demand max {most}"
        case "stopped":
            return "stopped"
    return mode
