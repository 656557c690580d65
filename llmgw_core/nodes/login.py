"""How a login went: what the server asked for, and what was given. For the words in ``trouble``.

The keys are handed out one at a time, so that it is known which of them the server took and then
wanted more: a key that is asked for after it was refused, one after which something else is asked
for was not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import asyncssh

PUBLIC_KEY, PASSWORD, QUESTIONS = "publickey", "password", "keyboard-interactive"
"""Ways to log in, as servers call them; the last one is how codes and passwords are asked for."""
BANNER_LIMIT = 1000


class Login(asyncssh.SSHClient):
    """One attempt, as the library tells of it; never types anything, and trusts no new key."""

    def __init__(self, keys: Iterable[asyncssh.SSHKeyPair] = ()) -> None:
        self._keys = deque(keys)
        self._connection: asyncssh.SSHClientConnection | None = None
        self.untrusted: asyncssh.SSHKey | None = None
        """The key that the host showed, where it is not trusted."""
        self.lost: Exception | None = None
        """Why the connection ended."""
        self.banner = ""
        """What the server says before a login."""
        self.ways: list[str] = []
        """What the server took as ways to log in, in the order in which it was asked."""
        self.given = 0
        """How many keys were offered."""
        self.key_taken = False
        """The last key was not refused: the login was complete, or more is asked for."""

    @property
    def greeted(self) -> bool:
        """Whether an SSH server answered at all, before the connection ended."""
        connection = self._connection
        return connection is not None and connection.get_extra_info("server_version") is not None

    # --- callbacks of the library

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """A connection stands; nothing was said yet."""
        self._connection = conn

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Asked for unknown and for changed keys alike: never yes."""
        self.untrusted = key
        return False

    def auth_banner_received(self, msg: str, lang: str) -> None:
        """Kept for the words of a refusal."""
        self.banner = msg[:BANNER_LIMIT]

    def public_key_auth_requested(self) -> list[asyncssh.SSHKeyPair] | None:
        """The next key; the one before was refused."""
        self._asked(PUBLIC_KEY)
        self.key_taken = bool(self._keys)
        if not self._keys:
            return None
        self.given += 1
        return [self._keys.popleft()]

    def password_auth_requested(self) -> None:
        """Nothing is typed."""
        self._asked(PASSWORD)

    def kbdint_auth_requested(self) -> None:
        """Nothing is answered."""
        self._asked(QUESTIONS)

    def connection_lost(self, exc: Exception | None) -> None:
        """The end, in whatever way."""
        self.lost = exc

    def _asked(self, way: str) -> None:
        if way not in self.ways:
            self.ways.append(way)
