"""Where log records go: a file under the console, stderr for the daemon."""

from __future__ import annotations

import json
import logging
import logging.handlers
import sys
from pathlib import Path

from llmgw_core.log_lines import PlainFormatter
from llmgw_core.plain_text import escaped_json

TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class _JsonFormatter(logging.Formatter):
    """One JSON document a record."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON; an exception's text goes under ``error``."""
        data = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            data["error"] = self.formatException(record.exc_info)
        return escaped_json(json.dumps(data, ensure_ascii=False))


def to_stderr(log_format: str) -> None:
    """Log to stderr as text, or as one JSON document a line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if log_format == "json" else PlainFormatter(TEXT))
    _install(handler)


def to_file(path: Path) -> None:
    """Log to a private file of bounded size; nothing ever reaches the terminal."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=4_000_000, backupCount=2)
    path.chmod(0o600)
    handler.setFormatter(PlainFormatter(TEXT))
    _install(handler)
    logging.lastResort = None


def _install(handler: logging.Handler) -> None:
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    for noisy in ("asyncssh", "httpx", "httpcore", "aiohttp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
