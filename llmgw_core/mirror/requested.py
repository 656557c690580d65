"""What a request asks the mirror for: a path, a range, conditions; and how it is opened."""

from __future__ import annotations

import io
import logging
import os
import re
import stat
from http import HTTPStatus
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote_to_bytes

log = logging.getLogger(__name__)

_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII)


class Answer(Exception):
    """Ends a request with a status and a sentence."""

    def __init__(
        self, status: HTTPStatus, message: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


def split_path(raw: str) -> tuple[str, str, str]:
    """``MODEL/VERSION/FILE…`` as sent, taken apart; what could leave the store is refused.

    Raises:
        Answer: 400 for names that cannot be any file's, 404 for too few of them.
    """
    try:
        # apart first: an encoded slash is no separator, and no part of a name either
        parts = [unquote_to_bytes(part).decode() for part in raw.split("/")]
    except UnicodeError:
        _odd()
    for part in parts:
        if part in ("", ".", "..") or not part.isprintable() or "/" in part or "\\" in part:
            _odd()
    if len(parts) < 3:
        raise Answer(HTTPStatus.NOT_FOUND, "Ask for /v1/files/MODEL/VERSION/FILE.")
    model, version, *file = parts
    if model.startswith(".") or version.startswith("."):
        _odd()
    return model, version, "/".join(file)


def _odd() -> NoReturn:
    raise Answer(HTTPStatus.BAD_REQUEST, "The path is not one of a file in the mirror.")


def open_below(root: Path, path: Path) -> io.FileIO:
    """Open a regular file below a folder, following no symbolic link on the way.

    Raises:
        Answer: 404 where there is none, or where the way leads over a link.
    """
    gone = Answer(HTTPStatus.NOT_FOUND, "The file is not in the store.")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        *folders, name = path.relative_to(root).parts
        at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for folder in folders:
                deeper = os.open(folder, flags | os.O_DIRECTORY, dir_fd=at)
                os.close(at)
                at = deeper
            fd = os.open(name, flags, dir_fd=at)
        finally:
            os.close(at)
    except (OSError, ValueError) as error:
        log.warning("mirror.missing path=%s error=%s", path, error)
        raise gone from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise gone
    return io.FileIO(fd, "rb")


def parse_range(header: str, size: int) -> tuple[int, int] | None:
    """A ``Range`` header as a start and an end (not included).

    None where it is to be ignored: another unit, several ranges, or not a range at all.

    Raises:
        Answer: 416, no byte of the file lies in it.
    """
    match = _RANGE.fullmatch(header.strip())
    if match is None or match[0] == "bytes=-":
        return None
    first, last = match.groups()
    if not first:
        start, stop = max(size - int(last), 0), size
    else:
        start, stop = int(first), min(int(last) + 1, size) if last else size
        if last and int(last) < start:
            return None
    if start >= size:
        raise Answer(
            HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            f"The file has {size} bytes.",
            {"Content-Range": f"bytes */{size}"},
        )
    return start, stop


def lists(header: str, etag: str) -> bool:
    """Whether ``If-Match`` or ``If-None-Match`` names this ETag."""
    return any(tag.strip().removeprefix("W/") in ("*", etag) for tag in header.split(","))
