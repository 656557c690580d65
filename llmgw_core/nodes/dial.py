"""Making SSH connections: options, jump hosts shared by many nodes, and errors for people.

``asyncssh`` is the transport; everything it would look up by itself (configuration, keys, host
keys, the agent) is decided here and handed over.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncssh
from asyncssh.kex import get_kex_algs

from llmgw_core.errors import NodeLost, NodeRefused, RefusedBecause
from llmgw_core.gateway.table import Tunnel
from llmgw_core.nodes.host_keys import HostKeyStore, KnownKeys
from llmgw_core.nodes.keys import KeyRing, Offer
from llmgw_core.nodes.login import Login
from llmgw_core.nodes.route import Hop
from llmgw_core.nodes.ssh_config import Home, shell_words
from llmgw_core.nodes.trouble import HostKeyRefused, explain, words

CONNECT_TIMEOUT_S = 15.0
KEEPALIVE_S = 3.0
KEEPALIVES_MISSED = 2
"""A dead peer is noticed after interval x (missed + 1): 9 s."""
CONNECTS_AT_ONCE = 4
"""A handshake is 10 ms of CPU: more of them at once would stop the screen."""
CLOSE_TIMEOUT_S = 2.0
ADDRESS_TIMEOUT_S = 4.0
"""For each address of a host that has another one."""

CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes256-ctr",
    "aes128-ctr",
)
_KEX = (
    "mlkem768x25519-sha256",
    "curve25519-sha256",
    "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp256",
    "ecdh-sha2-nistp384",
    "ecdh-sha2-nistp521",
)

# without a handler of its own, what the library logs would end up on the terminal
logging.getLogger("asyncssh").addHandler(logging.NullHandler())
logging.getLogger("asyncssh").setLevel(logging.WARNING)

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Connection:
    """An open connection of one hop, with what was found out while making it."""

    hop: Hop
    ssh: asyncssh.SSHClientConnection
    login: Login
    host_key: asyncssh.SSHKey | None

    @property
    def lost_because(self) -> str:
        """Why it ended, for a person."""
        return words(self.login.lost) if self.login.lost is not None else "it was closed"

    async def close(self) -> None:
        """End it: politely where the peer answers, at once where it does not."""
        self.ssh.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.ssh.wait_closed()
        except TimeoutError:
            self.ssh.abort()


@dataclass(slots=True, eq=False)
class _Jump:
    """A connection that several nodes go through."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: Connection | None = None
    users: int = 0
    failure: NodeLost | NodeRefused | None = None
    failed_at: float = 0.0


class Dialer:
    """Connects hops, a few at a time, and shares jump hosts between nodes.

    ``store`` is asked and changed by trusting; ``verified`` receives the keys of hosts that were
    reached, so that the gateway's own connections can be strict as well.
    """

    def __init__(self, home: Home, store: HostKeyStore, verified: HostKeyStore) -> None:
        self.home = home
        self.store = store
        self.verified = verified
        self.key_files: dict[Hop, tuple[str, ...]] = {}
        """Files of the keys that were offered to hops that let us in."""
        self._ring = KeyRing()
        self._gate = asyncio.Semaphore(CONNECTS_AT_ONCE)
        self._jumps: dict[Hop, _Jump] = {}

    @asynccontextmanager
    async def connected(self, hop: Hop) -> AsyncIterator[Connection]:
        """A connection of this hop through its jumps, closed at the end of the block.

        Raises:
            NodeLost: it cannot be reached.
            NodeRefused: it does not let us in; ``HostKeyRefused`` where its key is the reason.
        """
        async with self._through(hop.via) as through:
            connection = await self._connect(hop, through)
            try:
                yield connection
            finally:
                await connection.close()

    @asynccontextmanager
    async def _through(self, hop: Hop | None) -> AsyncIterator[Connection | None]:
        if hop is None:
            yield None
            return
        jump = self._jumps.setdefault(hop, _Jump())
        jump.users += 1
        try:
            # the way to the jump stays open as long as any node uses it
            async with self._through(hop.via) as before:
                yield await self._shared(hop, jump, before)
        finally:
            jump.users -= 1
            if not jump.users:
                del self._jumps[hop]
                if jump.connection is not None:
                    await jump.connection.close()

    async def _shared(self, hop: Hop, jump: _Jump, before: Connection | None) -> Connection:
        """The jump's connection; nodes that wait for the same attempt share how it ends."""
        asked = asyncio.get_running_loop().time()
        async with jump.lock:
            if jump.connection is not None and not jump.connection.ssh.is_closed():
                return jump.connection
            if jump.failure is not None and jump.failed_at >= asked:
                raise jump.failure
            try:
                jump.connection = await self._connect(hop, before)
            except (NodeLost, NodeRefused) as error:
                jump.failure, jump.failed_at = error, asyncio.get_running_loop().time()
                raise
            return jump.connection

    def tunnel(self, hop: Hop) -> Tunnel | None:
        """How another process reaches this hop; None until it was reached from here."""
        jump = self.tunnel(hop.via) if hop.via is not None else None
        if hop not in self.key_files or (jump is None and hop.via is not None):
            return None
        return Tunnel(
            host=hop.target.host,
            port=hop.target.port,
            user=hop.target.user,
            identity_files=self.key_files[hop],
            known_hosts=str(self.verified.path),
            host_key_alias=hop.alias,
            jump=jump,
        )

    def forget(self, hop: Hop) -> None:
        """A node left the fleet, or goes another way."""
        self.key_files.pop(hop, None)

    async def _connect(self, hop: Hop, through: Connection | None) -> Connection:
        if (own := hop.credentials) is not None:
            known = KnownKeys((own.host_key,))
            offer = Offer(list(asyncssh.load_keypairs([own.client_key])), [hop.label])
        else:
            known = await asyncio.to_thread(self._known, hop)
            offer = await self._ring.offer(hop.target, self.home.ssh, only=hop.only_key)
        try:
            if hop.only_key is not None and not offer.pairs:
                raise NodeRefused(
                    RefusedBecause.AUTH,
                    f"{hop.label}: there is no key to log in with; not used: "
                    + ", ".join(offer.passed_over),
                )
            login = Login(offer.pairs)
            try:
                ssh = await self._handshake(hop, through, known, login)
            except (asyncssh.Error, OSError, ValueError) as error:
                raise _explain(hop, through, known, offer, login, error) from error
        finally:
            offer.close()
        key = ssh.get_server_host_key()
        if key is not None and hop.credentials is None:
            await asyncio.to_thread(self._remember, hop, key)
            self.key_files[hop] = tuple(offer.files)
        return Connection(hop, ssh, login, key)

    async def _handshake(
        self, hop: Hop, through: Connection | None, known: KnownKeys, login: Login
    ) -> asyncssh.SSHClientConnection:
        options = _options(hop, known, login)
        sock: socket.socket | None = None
        if through is None and hop.target.proxy_command is None:
            # outside the gate: hosts that swallow packets must not keep others from connecting
            sock = await open_socket(hop.target.host, hop.target.port, hop.target.family)
        try:
            async with self._gate:
                return await asyncssh.connect(
                    hop.target.host,
                    hop.target.port,
                    sock=sock,
                    tunnel=through.ssh if through is not None else (),
                    config=None,
                    **options,
                )
        except BaseException:
            if sock is not None:
                sock.close()
            raise

    def _known(self, hop: Hop) -> KnownKeys:
        target = hop.target
        try:
            return self.store.lookup(
                hop.alias,
                host=target.host_key_alias or target.host,
                port=target.port,
                files=target.known_hosts_files,
            )
        except OSError as error:
            raise NodeRefused(
                RefusedBecause.CONFIG,
                f"The host keys in {self.store.path} cannot be read: {error.strerror or error}",
            ) from error

    def _remember(self, hop: Hop, key: asyncssh.SSHKey) -> None:
        try:
            self.verified.remember(hop.alias, key)
        except OSError as error:
            log.warning("%s: the key of %s is not written down: %s", self.verified.path, hop, error)


def _explain(
    hop: Hop,
    through: Connection | None,
    known: KnownKeys,
    offer: Offer,
    login: Login,
    error: Exception,
) -> NodeLost | NodeRefused:
    if login.untrusted is not None:
        return HostKeyRefused(hop, login.untrusted, known)
    return explain(hop, through.hop if through is not None else None, offer, login, error)


async def open_socket(host: str, port: int, family: int) -> socket.socket:
    """A TCP connection to the first address of a host that answers.

    Raises:
        OSError: the name is unknown, or no address answers (the last one's error).
        TimeoutError: the time was up.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        for index, (kind, _, _, _, address) in enumerate(found):
            last = index == len(found) - 1
            sock = socket.socket(kind, socket.SOCK_STREAM)
            try:
                sock.setblocking(False)
                # a dead IPv6 address must not use up the time of the IPv4 one behind it
                async with asyncio.timeout(None if last else ADDRESS_TIMEOUT_S):
                    await loop.sock_connect(sock, address)
            except OSError as error:
                sock.close()
                if last:
                    raise
                log.debug("%s port %d: %s: %s", host, port, address, error)
            except BaseException:
                sock.close()
                raise
            else:
                return sock
    raise OSError(f"{host} has no address")


def _options(hop: Hop, known: KnownKeys, login: Login) -> dict[str, Any]:
    target = hop.target
    extra: dict[str, Any] = {}
    if target.proxy_command is not None and hop.via is None:
        extra["proxy_command"] = shell_words(target.proxy_command)
    kex = set(get_kex_algs())
    return {
        "client_factory": lambda: login,
        "username": target.user,
        "known_hosts": known.as_argument(),
        "server_host_key_algs": known.algorithms(),
        "host_key_alias": target.host_key_alias,
        "x509_trusted_certs": None,
        "x509_trusted_cert_paths": [],
        # the login itself hands them out; asked for passwords and codes, it answers nothing
        "client_keys": None,
        "agent_path": None,
        "password": None,
        "host_based_auth": False,
        "kbdint_auth": True,
        "password_auth": True,
        "gss_host": None,
        "gss_auth": False,
        "gss_kex": False,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "login_timeout": CONNECT_TIMEOUT_S,
        "keepalive_interval": KEEPALIVE_S,
        "keepalive_count_max": KEEPALIVES_MISSED,
        "encryption_algs": list(CIPHERS),
        "kex_algs": [name for name in _KEX if name.encode() in kex],
        "compression_algs": None,
        "utf8_decode_errors": "replace",
        **extra,
    }
