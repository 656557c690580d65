"""These tests run on the loop that the gateway runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """uvloop for every coroutine test below this directory."""
    return {"uvloop": uvloop.new_event_loop}
