"""Several hosts on one machine, each with its own network, sshd, processes, clock and disk.

A host is a set of namespaces. Its root is an overlay: programs of this machine show through, what
is written goes to a disk of limited size that outlives reboots. Needs root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from tests.lab import hardware
from tests.lab.ground import Ground, LabError, call
from tests.lab.init import SSHD, Machine

USER, USER_ID = "llm", 4242
DISK = "512m"
BOOT_S = 30.0
_INIT = Path(__file__).with_name("init.py")
_SSHD_CONFIG = """
HostKey /etc/lab/host_key
PidFile /run/sshd.pid
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True, slots=True)
class Process:
    """A process in a host."""

    pid: int
    """As this machine counts."""
    inside: int
    """As the host counts."""
    parent: int
    """As this machine counts."""
    uid: int
    words: tuple[str, ...]
    """Its command line."""

    def kill(self) -> None:
        """End it at once; it may have ended with its parent."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    @property
    def is_ssh(self) -> bool:
        """Whether it belongs to the SSH server."""
        return self.title.startswith(("sshd", SSHD[0]))

    @property
    def title(self) -> str:
        """Its command line as ps shows it."""
        return " ".join(self.words)


class Host:
    """One machine. ``boot`` and ``halt`` are its switch; ``faults.py`` has all other misfortune."""

    def __init__(self, lab: Lab, number: int) -> None:
        self.lab = lab
        self.name = f"n{number}"
        self.address = f"{lab.ground.net}.{10 + number}"
        self.folder = lab.ground.inside / self.name
        """Its disk, as this machine reaches it, also while the host is off."""
        self.undo: dict[str, Callable[[], None]] = {}
        """What ends each fault that is on, by the fault's name."""
        self.port = self.name
        """The port of the lab's bridge that it hangs on."""
        self._mac = f"02:77:00:00:00:{number:02x}"
        self._real = lab.disks / self.name
        self._wired = False
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._make_disk()

    # --- its disk

    @property
    def disk(self) -> Path:
        """Its file system: ``home``, ``root``, and what else was written, under ``up``."""
        return self.folder / "disk"

    @property
    def home(self) -> Path:
        """The user's home."""
        return self.disk / "home" / USER

    def _make_disk(self) -> None:
        (self.folder / "disk").mkdir(parents=True)
        (self.folder / "above").mkdir()
        self.in_ground("mount", "-t", "tmpfs", "-o", f"size={DISK},mode=755", "tmpfs",
                       f"{self._real}/disk")  # fmt: skip
        for name in ("up/etc", "work", "lab", "home", "root"):
            (self.disk / name).mkdir(parents=True)
        etc = self.disk / "up" / "etc"
        _account(etc / "passwd", f"{USER}:x:{USER_ID}:{USER_ID}::/home/{USER}:/bin/bash")
        _account(etc / "group", f"{USER}:x:{USER_ID}:")
        _account(etc / "shadow", f"{USER}:*:19000::::::", mode=0o640)
        (etc / "hostname").write_text(f"{self.name}\n")
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n{self.address} {self.name}\n")
        (self.disk / "lab" / "sshd_config").write_text(_SSHD_CONFIG)
        hardware.prepare(self.disk / "lab")
        self.new_host_key()
        for home, owner in ((self.home, USER_ID), (self.disk / "root", 0)):
            _let_in(home, self.lab.public_key, owner)

    def new_host_key(self) -> None:
        """Make a host key in place of the one before; the server takes it when it starts."""
        key = asyncssh.generate_private_key("ssh-ed25519")
        path = self.disk / "lab" / "host_key"
        path.touch(mode=0o600)
        path.write_bytes(key.export_private_key())
        self.host_key = key
        """As it shows it to those who connect."""

    @property
    def fingerprint(self) -> str:
        """SHA256 of its host key."""
        return self.host_key.get_fingerprint()

    def known_hosts_line(self, name: str) -> str:
        """For a file of known hosts that calls it so."""
        return f"{name} {self.host_key.export_public_key().decode().strip()}\n"

    # --- its switch

    @property
    def is_on(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of its first process, as this machine counts."""
        if not self.is_on or not self._pid:
            raise LabError(f"{self.name} is off")
        return self._pid

    def begin_boot(self) -> None:
        """Start it; ``await_boot`` says when it is up."""
        self._wire()
        boot_id = self.folder / "boot_id"
        boot_id.write_text(f"{uuid.uuid4()}\n")
        machine: Machine = {
            "name": self.name,
            "address": self.address,
            "disk": f"{self._real}/disk",
            "root": f"{self._real}/above",
            "boot_id": f"{self._real}/boot_id",
            "binds": [str(path) for path in self.lab.binds],
        }
        ground = self.lab.ground
        net = f"--net=/proc/{ground.pid}/root/run/netns/{self.name}"
        ages = {"monotonic": time.CLOCK_MONOTONIC, "boottime": time.CLOCK_BOOTTIME}
        born = [f"--{name}=-{int(time.clock_gettime(clock))}" for name, clock in ages.items()]
        self._pid = 0
        self._process = subprocess.Popen(
            [*ground.enter("--mount", "--pid", net), "unshare", "--mount", "--uts", "--ipc",
             "--pid", "--time", *born, "--fork", "--kill-child", "--",
             sys.executable, "-IS", str(_INIT), json.dumps(machine)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip

    def await_boot(self) -> None:
        """Wait until it answers on its SSH port."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with process.stdout as out, process.stderr as errors:
            said = out.readline().strip()
            if not said.isdigit():
                process.kill()
                raise LabError(f"{self.name}: {errors.read().decode(errors='replace').strip()}")
        self._pid = int(said)
        self.await_sshd()

    def await_sshd(self) -> None:
        """Wait until its SSH server takes connections and greets."""
        end = time.monotonic() + BOOT_S
        while True:
            try:
                with socket.create_connection((self.address, 22), timeout=1) as there:
                    if not there.recv(64):
                        raise ConnectionAbortedError("it hung up")
            except OSError as error:
                if time.monotonic() > end:
                    raise LabError(f"{self.name} does not answer on port 22: {error}") from error
                time.sleep(0.01)
            else:
                return

    def boot(self) -> None:
        """Turn it on and wait until it is up."""
        self.begin_boot()
        self.await_boot()

    def halt(self, *, before_unwired: Callable[[], None] = lambda: None) -> None:
        """End all that runs there at once. Sockets close as far as the link lets their words out;
        afterwards nothing answers for them."""
        if self._process is not None:
            if self._process.poll() is None:
                os.kill(self.pid, signal.SIGKILL)
            self._process.wait(BOOT_S)
            self._process = None
        before_unwired()
        self._unwire()

    def ended(self) -> None:
        """Wait for the end of what the lab's end has ended."""
        if self._process is not None:
            self._process.wait(BOOT_S)
            self._process = None

    def _wire(self) -> None:
        """A network of its own, on the lab's bridge; its card keeps its number."""
        if not self._wired:
            self.lab.ground.ip(
                f"netns add {self.name}",
                f"link add {self.name} type veth peer name eth0 address {self._mac} "
                f"netns {self.name}",
                f"link set {self.name} master bridge up",
            )
            self._wired = True

    def _unwire(self) -> None:
        if self._wired:
            self.lab.ground.ip(f"link delete {self.name}", f"netns delete {self.name}")
            self._wired = False

    # --- what runs there

    def run(self, *argv: str) -> str:
        """Run a program there as root, not over SSH; returns its output."""
        return call([*self.enter(), *argv])

    def enter(self) -> list[str]:
        """Words that run what follows them in the host."""
        kinds = ("--mount", "--uts", "--ipc", "--net", "--pid", "--time")
        return ["nsenter", f"--target={self.pid}", *kinds, "--"]

    def in_ground(self, *argv: str) -> str:
        """Run a program beside the host, where its disk is mounted."""
        return call([*self.lab.ground.enter("--mount"), *argv])

    def start_sshd(self) -> None:
        """Start its SSH server and wait until it listens."""
        self.run(*SSHD)
        self.await_sshd()

    @property
    def space(self) -> str | None:
        """Its pid namespace, as links below /proc name it; None where it is off."""
        if not self.is_on or not self._pid:
            return None
        try:
            return os.readlink(f"/proc/{self._pid}/ns/pid")
        except OSError:  # it is being turned off or on
            return None

    def processes(self) -> list[Process]:
        """What runs there; nothing where it is off."""
        space = self.space
        return list(_processes(space)) if space is not None else []

    def clean(self) -> None:
        """End what the user left running, and empty the user's home and what lies in /tmp."""
        for process in self.processes():
            if process.uid == USER_ID and not process.is_ssh:
                process.kill()
        shutil.rmtree(self.home / ".local", ignore_errors=True)


def _processes(space: str) -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.readlink(entry / "ns" / "pid") == space:
                yield process_at(entry)
        except OSError:  # it has ended meanwhile
            continue


def process_at(entry: Path) -> Process:
    """The process of a folder below /proc.

    Raises:
        OSError: it has ended.
    """
    words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
    lines = (entry / "status").read_text().splitlines()
    said = {key: value.split() for key, _, value in (line.partition(":") for line in lines)}
    return Process(
        pid=int(entry.name),
        inside=int(said["NSpid"][-1]),
        parent=int(said["PPid"][0]),
        uid=int(said["Uid"][0]),
        words=tuple(words[:-1]),
    )


def _account(path: Path, line: str, *, mode: int = 0o644) -> None:
    """A file of accounts as this machine has it, with the host's user in it."""
    name = line.partition(":")[0] + ":"
    lines = [one for one in (Path("/etc") / path.name).read_text().splitlines()
             if not one.startswith(name)]  # fmt: skip
    path.write_text("\n".join([*lines, line, ""]))
    path.chmod(mode)


def _let_in(home: Path, public_key: str, owner: int) -> None:
    ssh = home / ".ssh"
    ssh.mkdir(parents=True)
    (ssh / "authorized_keys").write_text(public_key)
    (ssh / "authorized_keys").chmod(0o600)
    for path in (home, ssh, ssh / "authorized_keys"):
        os.chown(path, owner, owner)
    ssh.chmod(0o700)
    home.chmod(0o700)


class Lab:
    """Hosts ``n1`` … ``nN`` on a private bridge, and what a client needs to reach them.

    Args:
        folder: An empty folder of this machine: the client's key lies there.
        binds: More folders to be seen in every host, read only, at the same place.
        first: Where to begin to look for free addresses.
    """

    def __init__(self, folder: Path, *, binds: Iterable[Path] = (), first: int = 0) -> None:
        self.folder = folder
        self.disks = folder / "disks"
        self.disks.mkdir()
        real = Path(sys.executable).resolve().parent.parent
        python = (Path(sys.prefix), Path(sys.base_prefix), real)
        self.binds = tuple(dict.fromkeys(path.absolute() for path in (*python, *binds)))
        key = asyncssh.generate_private_key("ssh-ed25519")
        self.client_key = folder / "client"
        self.client_key.touch(mode=0o600)
        self.client_key.write_bytes(key.export_private_key())
        self.public_key = key.export_public_key().decode()
        self.hosts: list[Host] = []
        self.ground = Ground(self.disks, first=first)

    def up(self, count: int) -> list[Host]:
        """Bring the lab to so many hosts, all of them up."""
        try:
            for number in range(len(self.hosts) + 1, count + 1):
                self.hosts.append(Host(self, number))
            booting = [host for host in self.hosts if not host.is_on]
            for host in booting:
                host.begin_boot()
            for host in booting:
                host.await_boot()
        except BaseException:
            self.down()
            raise
        return self.hosts

    def down(self) -> None:
        """Take everything down; may be called again."""
        self.ground.close()
        for host in self.hosts:
            host.ended()
        self.hosts.clear()
