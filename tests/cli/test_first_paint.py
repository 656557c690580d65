"""What stands on the screen, and what is loaded, when the console first asks for an engine."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest
from textual.color import Color

from llmgw_tui.themes import load_themes

LATER = {
    "typer", "click", "asyncssh", "aiohttp", "httpx", "httptools", "uvloop", "pydantic", "gguf",
    "numpy", "sqlite3", "huggingface_hub", "llmgw_core.api.attached",
    "llmgw_core.controller.engine", "llmgw_core.gateway", "llmgw_core.placement",
    "llmgw_tui.palette", "llmgw_tui.screens.card", "llmgw_tui.screens.confirm",
    "llmgw_tui.screens.help",
    "llmgw_tui.screens.logs", "llmgw_tui.screens.quit", "llmgw_tui.screens.scale",
    "llmgw_tui.screens.themes", "llmgw_tui.screens.trust",
}  # fmt: skip
"""Each is loaded when it is first needed, or with the engine, in a thread."""

PROGRAM = """
import gc, json, os, sys
from pathlib import Path
from llmgw_core.cli import console, main

async def report(self, progress):
    import llmgw_tui.launch
    found = {"modules": sorted(sys.modules), "collects": gc.isenabled()}
    Path(os.environ["REPORT"]).write_text(json.dumps(found))
    os._exit(0)

console.Connection.open = report
sys.argv = ["llmgw"]
main()
"""


def painted(terminal: int) -> str:
    """All output until the other side closes."""
    seen = b""
    while select.select([terminal], [], [], 60)[0]:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # how Linux says that nobody holds the other side any more
            break
        if not chunk:
            break
        seen += chunk
    return seen.decode(errors="replace")


def start(folder: Path) -> tuple[str, dict[str, object]]:
    """Start `llmgw` on a terminal: what it painted, and its report."""
    report, config = folder / "report", folder / "config.toml"
    config.write_text('[console]\ntheme = "moor"\n')
    env = {**os.environ, "HOME": str(folder), "LLMGW_STATE": str(folder / "state"),
           "XDG_CONFIG_HOME": str(folder / "config"), "LLMGW_CONFIG": str(config),
           "REPORT": str(report), "COLORTERM": "truecolor",
           "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "48"}  # fmt: skip
    terminal, other = pty.openpty()
    argv = [sys.executable, "-c", PROGRAM]
    process = subprocess.Popen(argv, stdin=other, stdout=other, stderr=other, env=env)
    os.close(other)
    try:
        screen = painted(terminal)
        assert process.wait(timeout=60) == 0, screen
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    return screen, json.loads(report.read_text())


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, object]]:
    return start(tmp_path_factory.mktemp("first"))


def test_the_frame_stands_before_the_engine_is_asked_for(
    first: tuple[str, dict[str, object]],
) -> None:
    assert "╭" in first[0]


def test_nothing_is_loaded_that_the_first_paint_does_not_show(
    first: tuple[str, dict[str, object]],
) -> None:
    modules = first[1]["modules"]
    assert isinstance(modules, list)
    assert "llmgw_tui.screens.overview" in modules
    assert LATER & set(modules) == set()


def test_garbage_is_collected_again_after_the_first_paint(
    first: tuple[str, dict[str, object]],
) -> None:
    assert first[1]["collects"] is True


def test_the_first_frame_has_the_colours_of_the_theme_wanted(
    first: tuple[str, dict[str, object]],
) -> None:
    (theme,) = (one.theme for one in load_themes()[0] if one.theme.name == "moor")
    red, green, blue = Color.parse(theme.background or "").rgb
    assert f"48;2;{red};{green};{blue}m" in first[0].partition("╮")[0]
