"""Themes from TOML files: ``[colors]`` are Textual's, ``[status]`` are ours.

A theme is checked whole before it is registered: Textual takes one with a bad colour and fails
later, when it is used.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from textual.color import Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

DEFAULT = "llmgw-dark"
CONTRAST_LEAST = 4.5
COLORS = frozenset({
    "primary", "secondary", "warning", "error", "success", "accent", "foreground", "background",
    "surface", "panel", "boost",
})  # fmt: skip
STATUS = {
    "ready": "#4cc38a",
    "loading": "#e5b567",
    "draining": "#6cb6ff",
    "failed": "#ff6b6b",
    "stale": "#8b949e",
    "unknown": "#b392f0",
    "spark-hi": "#6cb6ff",
}
"""Our variables, with the values that hold where a theme leaves them out."""


@dataclass(frozen=True, slots=True)
class LoadedTheme:
    """A theme that can be registered, and what is doubtful about it."""

    theme: Theme
    path: Path
    warning: str = ""


class BadTheme(Exception):
    """One sentence: what is wrong with a file."""


def status_variable_defaults() -> dict[str, str]:
    """For ``App.get_theme_variable_defaults``: every variable that our styles use."""
    return dict(STATUS)


def theme_folders(extra: Sequence[Path] = ()) -> list[Path]:
    """Where themes are looked for, the weakest first."""
    here = Path(__file__).resolve().parent
    packaged = here / "_themes"
    config = Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"))
    shipped = packaged if packaged.is_dir() else here.parent / "themes"
    return [shipped, config / "llmgw" / "themes", *extra]


def load_themes(extra: Sequence[Path] = ()) -> tuple[list[LoadedTheme], list[str]]:
    """Every theme that can be used, and sentences: about files that cannot, and about faint text.

    Of two with the same name the later counts. Nothing in a file or a folder makes this fail.
    """
    found: dict[str, LoadedTheme] = {}
    faults: list[str] = []
    for path in _files(theme_folders(extra), faults):
        try:
            loaded = load_theme(path)
        except BadTheme as error:
            faults.append(f"The theme {path} cannot be used: {error}")
        else:
            found[loaded.theme.name] = loaded
    faults += [one.warning for one in found.values() if one.warning]
    return list(found.values()), faults


def load_named(name: str, extra: Sequence[Path] = ()) -> LoadedTheme | None:
    """The theme in the strongest file of that name, without reading any other.

    None where there is no such file, or where it is bad or holds a theme of another name: only
    ``load_themes`` can tell then.
    """
    for folder in reversed(theme_folders(extra)):
        path = folder / f"{name}.toml"
        try:
            found = load_theme(path) if path.is_file() else None
        except (BadTheme, OSError):
            return None
        if found is not None:
            return found if found.theme.name == name else None
    return None


def _files(folders: Sequence[Path], faults: list[str]) -> Iterator[Path]:
    for folder in folders:
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".toml"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            faults.append(f"The folder of themes {folder} cannot be read: {error.strerror}")
            continue
        yield from (folder / name for name in names)


def load_theme(path: Path) -> LoadedTheme:
    """One theme from its file.

    Raises:
        BadTheme: it cannot be read, or a key or colour in it is none.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise BadTheme("its values are nested too deeply") from error
    except (OSError, ValueError) as error:  # ValueError: not TOML, not UTF-8, a number too long
        raise BadTheme(str(error)) from error
    unknown = set(data) - {"name", "dark", "ansi", "colors", "status"}
    if unknown:
        raise BadTheme(f"it has no key {min(unknown)!r}")
    for key in ("dark", "ansi"):
        if not isinstance(data.get(key, True), bool):
            raise BadTheme(f"{key} must be true or false")
    if not isinstance(data.get("name", ""), str):
        raise BadTheme("name must be text")
    colors = _colors(data.get("colors", {}), COLORS, "colors")
    status = {**STATUS, **_colors(data.get("status", {}), frozenset(STATUS), "status")}
    if "primary" not in colors:
        raise BadTheme("colors.primary is missing")
    if data.get("ansi"):
        # Textual's styles name variables that only its own sixteen-colour themes define.
        model = BUILTIN_THEMES["ansi-dark" if data.get("dark", True) else "ansi-light"]
        status = {**model.variables, **status}
    theme = Theme(
        name=str(data.get("name") or path.stem),
        dark=bool(data.get("dark", True)),
        ansi=bool(data.get("ansi", False)),
        variables=status,
        **colors,  # type: ignore[arg-type]
    )
    try:
        shades = theme.to_color_system().generate()
    except (ColorParseError, ValueError) as error:
        raise BadTheme(str(error)) from error
    return LoadedTheme(theme, path, "" if theme.ansi else _contrast_warning(path, shades))


def _colors(table: object, allowed: frozenset[str], name: str) -> dict[str, str]:
    if not isinstance(table, dict):
        raise BadTheme(f"{name} must be a table")
    for key, value in table.items():
        if key not in allowed:
            raise BadTheme(f"{name}.{key} is not a colour; there are {', '.join(sorted(allowed))}")
        try:
            Color.parse(value)
        except (ColorParseError, TypeError, AttributeError) as error:
            raise BadTheme(f"{name}.{key} = {value!r} is not a colour") from error
    return dict(table)


def _contrast_warning(path: Path, shades: Mapping[str, str]) -> str:
    """About the colours as Textual made them, also where the file leaves one out."""
    ground = Color.parse(shades["background"])
    text = ground + Color.parse(shades["foreground"])
    if text.ansi is not None or ground.ansi is not None:
        return ""  # the terminal decides what they look like
    ratio = contrast(text, ground)
    if ratio >= CONTRAST_LEAST:
        return ""
    return (
        f"The theme {path} is hard to read: colors.foreground on colors.background has a contrast "
        f"of {ratio:.1f}; {CONTRAST_LEAST} is the least"
    )


def contrast(one: Color, other: Color) -> float:
    """The ratio of two colours' luminance, 1 to 21 (WCAG 2.2, 1.4.3)."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: Color) -> float:
    def linear(part: int) -> float:
        share = part / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    return 0.2126 * linear(color.r) + 0.7152 * linear(color.g) + 0.0722 * linear(color.b)
