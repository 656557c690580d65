"""The file of keys: changed under a lock, replaced whole, read by the gateway when it changes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from llmgw_core.errors import InvalidInput, NotFound, Refused
from llmgw_core.gateway.keys import PREFIX, Key, KeyRing, digest_of, hint_of
from llmgw_core.gateway.table import UNLIMITED, KeyLimits
from llmgw_core.paths import make_private

FILE = "keys.json"
_LOCK = ".keys.lock"
_SECRET_BYTES = 32
_NAME_MOST = 100

Stamp = tuple[int, int, int]
"""What changes whenever the file does."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A key that is to be made."""

    name: str
    owner: str | None = None
    models: tuple[str, ...] | None = None
    limits: KeyLimits = UNLIMITED
    model_class: str | None = None
    expires: float | None = None


class KeyStore:
    """The keys of one state directory."""

    def __init__(self, state: Path) -> None:
        self.path = state / FILE
        self._state = state

    def stamp(self) -> Stamp | None:
        """Which state of the file this is; None where there is none."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def load(self) -> KeyRing:
        """All keys; none where there is no file.

        Raises:
            InvalidInput: the file is not one of keys. Nothing is let in by guessing.
        """
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=KeyRing)
        except FileNotFoundError:
            return KeyRing()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise InvalidInput(
                f"The keys in {self.path} cannot be read: {why}",
                hint="restore the file, or remove it to begin without keys",
            ) from error

    def add(self, wanted: Wanted, *, actor: str, now: float) -> tuple[Key, str]:
        """Make a key; returns it with its secret, which is kept nowhere.

        Raises:
            InvalidInput: the name cannot be one.
            Refused: a key in force has that name.
        """
        name = wanted.name.strip()
        if not name or len(name) > _NAME_MOST or not name.isprintable():
            raise InvalidInput(f"{wanted.name!r} cannot name a key; use up to {_NAME_MOST} letters")
        secret = PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        key = Key(
            name=name,
            digest=digest_of(secret),
            hint=hint_of(secret),
            created=now,
            created_by=actor,
            owner=wanted.owner,
            models=wanted.models,
            limits=wanted.limits,
            model_class=wanted.model_class,
            expires=wanted.expires,
        )
        with self._locked():
            ring = self.load()
            if any(other.name == name and other.revoked is None for other in ring.keys):
                raise Refused(
                    f"there is a key {name!r} already", hint="revoke it first, or use another name"
                )
            self._write(KeyRing((*ring.keys, key)))
        return key, secret

    def revoke(self, name: str, *, actor: str, now: float) -> Key:
        """Put a key, by name or id, out of force; one that is out already stays as it was.

        Raises:
            NotFound: there is no such key.
        """
        with self._locked():
            ring = self.load()
            key = ring.find(name)
            if key is None:
                names = [k.name for k in ring.keys if k.revoked is None]
                known = ", ".join(names) or "there are none"
                raise NotFound(f"there is no key {name!r} in force (keys: {known})")
            if key.revoked is None:
                gone = msgspec.structs.replace(key, revoked=now, revoked_by=actor)
                self._write(KeyRing(tuple(gone if k is key else k for k in ring.keys)))
                key = gone
        return key

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        make_private(self._state)
        lock = os.open(self._state / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _write(self, ring: KeyRing) -> None:
        text = msgspec.json.format(msgspec.json.encode(ring), indent=2) + b"\n"
        handle, temporary = tempfile.mkstemp(dir=self._state, prefix=".keys")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
