"""A live link to a node: its connection, the scripts that run over it, and its tunnels."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from llmgw_core.errors import NodeLost
from llmgw_core.nodes.dial import Connection, Dialer
from llmgw_core.nodes.route import Hop
from llmgw_core.nodes.ssh_exec import SshExec
from llmgw_core.nodes.tunnel import Forwards, SocketFolder

RTT_TIMEOUT_S = 10.0


class Link:
    """One open connection, for as long as it lasts."""

    def __init__(self, connection: Connection, label: str, sockets: SocketFolder) -> None:
        self._connection = connection
        self._label = label
        self.exec = SshExec(
            connection.ssh, label, lost_because=lambda: self._connection.lost_because
        )
        self.forwards = Forwards(connection.ssh, label, sockets)

    @property
    def connection(self) -> Connection:
        """What it rests on."""
        return self._connection

    @property
    def is_up(self) -> bool:
        """Whether the connection stands, as far as is known."""
        return not self._connection.ssh.is_closed()

    async def lost(self) -> NodeLost:
        """Wait until the connection has ended, and say why."""
        await self._connection.ssh.wait_closed()
        return NodeLost(f"The connection to {self._label} is gone: {self._connection.lost_because}")

    async def rtt(self, now: Callable[[], float] = time.monotonic) -> float | None:
        """One round trip in seconds, as a keepalive takes it: nothing runs on the node for it."""
        # there is no public call for a keepalive; the answer itself may well be a refusal
        ask = getattr(self._connection.ssh, "_make_global_request", None)
        if ask is None:
            return None
        start = now()
        try:
            async with asyncio.timeout(RTT_TIMEOUT_S):
                await ask(b"keepalive@openssh.com")
        except TimeoutError:
            return None
        return now() - start if self.is_up else None


@asynccontextmanager
async def linked(
    dialer: Dialer, hop: Hop, label: str, sockets: SocketFolder
) -> AsyncIterator[Link]:
    """A link over this route, ended with the block.

    Raises:
        NodeLost: the node cannot be reached.
        NodeRefused: it does not let us in.
    """
    async with dialer.connected(hop) as connection:
        link = Link(connection, label, sockets)
        try:
            yield link
        finally:
            link.forwards.close()
            link.exec.close()
