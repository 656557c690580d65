"""How log records are written: texts from outside in them cannot steer the terminal of whoever
reads the log, nor look like records of their own.
"""

from __future__ import annotations

import logging
from types import TracebackType

from llmgw_core.plain_text import plain, plain_lines


class PlainFormatter(logging.Formatter):
    """One line a record; tracebacks on lines of their own below it."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        return plain(super().formatMessage(record))

    def formatException(
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None]
        | tuple[None, None, None],
    ) -> str:
        """Its traceback."""
        return plain_lines(super().formatException(ei))


def log_to_stderr() -> None:
    """What a process that serves logs, it logs to stderr; whoever started it chose a file there."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
