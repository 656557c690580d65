"""Where the bytes of a GGUF file come from: a file of this machine, or one on a node.

``http_source`` has the third. All count what they did, and none reads more than it is asked for.
"""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import Protocol

from llmgw_core.gguf.errors import HeaderError, SourceError
from llmgw_core.plain_text import sanitise

NODE_READ_MOST = 8 << 20
"""Bytes of one answer of a node."""


class ByteSource(Protocol):
    """A file of which parts can be read."""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        ...

    @property
    def size(self) -> int | None:
        """Of the whole file, in bytes; None where it is not known, as before the first read."""
        ...

    @property
    def requests(self) -> int:
        """How often something was asked for."""
        ...

    @property
    def bytes_read(self) -> int:
        """How much came."""
        ...

    async def read(self, offset: int, length: int) -> bytes:
        """At most so many bytes from there on; fewer only where the file ends.

        Raises:
            HeaderError: it cannot be read.
            LlmgwError: the link to its node is not there.
        """
        ...


class FileSource:
    """A file of this machine. Not kept open between reads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)
        self.size: int | None = None
        self.requests = 0
        self.bytes_read = 0

    async def read(self, offset: int, length: int) -> bytes:
        """See ``ByteSource``."""
        return await asyncio.to_thread(self.read_now, offset, length)

    def read_now(self, offset: int, length: int) -> bytes:
        """The same; blocks."""
        self.requests += 1
        shown = sanitise(str(self._path), most=300)
        try:
            # not to wait for the other end of a pipe
            handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                about = os.fstat(handle)
                if not stat.S_ISREG(about.st_mode):
                    kind = "a folder" if stat.S_ISDIR(about.st_mode) else "no ordinary file"
                    raise HeaderError(f"{shown} is {kind}")
                self.size = about.st_size
                data = os.pread(handle, min(length, max(0, self.size - offset)), offset)
            finally:
                os.close(handle)
        except OSError as error:
            raise SourceError(f"{shown} cannot be read: {error.strerror or error}") from error
        except ValueError as error:  # a NUL in its name
            raise SourceError(f"{shown} cannot be the name of a file") from error
        self.bytes_read += len(data)
        return data


class NodeFiles(Protocol):
    """The part of a node that a source needs; every ``NodeHandle`` is one."""

    async def stat_file(self, path: str) -> int | None:
        """See ``NodeHandle``."""
        ...

    async def read_file(self, path: str, *, offset: int, length: int) -> bytes:
        """See ``NodeHandle``."""
        ...


class NodeSource:
    """A file on a node, over its link."""

    def __init__(self, node: NodeFiles, path: str) -> None:
        self._node = node
        self._path = path
        self.name = path
        self.size: int | None = None
        self.requests = 0
        self.bytes_read = 0

    async def read(self, offset: int, length: int) -> bytes:
        """See ``ByteSource``."""
        if self.size is None:
            self.requests += 1
            self.size = await self._node.stat_file(self._path)
            if self.size is None:
                raise SourceError(f"{sanitise(self._path, most=300)} is not there on the node")
        self.requests += 1
        length = min(length, NODE_READ_MOST, max(0, self.size - offset))
        if not length:
            return b""
        data = await self._node.read_file(self._path, offset=offset, length=length)
        self.bytes_read += len(data)
        return data
