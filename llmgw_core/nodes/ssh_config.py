"""What ``~/.ssh/config`` says about a host, resolved here so that the library need not.

asyncssh's own parser is asked first. Where it fails on a file (it is stricter than OpenSSH), or
where OpenSSH is known to decide otherwise, ``ssh -G`` is asked instead: the person's own ssh is the
truth. A configuration that neither can read is an error of that node alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from asyncssh.config import SSHClientConfig

from llmgw_core.errors import NodeRefused, RefusedBecause

DEFAULT_PORT = 22
DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
SSH_G_TIMEOUT_S = 10.0
_OUTPUT_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class SshTarget:
    """Where and how one SSH connection is made. Paths are absolute, tokens expanded."""

    host: str
    """Name or address to connect to (HostName)."""
    port: int
    user: str
    identity_files: tuple[str, ...] = ()
    """Named for this host; empty means the default keys."""
    identities_only: bool = False
    """Agent keys other than the named ones are not offered."""
    agent_path: str | None = None
    certificate_files: tuple[str, ...] = ()
    proxy_jump: str | None = None
    """``[user@]host[:port]``, several separated by commas."""
    proxy_command: str | None = None
    known_hosts_files: tuple[str, ...] = ()
    host_key_alias: str | None = None
    """The name under which the person's own known_hosts files list the host."""
    family: int = socket.AF_UNSPEC


@dataclass(frozen=True, slots=True)
class Home:
    """Whose configuration is read."""

    folder: Path
    """The home directory that ``~`` and the default keys mean."""
    config: Path | None
    """The ssh configuration file; None reads none."""
    agent_path: str | None = None
    """The agent's socket where the configuration names none."""

    @property
    def ssh(self) -> Path:
        """The folder of keys and known hosts."""
        return self.config.parent if self.config is not None else self.folder / ".ssh"


Options = dict[str, list[str]]
"""Lower-case keyword to its values, as ``ssh -G`` prints them."""


async def resolve(
    host: str, *, home: Home, user: str | None = None, port: int | None = None
) -> SshTarget:
    """Everything about one host. ``user`` and ``port`` outrank the file.

    Raises:
        NodeRefused: neither parser could read the file.
    """
    path = home.config
    if path is None or not path.exists():
        return _target(host, {}, home, user=user, port=port)
    # Match exec runs programs, and files may lie on a slow disk: not on the event loop
    first = await asyncio.to_thread(_parse, path, host, user, port)
    if isinstance(first, dict):
        return _target(host, first, home, user=user, port=port)
    second = await _ask_ssh(path, host, user, port)
    if isinstance(second, dict):
        return _target(host, second, home, user=user, port=port, listed_defaults=True)
    raise NodeRefused(
        RefusedBecause.CONFIG,
        f"{path} cannot be read for {host!r}: {second or first}",
        hint="correct the file, or give host, port and user in llmgw's configuration",
    )


# --- the two parsers ----------------------------------------------------------------------------

_SINGLE = (
    "Hostname",
    "Port",
    "User",
    "IdentitiesOnly",
    "IdentityAgent",
    "ProxyJump",
    "ProxyCommand",
    "HostKeyAlias",
    "AddressFamily",
)
_SEVERAL = ("IdentityFile", "CertificateFile", "UserKnownHostsFile", "GlobalKnownHostsFile")


def _parse(path: Path, host: str, user: str | None, port: int | None) -> Options | str:
    """asyncssh's reading of the file, or why it is not to be relied on."""
    try:
        config = SSHClientConfig.load(
            None,
            [path],
            False,
            False,
            False,
            getpass.getuser(),
            user if user is not None else (),
            host,
            port if port is not None else (),
        )
    except (ValueError, OSError, KeyError, LookupError) as error:
        return str(error)
    if config.has_match_final() or config.get("CanonicalizeHostname"):
        return "the file asks for a second pass"
    found: Options = {}
    for key in _SINGLE:
        value = config.get(key, ())
        if value != ():
            found[key.lower()] = ["none" if value is None else _word(value)]
    for key in _SEVERAL:
        values = config.get(key)
        if isinstance(values, list):
            found[key.lower()] = [str(value) for value in values]
    return found


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, socket.AddressFamily):
        return {socket.AF_INET: "inet", socket.AF_INET6: "inet6"}.get(value, "any")
    return str(value)


async def _ask_ssh(path: Path, host: str, user: str | None, port: int | None) -> Options | str:
    """OpenSSH's own reading, or what it complained about ("" where there is no ssh)."""
    argv = ["ssh", "-G", "-F", str(path)]
    argv += ["-l", user] if user is not None else []
    argv += ["-p", str(port)] if port is not None else []
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            "--",
            host,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_OUTPUT_LIMIT,
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(SSH_G_TIMEOUT_S):
            out, err = await process.communicate()
    except TimeoutError:
        return f"ssh -G did not answer within {SSH_G_TIMEOUT_S:.0f} s"
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        lines = err.decode(errors="replace").strip().splitlines()
        return lines[0] if lines else f"ssh -G exited {process.returncode}"
    return _printed(out.decode(errors="replace"))


def _printed(text: str) -> Options:
    found: Options = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        key, value = key.lower(), value.strip()
        if key in ("userknownhostsfile", "globalknownhostsfile"):
            found[key] = value.split()
        elif value:
            found.setdefault(key, []).append(value)
    return found


# --- from words to a target ---------------------------------------------------------------------


def _target(
    host: str,
    options: Options,
    home: Home,
    *,
    user: str | None,
    port: int | None,
    listed_defaults: bool = False,
) -> SshTarget:
    def single(key: str) -> str | None:
        values = options.get(key)
        value = values[0] if values else None
        return None if value is None or value.lower() == "none" else value

    name = single("hostname") or host
    number = port if port is not None else _port(single("port"))
    login = user or single("user") or getpass.getuser()
    expand = _expander(
        home, {"h": name, "n": host, "p": str(number), "r": login, "k": single("hostkeyalias")}
    )
    identities = tuple(expand(v) for v in options.get("identityfile", ()) if v.lower() != "none")
    if listed_defaults and not _names_other_keys(identities, home):
        identities = ()  # ssh -G prints the default keys like named ones
    command = single("proxycommand")
    hosts_files = options.get("userknownhostsfile", [str(home.ssh / "known_hosts")])
    return SshTarget(
        host=name,
        port=number,
        user=login,
        identity_files=identities,
        identities_only=(single("identitiesonly") or "no").lower() in ("yes", "true"),
        agent_path=_agent(options.get("identityagent", []), home, expand),
        certificate_files=tuple(expand(v) for v in options.get("certificatefile", ())),
        proxy_jump=single("proxyjump"),
        proxy_command=expand(command, path=False) if command is not None else None,
        known_hosts_files=tuple(
            expand(v)
            for v in [*hosts_files, *options.get("globalknownhostsfile", [])]
            if v.lower() != "none"
        ),
        host_key_alias=single("hostkeyalias"),
        family={"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(
            single("addressfamily") or "", socket.AF_UNSPEC
        ),
    )


def _port(value: str | None) -> int:
    return int(value) if value is not None and value.isdigit() else DEFAULT_PORT


def _names_other_keys(identities: Sequence[str], home: Home) -> bool:
    """Whether a list holds more than OpenSSH's defaults."""
    return any(
        Path(path).parent not in (home.ssh, home.folder / ".ssh")
        or not re.fullmatch(r"id_(rsa|dsa|xmss|(ecdsa|ed25519)(_sk)?)", Path(path).name)
        for path in identities
    )


def _agent(values: Sequence[str], home: Home, expand: Callable[[str], str]) -> str | None:
    """The agent's socket: OpenSSH takes the word SSH_AUTH_SOCK and $NAME as a variable."""
    if not values:
        return home.agent_path
    value = values[0]
    if value.lower() == "none":
        return None
    if value == "SSH_AUTH_SOCK":
        return home.agent_path
    if value.startswith("$") and not value.startswith("${"):
        return os.environ.get(value[1:]) or None
    return expand(value)


class _Expander:
    """Replaces ``~``, ``%x`` and ``${NAME}`` as ssh_config(5) says."""

    def __init__(self, home: Home, tokens: dict[str, str | None]) -> None:
        self._home = home
        local = socket.gethostname()
        self._tokens: dict[str, str | None] = {
            "%": "%",
            "d": str(home.folder),
            "u": getpass.getuser(),
            "i": str(os.getuid()),
            "l": local,
            "L": local.partition(".")[0],
            **tokens,
        }
        if self._tokens["k"] is None:
            self._tokens["k"] = self._tokens["n"]

    def __call__(self, value: str, *, path: bool = True) -> str:
        text = re.sub(r"%(.)", self._token, value)
        text = re.sub(r"\$\{(\w+)\}", lambda m: os.environ.get(m[1], ""), text)
        if not path:
            return text
        text = text.strip('"')
        if text == "~" or text.startswith("~/"):
            text = str(self._home.folder) + text[1:]
        return str(self._home.ssh / text) if not os.path.isabs(text) else text

    def _token(self, match: re.Match[str]) -> str:
        found = self._tokens.get(match[1])
        return found if found is not None else match[0]


_expander = _Expander


# --- jump hosts ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HopName:
    """One element of a ProxyJump list."""

    host: str
    user: str | None = None
    port: int | None = None


def parse_hops(text: str) -> tuple[HopName, ...]:
    """``[user@]host[:port]`` or ``ssh://`` forms, separated by commas, first hop first.

    Raises:
        ValueError: an element without a host, or with a port that is none.
    """
    return tuple(_hop(part.strip()) for part in text.split(","))


def _hop(text: str) -> HopName:
    bare = text.removeprefix("ssh://").rstrip("/")
    user, _, place = bare.rpartition("@")
    match = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?|([^:]+)(?::(\d+))?", place)
    if match is None:
        if place.count(":") > 1 and not text.startswith("ssh://"):
            return HopName(place, user or None)  # an IPv6 address without brackets
        raise ValueError(f"{text!r} is not [user@]host[:port]")
    port = match[2] or match[4]
    if port is not None and not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} has a port outside 1 to 65535")
    return HopName(match[1] or match[3], user or None, int(port) if port else None)


def shell_words(command: str) -> list[str]:
    """A ProxyCommand as an argument list: a shell runs it, as OpenSSH has it."""
    return ["/bin/sh", "-c", command if command.startswith("exec ") else f"exec {command}"]
