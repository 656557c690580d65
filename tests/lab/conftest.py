"""A lab for each test process, with its hosts well again before each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import faults
from tests.lab.ground import MOST_LABS, missing
from tests.lab.hosts import Host, Lab

HOSTS = 4


def lab_binds() -> tuple[Path, ...]:
    """What hosts need to see besides programs: the real model, where it was fetched."""
    cache = os.environ.get("LLMGW_TEST_CACHE")
    return (Path(cache),) if cache and Path(cache).is_dir() else ()


def first_net() -> int:
    """Where this process begins to look for addresses: apart from its siblings and other runs."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return (os.getppid() * 8 + int(worker)) % MOST_LABS


@pytest.fixture(scope="session")
def can_have_labs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips, with the reason, where a lab cannot be."""
    reason = missing(tmp_path_factory.mktemp("trial"))
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def lab(can_have_labs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Four hosts; taken down at the end, however that comes about."""
    made = Lab(tmp_path_factory.mktemp("lab"), binds=lab_binds(), first=first_net())
    try:
        made.up(HOSTS)
        yield made
    finally:
        made.down()


@pytest.fixture
def hosts(lab: Lab) -> Iterator[list[Host]]:
    """The lab's hosts, all of them well, and with nothing of an earlier test on them."""
    yield lab.hosts
    for host in lab.hosts:
        faults.restore(host)
