"""The gateway's own SSH connections to nodes whose engines are reached through a tunnel.

asyncssh is imported when the first tunnel is needed: most gateways need none.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from llmgw_core.gateway.table import Tunnel
from llmgw_core.gateway.upstream import UpstreamConnection

if TYPE_CHECKING:
    import asyncssh

log = logging.getLogger(__name__)

FIRST_DELAY_S = 0.5
LAST_DELAY_S = 30.0
# the GCM ciphers cost half as much per byte as the library's first choice
_CIPHERS = (
    "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,"
    "aes256-ctr,aes128-ctr"
)


class TunnelDown(OSError):
    """A node's SSH connection is not there."""


class _Link:
    """One node's SSH connection, kept up by a task until closed."""

    def __init__(self, node: str, tunnel: Tunnel) -> None:
        self.node = node
        self.tunnel = tunnel
        self.problem = "is not connected yet"
        self._connection: asyncssh.SSHClientConnection | None = None
        self._up = asyncio.Event()
        self._resting = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def connection(self) -> asyncssh.SSHClientConnection:
        """The connection; while one is being made, waits as long as the caller does.

        Raises:
            TunnelDown: the last try failed and the next is not due yet.
        """
        if self._resting:
            raise TunnelDown(f"is behind node {self.node}, which {self.problem}")
        while (found := self._connection) is None or found.is_closed():
            self._up.clear()
            await self._up.wait()
        return found

    async def _run(self) -> None:
        delay_s = FIRST_DELAY_S
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await self._once()
            except Exception as error:  # noqa: BLE001 - a task's boundary: logged, tried again
                self.problem = f"refused the SSH connection ({type(error).__name__}: {error})"
            else:
                self.problem = "closed the SSH connection"
            if asyncio.get_running_loop().time() - started > LAST_DELAY_S:
                delay_s = FIRST_DELAY_S
            log.warning("node %s %s; next try in %.1f s", self.node, self.problem, delay_s)
            self._resting = True
            await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            self._resting = False
            delay_s = min(delay_s * 2, LAST_DELAY_S)

    async def _once(self) -> None:
        """Connect, and return when the connection has ended."""
        connections = await _connect(self.tunnel)
        try:
            self._connection = connections[-1]
            self._up.set()
            log.info("node %s: SSH connection is up", self.node)
            await connections[-1].wait_closed()
        finally:
            self._connection = None
            for connection in reversed(connections):
                connection.abort()

    async def close(self) -> None:
        """End it, with every channel."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def _connect(tunnel: Tunnel) -> list[asyncssh.SSHClientConnection]:
    """The connection and those it goes through, the first hop first."""
    import asyncssh

    through = await _connect(tunnel.jump) if tunnel.jump is not None else []
    keys = {"client_keys": list(tunnel.identity_files)} if tunnel.identity_files else {}
    try:
        connection = await asyncssh.connect(
            tunnel.host,
            tunnel.port,
            tunnel=through[-1] if through else (),
            username=tunnel.user if tunnel.user is not None else (),
            known_hosts=tunnel.known_hosts,
            host_key_alias=tunnel.host_key_alias,
            config=None,
            connect_timeout=15,
            login_timeout=15,
            keepalive_interval=3,
            keepalive_count_max=2,
            encryption_algs=_CIPHERS,
            compression_algs=None,
            gss_auth=False,
            gss_kex=False,
            utf8_decode_errors="replace",
            **keys,
        )
    except BaseException:
        for hop in reversed(through):
            hop.abort()
        raise
    return [*through, connection]


class Tunnels:
    """One link for each tunnel of the table."""

    def __init__(self) -> None:
        self._links: dict[str, _Link] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def update(self, tunnels: dict[str, Tunnel]) -> None:
        """Bring the links to this table; those whose entry did not change stay up."""
        for node, link in list(self._links.items()):
            if tunnels.get(node) != link.tunnel:
                del self._links[node]
                task = asyncio.get_running_loop().create_task(link.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
        for node, tunnel in tunnels.items():
            if node not in self._links:
                self._links[node] = _Link(node, tunnel)

    async def open(
        self, node: str, host: str, port: int, factory: Callable[[], UpstreamConnection]
    ) -> UpstreamConnection:
        """A connection to host and port as the node sees them.

        Raises:
            TunnelDown: the node is not in the table or refuses the channel.
            TimeoutError: from the caller's own deadline, while the link is down.
        """
        link = self._links.get(node)
        if link is None:
            raise TunnelDown(f"is behind node {node}, which has no tunnel")
        import asyncssh

        protocol = factory()
        try:
            connection = await link.connection()
            session = cast("asyncssh.SSHTCPSession[bytes]", _Channel(protocol))
            await connection.create_connection(lambda: session, host, port)
        except asyncssh.ChannelOpenError as error:
            raise TunnelDown(f"is not reached from node {node} ({error.reason})") from error
        except (asyncssh.Error, OSError) as error:
            raise TunnelDown(f"is behind node {node}, whose SSH connection broke") from error
        except asyncio.CancelledError:
            # the caller's deadline or a client that left: whatever has opened is not wanted
            protocol.abort()
            raise
        return protocol

    async def close(self) -> None:
        """End every link."""
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(link.close() for link in links), *self._closing)


class _Channel:
    """Makes a channel look like a transport to the protocol behind it.

    It has asyncssh's session methods without its base class, which would have to be imported.
    """

    def __init__(self, protocol: UpstreamConnection) -> None:
        self._protocol = protocol

    def connection_made(self, chan: asyncssh.SSHTCPChannel[bytes]) -> None:
        """The channel is being opened."""
        self._protocol.connection_made(cast(asyncio.BaseTransport, chan))

    def session_started(self) -> None:
        """The channel is open."""

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Something came."""
        self._protocol.data_received(data)

    def eof_received(self) -> bool:
        """The other side has said all it will; the channel closes."""
        self._protocol.eof_received()
        return False

    def pause_writing(self) -> None:
        """Bodies lie in memory as a whole: there is nothing to hold back."""

    def resume_writing(self) -> None:
        """See pause_writing."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The channel is closed."""
        self._protocol.connection_lost(exc)
