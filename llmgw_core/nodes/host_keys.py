"""Whose host keys are trusted: llmgw's own known_hosts file, then the person's.

An entry in the own file is a decision that a person made here about that node: it stands alone and
outranks what ``~/.ssh/known_hosts`` says. Revoked keys and certificate authorities of the person's
files hold in any case.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

log = logging.getLogger(__name__)

_PLAIN = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "rsa-sha2-512",
    "rsa-sha2-256",
)
"""In the order in which they are asked for: the same when trusting and when connecting."""


def fingerprint(key: asyncssh.SSHKey) -> str:
    """``SHA256:…`` as OpenSSH prints it."""
    return key.get_fingerprint()


def line_for(alias: str, key: asyncssh.SSHKey) -> str:
    """One line of a known_hosts file."""
    kind, data = key.export_public_key("openssh").decode("ascii").split()[:2]
    return f"{alias} {kind} {data}"


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """What is trusted for one host."""

    host_keys: tuple[asyncssh.SSHKey, ...] = ()
    ca_keys: tuple[asyncssh.SSHKey, ...] = ()
    revoked: tuple[asyncssh.SSHKey, ...] = ()

    @property
    def any(self) -> bool:
        """Whether a different key would be a changed one."""
        return bool(self.host_keys or self.ca_keys)

    def algorithms(self) -> list[str]:
        """Kinds of host key to ask for: known ones first, and all others after them.

        With the known ones alone, a host that got a key of another kind would merely hang up,
        where a person has to hear that its key has changed.
        """
        certified = [f"{name}-cert-v01@openssh.com" for name in _PLAIN] if self.ca_keys else []
        known = [a.decode("ascii") for key in self.host_keys for a in key.sig_algorithms]
        return list(dict.fromkeys([*certified, *known, *_PLAIN]))

    def as_argument(self) -> tuple[Sequence[asyncssh.SSHKey], ...]:
        """In the form of asyncssh's ``known_hosts``: keys, authorities, revoked keys."""
        return list(self.host_keys), list(self.ca_keys), list(self.revoked)


class HostKeyStore:
    """llmgw's own known_hosts file. Small; read at each look-up, written whole and atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lookup(self, alias: str, *, host: str, port: int, files: Sequence[str] = ()) -> KnownKeys:
        """Keys trusted for a node: own entries under ``alias``, else the person's for ``host``."""
        own = self._own(alias)
        theirs, authorities, revoked = _read(files, host, port)
        return KnownKeys(own or theirs, authorities, revoked)

    def add(self, alias: str, key: asyncssh.SSHKey) -> None:
        """Trust this key, and no other, under ``alias``.

        Raises:
            OSError: the file could not be written.
        """
        kept = [line for line in self._lines() if line.split()[0] != alias]
        _write(self.path, [*kept, line_for(alias, key)])

    def remember(self, alias: str, key: asyncssh.SSHKey) -> None:
        """Write the key where it is not there yet: for files that other processes read."""
        if line_for(alias, key) not in self._lines():
            self.add(alias, key)

    def _own(self, alias: str) -> tuple[asyncssh.SSHKey, ...]:
        found = []
        for line in self._lines():
            name, _, key = line.partition(" ")
            if name == alias:
                try:
                    found.append(asyncssh.import_public_key(key))
                except asyncssh.KeyImportError as error:
                    log.warning("%s: the entry of %s is not a key: %s", self.path, alias, error)
        return tuple(found)

    def _lines(self) -> list[str]:
        try:
            text = self.path.read_text("utf-8", errors="replace")
        except FileNotFoundError:
            return []
        return [line for line in text.splitlines() if line.strip() and line[0] != "#"]


def _read(files: Sequence[str], host: str, port: int) -> tuple[tuple[asyncssh.SSHKey, ...], ...]:
    keys: list[asyncssh.SSHKey] = []
    authorities: list[asyncssh.SSHKey] = []
    revoked: list[asyncssh.SSHKey] = []
    for name in files:
        try:
            text = Path(name).read_text("utf-8", errors="replace")
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("%s cannot be read, so its host keys are not trusted: %s", name, error)
            continue
        known = asyncssh.SSHKnownHosts()
        for number, line in enumerate(text.splitlines(), 1):
            try:
                known.load(line)
            except ValueError as error:  # one bad line must not hide the others
                log.warning("%s line %d is passed over: %s", name, number, error)
        # in two steps: given a port, the library forgets revoked keys where it finds no others
        exact = asyncssh.match_known_hosts(
            known, f"[{host}]:{port}" if port != 22 else host, "", None
        )
        plain = asyncssh.match_known_hosts(known, host, "", None)
        best = exact if exact[0] or exact[1] else plain
        keys += best[0]
        authorities += best[1]
        revoked += [*exact[2], *plain[2]]
    return tuple(keys), tuple(authorities), tuple(revoked)


def _write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
