"""An SSH server of our own on loopback: how this machine becomes a node like any other.

Keys are made for the occasion and stay in memory; nobody else can log in. Commands run as a real
sshd runs them: by ``/bin/sh -c`` in a session of their own, without a terminal, with a small
environment. What they start with ``setsid`` outlives the connection and this process.
"""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh

from llmgw_core.nodes.host_keys import line_for
from llmgw_core.nodes.local_command import CommandSession

log = logging.getLogger(__name__)

_PASSED_ON = frozenset(
    {
        *("LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", "LLMGW_DIR"),
        *("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
        *("CUDA_HOME", "ROCM_HOME"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
        *("http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
    }
)
_PASSED_ON_PREFIXES = ("PIP_", "UV_")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class LocalServer:
    """The server: ``start`` and ``stop``, or ``running`` for a block.

    ``home`` is HOME and working directory of its commands; ``env`` is added to their environment.
    Several servers with different homes are as good as several machines to a test.
    """

    def __init__(self, home: Path, *, env: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.user = getpass.getuser()
        self.client_key = asyncssh.generate_private_key("ssh-ed25519")
        self._host_key = asyncssh.generate_private_key("ssh-ed25519")
        self._env = {**_environment(home, self.user), **(env or {})}
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._connections: set[asyncssh.SSHServerConnection] = set()
        self._commands: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1.

        Raises:
            RuntimeError: it does not run.
        """
        if self._acceptor is None:
            raise RuntimeError("the local SSH server does not run")
        return int(self._acceptor.get_port())

    @property
    def host_key(self) -> asyncssh.SSHKey:
        """The public half of its host key."""
        return self._host_key.convert_to_public()

    def write_client_key(self, path: Path) -> None:
        """The key that opens, as a file of mode 0600: for whoever shall come in as to any node."""
        path.touch(mode=0o600)
        path.write_bytes(self.client_key.export_private_key())

    def known_hosts_line(self, alias: str) -> str:
        """For a known_hosts file."""
        return line_for(alias, self.host_key)

    async def start(self) -> None:
        """Listen; does nothing where it runs.

        Raises:
            OSError: loopback cannot be listened on.
        """
        if self._acceptor is not None:
            return
        self._acceptor = await asyncssh.listen(
            "127.0.0.1",
            0,
            config=None,
            server_factory=lambda: _Server(self),
            server_host_keys=[self._host_key],
            encoding=None,
            allow_pty=False,
            agent_forwarding=False,
            compression_algs=None,
            kex_algs=["curve25519-sha256"],
            encryption_algs=["aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com"],
            gss_host=None,
            x509_trusted_certs=None,
            x509_trusted_cert_paths=[],
            login_timeout=15,
            keepalive_interval=15,
        )

    async def stop(self) -> None:
        """Close every connection, and the commands that hang on them."""
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is None:
            return
        acceptor.close()
        for connection in list(self._connections):
            connection.abort()
        await asyncio.gather(*self._commands, return_exceptions=True)
        await acceptor.wait_closed()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[LocalServer]:
        """Listen during the block."""
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    # --- for _Server

    def may_enter(self, key: asyncssh.SSHKey) -> bool:
        """Whether this is the one key that opens."""
        return key == self.client_key.convert_to_public()

    def command(self) -> CommandSession:
        """A new session of some connection."""
        return CommandSession(self.home, self._env, self._spawn)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._commands.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._commands.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a local command's session failed", exc_info=error)

    def entered(self, connection: asyncssh.SSHServerConnection) -> None:
        """A connection was made."""
        self._connections.add(connection)

    def left(self, connection: asyncssh.SSHServerConnection) -> None:
        """A connection has ended."""
        self._connections.discard(connection)


class _Server(asyncssh.SSHServer):
    """One connection: one key opens it, commands are all there is."""

    def __init__(self, server: LocalServer) -> None:
        self._server = server
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._server.entered(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._server.left(self._connection)

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return self._server.may_enter(key)

    def session_requested(self) -> CommandSession:
        return self._server.command()


def _environment(home: Path, user: str) -> dict[str, str]:
    """As sshd would give it: no more of ours than what finds programs, cards and proxies."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    return {
        **passed,
        "PATH": os.environ.get("PATH") or _DEFAULT_PATH,
        "HOME": str(home),
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/sh",
    }
