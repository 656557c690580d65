"""What went wrong with a connection, in words for people."""

from __future__ import annotations

import socket

import asyncssh

from llmgw_core.errors import NodeLost, NodeRefused, RefusedBecause
from llmgw_core.nodes.host_keys import KnownKeys, fingerprint
from llmgw_core.nodes.keys import Offer
from llmgw_core.nodes.login import PUBLIC_KEY, Login
from llmgw_core.nodes.route import Hop
from llmgw_core.plain_text import sanitise


class HostKeyRefused(NodeRefused):
    """A host shows a key that is not trusted; carries what a person has to decide about."""

    def __init__(self, hop: Hop, key: asyncssh.SSHKey, known: KnownKeys) -> None:
        self.hop = hop
        self.key = key
        self.fingerprint = fingerprint(key)
        self.old_fingerprint = ", ".join(fingerprint(k) for k in known.host_keys) or None
        # a jump host that is no node is trusted by the name of a node behind it
        name = "NODE" if hop.alias.startswith("jump:") else hop.alias
        command = f"llmgw run node trust {name} --fingerprint {self.fingerprint}"
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
                hint=f"compare it with the host's own, then `{command}`",
            )


def explain(
    hop: Hop, through: Hop | None, offer: Offer, login: Login, error: Exception
) -> NodeLost | NodeRefused:
    """A failed connect in words: NodeRefused where only a person can help, else NodeLost."""
    place = f"{hop.label} ({hop.place})"
    reason = getattr(error, "reason", "") or str(error)
    if isinstance(error, asyncssh.PermissionDenied) or "authentication failures" in reason:
        return _denied(hop, offer, login, many=not isinstance(error, asyncssh.PermissionDenied))
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
    if _hung_up(error) and login.key_taken:
        return _shown_out(hop, login, error)
    return NodeLost(f"{place} {_trouble(error, reason, login)}")


def _denied(hop: Hop, offer: Offer, login: Login, *, many: bool) -> NodeRefused:
    """The login came to its end, and it was no."""
    user, place = hop.target.user, f"{hop.label} ({hop.place})"
    closed = f"{place} does not let {user!r} in"
    match login:
        case Login() if many:
            said = f"{closed}: too many keys: {offer.words}"
            hint = "name the right key with identity_file"
        case Login() if offer.unsigned:
            said = f"{closed}, since {offer.unsigned}"
            hint = (
                "unlock it with ssh-add -X, say yes to its question, or name a key file with "
                "identity_file"
            )
        case Login(key_taken=True):
            more = ", ".join(way for way in login.ways if way != PUBLIC_KEY) or "something else"
            said = f"{place} took the key of {user!r} and asks for a second factor too ({more})"
            hint = (
                "llmgw types none: in its sshd_config, `AuthenticationMethods publickey` in a "
                f"block `Match User {user}` lets it in by key alone"
            )
        case Login(ways=[*ways]) if ways and PUBLIC_KEY not in ways:
            said = f"{place} lets {user!r} in by {' or '.join(ways)} only, and llmgw types none"
            hint = (
                f"allow keys there (PubkeyAuthentication yes in its sshd_config) and add one to "
                f"the authorized_keys of {user!r}"
            )
        case _:
            said = f"{closed}: {offer.words}"
            hint = (
                "add a key to its authorized_keys, or set user or identity_file; where the key is "
                "there already, the log of its SSH server says more (an account that is locked, "
                "expired or not among AllowUsers, a home that others may write)"
            )
    return NodeRefused(RefusedBecause.AUTH, said, hint=hint)


def _hung_up(error: Exception) -> bool:
    return isinstance(error, asyncssh.ConnectionLost | ConnectionError)


def _shown_out(hop: Hop, login: Login, error: Exception) -> NodeLost | NodeRefused:
    """The server hung up over a key that it did not refuse, as with accounts that PAM closes."""
    said = next((line.strip() for line in login.banner.splitlines() if line.strip()), "")
    why = f"it said: {sanitise(said, most=200)}" if said else words(error)
    text = f"{hop.label} ({hop.place}) hung up over the login of {hop.target.user!r}; {why}"
    if "expired" in said.lower():
        return NodeRefused(RefusedBecause.AUTH, text, hint="have the account prolonged there")
    # also while a host comes up or goes down: nothing that a person would have to change
    return NodeLost(text)


def _trouble(error: Exception, reason: str, login: Login) -> str:
    if isinstance(error, TimeoutError):
        return "does not answer"
    if isinstance(error, ConnectionRefusedError):
        return "refuses connections; is an SSH server running there?"
    if isinstance(error, socket.gaierror):
        return "has a name that no name server knows; check host, or ~/.ssh/config"
    if _hung_up(error) and not login.greeted:
        return (
            f"closed the connection without a word ({words(error)}); too many logins at once "
            "there (MaxStartups), or it keeps this machine out for a while"
        )
    if _hung_up(error):
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
