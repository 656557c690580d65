"""Every key that the configuration knows, as the readers themselves ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from llmgw_core.catalog.tables import Table
from llmgw_core.config_file import parse_config
from tests.catalog.standins import ENGINES

EVERY_TABLE = "[[nodes]]\n[[owners]]\n[[classes]]\n[[models]]\n[[models.profiles]]\n"
TABLES = {"gateway", "mirror", "controller", "console", "owners", "classes", "models", "profiles"}
"""Not ``nodes``: that is a key of profiles, too."""


@contextmanager
def _noting(seen: set[str]) -> Iterator[None]:
    done = Table.done

    def noted(table: Table) -> None:
        seen.update(table.asked)
        done(table)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Table, "done", noted)
        yield


def all_keys() -> set[str]:
    """The names of all keys that are no tables of their own."""
    seen: set[str] = set()
    with _noting(seen):
        parse_config(EVERY_TABLE, engines=ENGINES)
    return seen - TABLES
