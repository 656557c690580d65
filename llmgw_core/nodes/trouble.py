"""What went wrong with a connection, in words for people."""

from __future__ import annotations

import socket

import asyncssh

from llmgw_core.errors import NodeLost, NodeRefused, RefusedBecause
from llmgw_core.nodes.host_keys import KnownKeys, fingerprint
from llmgw_core.nodes.keys import Offer
from llmgw_core.nodes.route import Hop


class HostKeyRefused(NodeRefused):
    """A host shows a key that is not trusted; carries what a person has to decide about."""

    def __init__(self, hop: Hop, key: asyncssh.SSHKey, known: KnownKeys) -> None:
        self.hop = hop
        self.key = key
        self.fingerprint = fingerprint(key)
        self.old_fingerprint = ", ".join(fingerprint(k) for k in known.host_keys) or None
        if known.any:
            super().__init__(
                RefusedBecause.HOST_KEY_CHANGED,
                f"{hop.label} ({hop.place}) shows the host key {self.fingerprint}, "
                f"and not {self.old_fingerprint or 'one that its authority signed'}",
                hint="somebody may be in between; if the host was set up anew, "
                "trust this fingerprint by name",
            )
        else:
            super().__init__(
                RefusedBecause.HOST_KEY_UNKNOWN,
                f"{hop.label} ({hop.place}) shows the host key {self.fingerprint}, "
                "which nobody has accepted yet",
                hint="compare it with the host's own and trust it",
            )


def explain(
    hop: Hop, through: Hop | None, offer: Offer, error: Exception
) -> NodeLost | NodeRefused:
    """A failed connect in words: NodeRefused where only a person can help, else NodeLost."""
    place = f"{hop.label} ({hop.place})"
    reason = getattr(error, "reason", "") or str(error)
    if isinstance(error, asyncssh.PermissionDenied) or "authentication failures" in reason:
        many = "" if isinstance(error, asyncssh.PermissionDenied) else " too many keys:"
        return NodeRefused(
            RefusedBecause.AUTH,
            f"{place} does not let {hop.target.user!r} in:{many} {offer.words}",
            hint="name the right key with identity_file"
            if many
            else "add a key to its authorized_keys, or set user or identity_file",
        )
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return NodeRefused(
            RefusedBecause.HOST_KEY_CHANGED,
            f"{place} shows a host key that is not accepted: {reason}",
            hint="look into the known_hosts files",
        )
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return NodeRefused(
            RefusedBecause.CONFIG,
            f"{place} has no way to encrypt in common with this machine: {reason}",
            hint="update its SSH server",
        )
    if isinstance(error, asyncssh.ChannelOpenError) and through is not None:
        return NodeLost(f"{place} is not reached through {through.label}: {reason}")
    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return NodeRefused(RefusedBecause.CONFIG, f"{place} cannot be connected to: {reason}")
    return NodeLost(f"{place} {_trouble(error, reason)}")


def _trouble(error: Exception, reason: str) -> str:
    if isinstance(error, TimeoutError):
        return "does not answer"
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections; is an SSH server running there?"
    if isinstance(error, socket.gaierror):
        return "has a name that no name server knows; check host, or ~/.ssh/config"
    if isinstance(error, asyncssh.ConnectionLost | ConnectionError):
        return f"closed the connection during the login ({words(error)})"
    if isinstance(error, OSError):
        return f"cannot be reached: {error.strerror or reason or type(error).__name__}"
    return f"broke the SSH protocol: {reason or type(error).__name__}"


def words(error: Exception) -> str:
    """What ended a connection."""
    if isinstance(error, asyncssh.ConnectionLost) and "keepalive" in error.reason:
        return "it no longer answers"
    if isinstance(error, asyncssh.DisconnectError):
        return error.reason or type(error).__name__
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__
