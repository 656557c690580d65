"""Connections to replicas between requests, and the making of new ones."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Protocol

from llmgw_core.gateway.upstream import Address, UpstreamConnection, describe

log = logging.getLogger(__name__)

IDLE_S = 3.5
"""How long a connection is kept for reuse: below the 5 s after which uvicorn closes it."""
MAX_IDLE = 256
"""Idle connections kept per address."""


class Tunneller(Protocol):
    """Opens connections through a node's SSH connection."""

    async def open(
        self, node: str, host: str, port: int, factory: Callable[[], UpstreamConnection]
    ) -> UpstreamConnection:
        """A connection to host and port as the node sees them.

        Raises:
            OSError: the node or the port is not reached.
        """
        ...


Opened = Callable[[UpstreamConnection | None, str], None]
"""Told once: the connection, or None and why not."""


class Pool:
    """Idle connections by address, and the making of new ones."""

    def __init__(self, tunnels: Tunneller, *, connect_timeout_s: float) -> None:
        self._tunnels = tunnels
        self._timeout_s = connect_timeout_s
        self._idle: dict[Address, list[UpstreamConnection]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._known: AbstractSet[Address] | None = None

    def take(self, address: Address, now: float) -> UpstreamConnection | None:
        """The idle connection used last, if there is one that is not too old."""
        stack = self._idle.get(address)
        while stack:
            connection = stack.pop()
            if connection.usable and now - connection.idle_since < IDLE_S:
                return connection
            connection.abort()
        return None

    def give(self, connection: UpstreamConnection) -> None:
        """Keep a connection whose exchange is over."""
        known = self._known is None or connection.address in self._known
        stack = self._idle.setdefault(connection.address, []) if known else None
        if stack is None or len(stack) >= MAX_IDLE:
            connection.abort()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        stack.append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        """It is closed."""
        stack = self._idle.get(connection.address)
        if stack and connection in stack:
            stack.remove(connection)

    def retain(self, addresses: AbstractSet[Address]) -> None:
        """Keep idle connections to these only, from now on."""
        self._known = addresses
        for address in [a for a in self._idle if a not in addresses]:
            for connection in self._idle.pop(address):
                connection.abort()

    def sweep(self, now: float) -> None:
        """Close what has been idle too long."""
        for address, stack in list(self._idle.items()):
            # the stack is in order of age, oldest first
            old = next((i for i, c in enumerate(stack) if now - c.idle_since < IDLE_S), len(stack))
            aged, self._idle[address] = stack[:old], stack[old:]
            for connection in aged:
                connection.abort()
            if not self._idle[address]:
                del self._idle[address]

    @property
    def idle_count(self) -> int:
        """Idle connections of all addresses."""
        return sum(map(len, self._idle.values()))

    def connect(self, address: Address, opened: Opened) -> asyncio.Task[None]:
        """Make a new connection; cancelling the task gives up without a call."""
        task = asyncio.get_running_loop().create_task(self._connect(address, opened))
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("an upstream connection's callback failed", exc_info=error)

    async def _connect(self, address: Address, opened: Opened) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self._open(address)
        except TimeoutError:
            opened(None, f"did not take a connection within {self._timeout_s:g} s")
        except OSError as error:
            opened(None, describe(error))
        else:
            opened(connection, "")

    async def _open(self, address: Address) -> UpstreamConnection:
        loop = asyncio.get_running_loop()

        def made() -> UpstreamConnection:
            return UpstreamConnection(self, address)

        if address.tunnel is not None:
            return await self._tunnels.open(address.tunnel, address.host, address.port, made)
        if address.uds is not None:
            _, connection = await loop.create_unix_connection(made, address.uds)
            return connection
        transport, connection = await loop.create_connection(made, address.host, address.port)
        raw = transport.get_extra_info("socket")
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    async def close(self) -> None:
        """Close all idle connections and give up on those being made."""
        self.retain(frozenset())
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
