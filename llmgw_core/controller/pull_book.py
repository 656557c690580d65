"""Which pulls are under way, on disk: a successor goes on with them. Blocks."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from llmgw_core.controller.pulls import PullRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PullBook:
    """A small file beside the controller's others; sources may hold signatures, so it is 0600."""

    path: Path

    def read(self) -> tuple[PullRequest, ...]:
        """What was under way; nothing where the file cannot be read."""
        try:
            return tuple(msgspec.json.decode(self.path.read_bytes(), type=list[PullRequest]))
        except FileNotFoundError:
            return ()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("mirror.pulls_unreadable file=%s error=%s", self.path, error)
            return ()

    def write(self, requests: Iterable[PullRequest]) -> None:
        """Keep these; where the disk is full the old list stays, which costs a look at most."""
        new = self.path.with_suffix(".new")
        try:
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(handle, "wb") as file:
                file.write(msgspec.json.encode(list(requests)))
            os.replace(new, self.path)
        except OSError as error:
            log.warning("mirror.pulls_unwritten file=%s error=%s", self.path, error)
