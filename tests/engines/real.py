"""The real model for tests marked ``engine``, from $LLMGW_TEST_MODEL or fetched to a cache."""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llmgw_core.errors import LlmgwError


def real_model() -> Path:
    """The model's file; skips the test, and says why, where there is none or no engine."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the package xllamacpp is not installed (pip install 'llmgw[engine]')")
    given = os.environ.get("LLMGW_TEST_MODEL")
    if given:
        path = Path(given)
        if not path.is_file():
            pytest.skip(f"LLMGW_TEST_MODEL names {given}, which is not there")
        return path
    cache = os.environ.get("LLMGW_TEST_CACHE")
    if not cache:
        pytest.skip("neither LLMGW_TEST_MODEL nor LLMGW_TEST_CACHE says where the model lies")
    return _fetched(Path(cache).absolute())


def _fetched(folder: Path) -> Path:
    from llmgw_core.demo.model import ensure_model

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        # workers of pytest-xdist start at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            # in a thread, since the asking test may have a loop running
            with ThreadPoolExecutor(1) as pool:
                fetch = ensure_model(folder, progress=lambda _: None)
                return pool.submit(asyncio.run, fetch).result()
        except LlmgwError as error:
            pytest.skip(f"the model could not be fetched: {error}")
