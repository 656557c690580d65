"""Theme files: what ships works, and what is broken is a sentence."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.color import Color
from textual.widgets import Static

from llmgw_tui import themes

ROOT = Path(__file__).resolve().parents[2]


class Shown(App[None]):
    """Something in our colours."""

    CSS = "Static { color: $ready; background: $surface; border: round $failed; }"

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.status_variable_defaults()

    def compose(self) -> ComposeResult:
        yield Static("text")


@pytest.fixture(autouse=True)
def _no_own_themes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def shipped() -> list[themes.LoadedTheme]:
    return themes.load_themes()[0]


async def test_every_shipped_theme_loads_and_is_painted() -> None:
    loaded, faults = themes.load_themes()
    names = {one.theme.name for one in loaded}
    assert faults == []
    assert names == {
        "llmgw-dark", "llmgw-light", "high-contrast", "deuteranopia", "tritanopia", "ansi",
        "harbour", "moor",
    }  # fmt: skip
    app = Shown()
    async with app.run_test(size=(40, 12)) as pilot:
        for one in loaded:
            app.register_theme(one.theme)
            app.theme = one.theme.name
            await pilot.pause()


def test_text_of_every_shipped_theme_can_be_read() -> None:
    assert [one.warning for one in shipped() if one.warning] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "cannot be used"),
        ('[colors]\nprimary = "blurple"\n', "colors.primary = 'blurple' is not a colour"),
        ('[colors]\nprimray = "red"\n', "colors.primray is not a colour"),
        ("[colors]\nprimary = 5\n", "colors.primary"),
        ('[status]\nready = "red"\n', "colors.primary is missing"),
        ("colours = 1\n", "no key 'colours'"),
        ('dark = "false"\n[colors]\nprimary = "red"\n', "dark must be true or false"),
        ("a = " + "[" * 5000, "nested too deeply"),
        ("a = " + "1" * 5000, "cannot be used"),
        ('name = 5\n[colors]\nprimary = "red"\n', "name must be text"),
    ],
)
def test_a_broken_file_is_a_sentence_and_the_others_load(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "bad.toml").write_text(text)
    loaded, faults = themes.load_themes([tmp_path])
    assert len(loaded) == len(shipped())
    assert len(faults) == 1
    assert words in faults[0]
    assert "bad.toml" in faults[0]


def test_states_of_every_shipped_theme_can_be_read_on_every_ground() -> None:
    faint = [
        (one.theme.name, state, ground)
        for one in shipped()
        if not one.theme.ansi
        for state, color in one.theme.variables.items()
        for ground in (one.theme.background, one.theme.surface, one.theme.panel)
        if ground and themes.contrast(Color.parse(color), Color.parse(ground)) < 4.5
    ]
    assert faint == []


@pytest.mark.parametrize("ground", ["", 'background = "#000000"\n'])
def test_faint_text_is_told_and_the_theme_is_taken(tmp_path: Path, ground: str) -> None:
    (tmp_path / "faint.toml").write_text(
        f'[colors]\nprimary = "red"\nforeground = "#333333"\n{ground}'
    )
    loaded, sentences = themes.load_themes([tmp_path])
    assert "faint" in {one.theme.name for one in loaded}
    assert len(sentences) == 1
    assert "faint.toml is hard to read" in sentences[0]


async def test_what_the_loader_lets_through_never_ends_the_app(tmp_path: Path) -> None:
    texts = {
        "words": 'name = "my [/x] theme"\n[colors]\nprimary = "red"\n',
        "mixed": '[colors]\nprimary = "ansi_red"\nbackground = "ansi_default"\n',
        "clear": '[colors]\nprimary = "transparent"\n[status]\nready = "rgba(1,2,3,0.1)"\n',
        "sixteen": 'ansi = true\ndark = false\n[colors]\nprimary = "red"\n',
        "auto": '[colors]\nprimary = "auto"\n',
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.toml").write_text(text)
    loaded = [one for one in themes.load_themes([tmp_path])[0] if one.path.parent == tmp_path]
    assert loaded
    app = Shown()
    async with app.run_test(size=(40, 12)) as pilot:
        for one in loaded:
            app.register_theme(one.theme)
            app.theme = one.theme.name
            await pilot.pause()


def test_folders_that_are_none_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    loaded, sentences = themes.load_themes([tmp_path / "missing", tmp_path / "file"])
    assert len(loaded) == len(shipped())
    assert sentences == []


def test_a_persons_own_theme_wins_over_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "llmgw-dark"\n[colors]\nprimary = "#123456"\n')
    loaded, _ = themes.load_themes([tmp_path])
    (dark,) = [one for one in loaded if one.theme.name == "llmgw-dark"]
    assert dark.theme.primary == "#123456"


def test_one_theme_is_found_by_its_file_alone(tmp_path: Path) -> None:
    own = tmp_path / "harbour.toml"
    own.write_text('[colors]\nprimary = "#010203"\n')
    found = themes.load_named("harbour", [tmp_path])
    assert found is not None
    assert found.path == own
    shipped_one = themes.load_named("moor", [tmp_path])
    assert shipped_one is not None
    assert shipped_one.theme.name == "moor"


@pytest.mark.parametrize("text", ["name = ", 'name = "other"\n[colors]\nprimary = "red"\n'])
def test_a_file_that_does_not_hold_its_theme_is_left_to_the_whole_reading(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "moor.toml").write_text(text)
    assert themes.load_named("moor", [tmp_path]) is None
    assert themes.load_named("../moor", [tmp_path / "below"]) is None


def test_the_wheel_holds_the_themes(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path)]
    subprocess.run([*argv, str(ROOT)], check=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    for theme in (ROOT / "themes").glob("*.toml"):
        assert f"llmgw_tui/_themes/{theme.name}" in inside
