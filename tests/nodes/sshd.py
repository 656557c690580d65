"""A real OpenSSH server on loopback for tests, with keys and configuration of its own."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh
import pytest

SSHD = Path("/usr/sbin/sshd")
RUN = Path("/run/sshd")


def needs_sshd() -> None:
    """Skip the test where no OpenSSH server can be started."""
    if not SSHD.exists():
        pytest.skip("no OpenSSH server here")
    if os.geteuid() == 0 and not RUN.exists():
        RUN.mkdir(mode=0o755, exist_ok=True)  # sshd as root wants an empty folder for its children


@dataclass
class Sshd:
    """One server; ``running`` starts and ends it."""

    folder: Path
    options: dict[str, str] = field(default_factory=dict)
    port: int = 0
    process: asyncio.subprocess.Process | None = None
    _strays: set[int] = field(default_factory=set)

    @property
    def home(self) -> Path:
        """HOME of logins: their shells read no start-up file of the developer's."""
        return self.folder / "home"

    @property
    def client_key(self) -> Path:
        """A private key that may log in."""
        return self.folder / "client"

    @property
    def user(self) -> str:
        """Who may log in."""
        return getpass.getuser()

    def new_host_key(self) -> str:
        """Make a host key, in place of the one before; returns its fingerprint."""
        key = asyncssh.generate_private_key("ssh-ed25519")
        path = self.folder / "host"
        path.write_bytes(key.export_private_key())
        path.chmod(0o600)
        return key.get_fingerprint()

    def host_key_line(self, alias: str) -> str:
        """For a known_hosts file."""
        key = asyncssh.read_private_key(str(self.folder / "host"))
        return f"{alias} {key.export_public_key().decode().strip()}\n"

    def in_home(self, prefix: str = "") -> None:
        """Run commands in the test's folder, after ``prefix`` (shell text)."""
        self.options["ForceCommand"] = f'{prefix} cd; exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"'

    async def start(self) -> None:
        """Listen."""
        if not self.port:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
        self.home.mkdir(exist_ok=True)
        config = self.folder / "sshd_config"
        lines = {
            "Port": str(self.port),
            "ListenAddress": "127.0.0.1",
            "HostKey": str(self.folder / "host"),
            "AuthorizedKeysFile": str(self.folder / "authorized_keys"),
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PermitRootLogin": "yes",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitUserRC": "no",
            "PrintMotd": "no",
            "SetEnv": f"HOME={self.home}",
            **self.options,
        }
        config.write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
        log = (self.folder / "sshd.log").open("ab")
        try:
            self.process = await asyncio.create_subprocess_exec(
                str(SSHD), "-D", "-e", "-f", str(config), stdout=log, stderr=log
            )
        finally:
            log.close()
        async with asyncio.timeout(20):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    assert self.process.returncode is None, self.log()
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    await writer.wait_closed()
                    return

    def kill_sessions(self) -> None:
        """Cut every connection, as a reboot would; commands that do not notice live on."""
        self._strays |= set(self._descendants())
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError):  # on its way out already
                os.kill(pid, signal.SIGKILL)

    async def stop(self) -> None:
        """End the listener, every session, and what their commands left behind."""
        self._strays |= set(self._descendants())
        process, self.process = self.process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
        for pid in self._strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._strays.clear()

    def sessions(self) -> list[int]:
        """Pids of the processes that serve connections, children first."""
        return [pid for pid in reversed(self._descendants()) if _name(pid).startswith("sshd")]

    def _descendants(self) -> list[int]:
        found: list[int] = []
        todo = [self.process.pid] if self.process is not None else []
        while todo:
            children = _children(todo.pop())
            found += children
            todo += children
        return found

    def log(self) -> str:
        """What the server said."""
        return (self.folder / "sshd.log").read_text(errors="replace")


def _children(pid: int) -> list[int]:
    try:
        return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def make_sshd(folder: Path, **options: str) -> Sshd:
    """A server that is not started yet, with keys made."""
    needs_sshd()
    folder.mkdir(parents=True, exist_ok=True)
    server = Sshd(folder, dict(options))
    server.new_host_key()
    key = asyncssh.generate_private_key("ssh-ed25519")
    server.client_key.write_bytes(key.export_private_key())
    server.client_key.chmod(0o600)
    (folder / "client.pub").write_bytes(key.export_public_key())
    (folder / "authorized_keys").write_bytes(key.export_public_key())
    return server


@asynccontextmanager
async def running(server: Sshd) -> AsyncIterator[Sshd]:
    """Start the server, and end it with the block."""
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
