"""Reading the configuration is on the way of every command: it loads nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"textual", "rich", "typer", "gguf", "numpy", "asyncssh", "httpx", "aiohttp", "pydantic",
         "asyncio", "uvloop", "httptools", "xllamacpp"}  # fmt: skip


@pytest.mark.parametrize(
    "module", ["llmgw_core.config_file", "llmgw_core.catalog.changes", "llmgw_core.catalog.overlay"]
)
def test_light(module: str) -> None:
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert HEAVY & set(done.stdout.split()) == set()
