"""The daemon with shorter rests after failures: what is doubled up to ten minutes otherwise."""

from __future__ import annotations

import importlib
import pkgutil

import llmgw_core.controller
from llmgw_core.nodes import clock

SHORTER_S = {
    "BACKOFF_FIRST_S": 1.0,
    "BACKOFF_MOST_S": 4.0,
    "BACKOFF_RESET_S": 15.0,
    "AVOIDED_S": 15.0,
}
"""Constants of the controller's modules, by name."""


def shorten() -> None:
    """Set them wherever they were imported to."""
    for found in pkgutil.iter_modules(llmgw_core.controller.__path__):
        module = importlib.import_module(f"llmgw_core.controller.{found.name}")
        for name, value in SHORTER_S.items():
            if hasattr(module, name):
                setattr(module, name, value)
    # a node that was away for long is not tried for up to a minute otherwise
    clock.LAST_S = 4.0


if __name__ == "__main__":
    from llmgw_core.cli import main

    shorten()
    main()
