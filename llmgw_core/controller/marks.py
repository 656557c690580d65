"""What people asked of single replicas, on disk until it has come about."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from llmgw_core.controller.replica import Replica
from llmgw_core.controller.world import Asked, Mark
from llmgw_core.errors import LlmgwError

log = logging.getLogger(__name__)

FILE = "marks.json"
KEPT_S = 30 * 86400.0
"""A mark on a replica that was not seen for so long is dropped."""


class MarkBook:
    """Marks by run. A mark means one run and no other, so one that is left over does no harm."""

    def __init__(self, state: Path) -> None:
        self._file = state / FILE
        self._marks: dict[str, Mark] = {}
        self._lock = asyncio.Lock()

    @property
    def marks(self) -> dict[str, Mark]:
        """All of them, by run; a copy."""
        return dict(self._marks)

    async def load(self) -> None:
        """Read what the controller before has kept."""
        self._marks = await asyncio.to_thread(self._read)

    async def add(self, replicas: Iterable[Replica], mark: Mark, roster: Iterable[Replica]) -> None:
        """Put a mark on these replicas' present runs; ``mark.replica`` is filled in.

        Those in ``roster`` that run anew since lose theirs.

        Raises:
            LlmgwError: it cannot be kept on disk, and counts for nothing.
        """
        async with self._lock:
            runs = {replica.id: replica.run for replica in roster}
            kept = {
                run: old for run, old in self._marks.items()
                if runs.get(old.replica, run) == run and mark.at - old.at < KEPT_S
            }  # fmt: skip
            for replica in replicas:
                kept[replica.run] = Mark(replica.id, mark.asked, mark.why, mark.at)
            try:
                await asyncio.to_thread(self._write, kept)
            except OSError as error:
                raise LlmgwError(
                    f"what was asked was not kept: {error.strerror} ({error.filename}); free some "
                    "space and try again"
                ) from error
            self._marks = kept

    def _write(self, marks: dict[str, Mark]) -> None:
        data = {
            run: {"replica": m.replica, "asked": m.asked.value, "why": m.why, "at": m.at}
            for run, m in marks.items()
        }
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(data), encoding="utf-8")
        os.replace(new, self._file)

    def _read(self) -> dict[str, Mark]:
        try:
            data = json.loads(self._file.read_text(encoding="utf-8"))
            return {
                str(run): Mark(str(m["replica"]), Asked(m["asked"]), str(m["why"]), float(m["at"]))
                for run, m in data.items()
            }
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("marks.unreadable file=%s error=%s", self._file, error)
            return {}
