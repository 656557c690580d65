"""Ports of a node as Unix sockets here, over its SSH connection.

The sockets lie in a folder that only this user enters: whoever may open one speaks to the engine
as the node itself would.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path

import asyncssh

from llmgw_core.errors import NodeLost, NodeRefused, RefusedBecause

CHECK_TIMEOUT_S = 10.0
_LONGEST_FOLDER = 24


class SocketFolder:
    """A folder of mode 0700 under a short path, made when first needed.

    An address of a Unix socket holds 107 bytes, which a state directory easily exceeds.
    """

    def __init__(self) -> None:
        self._path: Path | None = None

    @property
    def path(self) -> Path:
        """The folder."""
        if self._path is None:
            runtime = os.environ.get("XDG_RUNTIME_DIR", "")
            short = 0 < len(runtime) <= _LONGEST_FOLDER and os.access(runtime, os.W_OK)
            parent = runtime if short else "/tmp"  # noqa: S108 - the folder itself is 0700
            self._path = Path(tempfile.mkdtemp(prefix="llmgw-", dir=parent))
        return self._path

    def remove(self) -> None:
        """Delete it with what is in it."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
            self._path = None


class Forwards:
    """The forwarded ports of one connection; they end with it."""

    def __init__(
        self, connection: asyncssh.SSHClientConnection, label: str, folder: SocketFolder
    ) -> None:
        self._connection = connection
        self._label = label
        self._folder = folder
        self._open: dict[int, tuple[Path, asyncssh.SSHListener]] = {}
        self._lock = asyncio.Lock()

    async def socket_to(self, port: int) -> Path:
        """A socket whose connections end at this port of the node's loopback.

        Raises:
            NodeLost: the link is gone.
            NodeRefused: the node's SSH server forbids forwarding.
        """
        async with self._lock:
            if port not in self._open:
                await self._check(port)
                path = self._folder.path / f"{self._label}-{port}"
                path.unlink(missing_ok=True)
                try:
                    listener = await self._connection.forward_local_path_to_port(
                        str(path), "127.0.0.1", port
                    )
                except (asyncssh.Error, OSError) as error:
                    raise NodeLost(
                        f"{self._label}: port {port} cannot be tunnelled: {error}"
                    ) from error
                self._open[port] = (path, listener)
            return self._open[port][0]

    async def _check(self, port: int) -> None:
        """Find out now what a listener would only tell its clients by hanging up."""
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                _, writer = await self._connection.open_connection("127.0.0.1", port, encoding=None)
            writer.close()
        except asyncssh.ChannelOpenError as error:
            if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
                raise NodeRefused(
                    RefusedBecause.CONFIG,
                    f"{self._label} forbids tunnels ({error.reason})",
                    hint='allow AllowTcpForwarding in its sshd_config, or set data_path = "direct"',
                ) from error
            if self._connection.is_closed():
                raise NodeLost(f"The connection to {self._label} is gone") from error
            # nothing listens there yet: an engine that starts, which is what tunnels are for
        except (asyncssh.Error, OSError) as error:
            raise NodeLost(f"{self._label}: port {port} cannot be tunnelled: {error}") from error

    def close(self) -> None:
        """Stop listening."""
        for path, listener in self._open.values():
            listener.close()
            path.unlink(missing_ok=True)
        self._open.clear()
