"""Which controller a node belongs to: a lease on the node, told by ``scripts/lease.sh``.

The live stream takes it and renews it. Its age is by the node's own monotonic clock, so that no
clock's jump matters, and a lease from before a restart of the node is old at once.
"""

from __future__ import annotations

import base64
import binascii
import getpass
import hashlib
import logging
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from llmgw_core.errors import LlmgwError, NodeRefused, RefusedBecause, RemoteFailed
from llmgw_core.nodes.exec import Exec
from llmgw_core.nodes.script import is_name, load, optional_word, word
from llmgw_core.plain_text import sanitise

log = logging.getLogger(__name__)

LEASE_OLD_S = 30.0
"""Without renewal for so long, a lease may be taken by another."""
LEASE_RETRY_S = 10.0
"""How often a node that is another controller's is asked for again."""
ID_FILE = "controller.id"
REFUSED_STATUS = 79
"""With which scripts refuse because of a lease."""

_MARK = b"@@lease "
_VERB_TIMEOUT_S = 30.0
_GIVE_BACK_S = 3.0
_TEXT_LIMIT = 80


@dataclass(frozen=True, slots=True)
class Holder:
    """A controller, as it names itself on the nodes that it leads."""

    id: str
    """Of its state directory and machine; all else is for people."""
    cluster: str
    host: str
    user: str
    pid: int
    started: int | None = None
    """Unix seconds by its own clock."""

    def __str__(self) -> str:
        return f"{self.user} on {self.host} (cluster {self.cluster}, pid {self.pid})"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a session asks for: a lease for this holder, and when another's is old."""

    holder: Holder
    old_s: float = LEASE_OLD_S
    token: str = field(default_factory=lambda: secrets.token_hex(6))
    """Of one session, so that a late one gives back nothing but its own."""

    def args(self, how: str = "") -> tuple[str, ...]:
        """As ``take_lease`` of lease.sh reads them."""
        me = self.holder
        limit = str(max(1, round(self.old_s * 100)))
        words = (
            word(me.cluster or "-"),
            word(me.host),
            word(me.user),
            str(me.pid),
            str(me.started or 0),
        )
        return (me.id, self.token, limit, *((how,) if how else ()), *words)


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a controller leads its nodes; times in seconds."""

    holder: Holder
    old_s: float = LEASE_OLD_S
    retry_s: float = LEASE_RETRY_S

    def claim(self) -> Claim:
        """For one session."""
        return Claim(self.holder, self.old_s)


@dataclass(frozen=True, slots=True)
class LeaseLine:
    """One line about a lease: whose it is, or was."""

    state: str
    """``ours``, ``other``, ``lost`` (another took it over), ``was`` (and is no more)."""
    age_s: float | None
    """Since its renewal; None where the node was restarted since."""
    holder: Holder


class LeaseHeld(NodeRefused):
    """A node belongs to another controller."""

    def __init__(self, name: str, line: LeaseLine) -> None:
        self.holder = line.holder
        age = "" if line.age_s is None else f", which renewed its lease {_age(line.age_s)} ago"
        done = "was taken over by" if line.state == "lost" else "is led by"
        super().__init__(
            RefusedBecause.LEASE,
            f"{name} {done} another controller, {line.holder}{age}",
            hint=f"end that one, or take the node over with `llmgw run node takeover {name}`",
        )


def is_lease_line(line: bytes) -> bool:
    """Whether ``parse_lease`` is to read it."""
    return line.startswith(_MARK)


def parse_lease(line: bytes) -> LeaseLine | None:
    """A line of ``tell_lease``; None for anything else. Its texts come from another controller."""
    if not line.startswith(_MARK):
        return None
    words = line.removeprefix(_MARK).decode(errors="replace").split()
    if len(words) < 4:
        return None
    state, age, id_, _, cluster, host, user, pid, started = [*words, *("-",) * 9][:9]
    hundredths = _whole(age)
    holder = Holder(
        id_, _text(cluster), _text(host), _text(user), _whole(pid) or 0, _whole(started) or None
    )
    return LeaseLine(state, None if hundredths is None else hundredths / 100, holder)


def refusal(name: str, said: bytes) -> LeaseHeld | None:
    """What a script said that ended with ``REFUSED_STATUS``, as an error."""
    found = next((line for line in said.splitlines() if is_lease_line(line)), None)
    line = parse_lease(found) if found is not None else None
    return LeaseHeld(name, line) if line is not None else None


async def take_over(exec_: Exec, state_dir: str | None, claim: Claim) -> Holder | None:
    """Take the lease from whoever has it; returns who that was, None where it was nobody else.

    Raises:
        NodeLost: the link went away.
        RemoteFailed: the node cannot write it down.
    """
    result = await exec_.script(
        _verbs(), "take", optional_word(state_dir), *claim.args("force"), timeout_s=_VERB_TIMEOUT_S
    )
    lines = [parse_lease(line) for line in result.stdout.splitlines()]
    if result.exit_status != 0 or not any(line and line.state == "ours" for line in lines):
        said = result.stderr.decode(errors="replace").strip().splitlines()
        why = said[-1] if said else f"exit status {result.exit_status}"
        raise RemoteFailed(f"cannot take the node over: {why}", exit_status=result.exit_status)
    return next((line.holder for line in lines if line and line.state == "was"), None)


async def give_back(exec_: Exec, state_dir: str | None, claim: Claim) -> None:
    """Let go of the lease where this very claim took it. Best effort, in 3 s: else it grows old."""
    args = (claim.holder.id, claim.token)
    try:
        result = await exec_.script(
            _verbs(), "give_back", optional_word(state_dir), *args, timeout_s=_GIVE_BACK_S
        )
    except LlmgwError as error:
        log.info("a lease was not given back and grows old: %s", error)
        return
    if result.exit_status:
        log.info("a lease was not given back and grows old: %r", result.stderr[-200:])


def this_controller(
    state_dir: Path,
    cluster: str,
    *,
    started: float,
    host: Callable[[], str] = socket.gethostname,
) -> Holder:
    """Who we are on nodes: the same after a restart, another on another machine.

    The state directory keeps a random id. The machine's name goes into it too, so that a copied
    state directory does not make two controllers one.

    Raises:
        LlmgwError: the state directory cannot be written.
    """
    name = host() or "localhost"
    try:
        own = _kept_id(state_dir / ID_FILE)
    except OSError as error:
        raise LlmgwError(
            f"{state_dir / ID_FILE} cannot be written: {error.strerror or error}",
            hint="free some space, or name another state directory with --state",
        ) from error
    machine = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:8]
    return Holder(f"{own}.{machine}", cluster, name, _user(), os.getpid(), int(started))


def _kept_id(path: Path) -> str:
    with suppress(FileNotFoundError):
        found = path.read_text(encoding="ascii", errors="replace").strip()
        if is_name(found) and len(found) >= 16:
            return found
    made = secrets.token_hex(16)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(made + "\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    return made


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a uid without a name, as in containers
        return f"uid-{os.getuid()}"


def _verbs() -> str:
    return load("lib.sh", "lease.sh", "lease_verbs.sh")


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def _text(text: str) -> str:
    """A word as ``script.word`` wrote it, fit to be shown."""
    if text.startswith("b64:"):
        try:
            text = base64.b64decode(text[4:], validate=True).decode(errors="replace")
        except binascii.Error:
            text = "?"
    return sanitise(text, most=_TEXT_LIMIT)


def _age(age_s: float) -> str:
    return f"{age_s:.0f} s" if age_s < 120 else f"{age_s / 60:.0f} min"
