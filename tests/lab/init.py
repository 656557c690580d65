"""Process 1 of a lab's host: makes the machine that the others see, then reaps what is orphaned.

Run by ``hosts.py`` in namespaces of its own (mount, uts, ipc, pid, time; the network's was made
before), with one argument: ``Machine`` as JSON. Prints its pid as seen from outside once the
machine is up. Imports nothing but the standard library, so that any Python 3.11 runs it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 1, 2, 4, 32, 4096
MNT_DETACH = 2

SSHD = ("/usr/sbin/sshd", "-f", "/etc/lab/sshd_config", "-E", "/var/log/sshd.log")

_libc = ctypes.CDLL(None, use_errno=True)


class Machine(TypedDict):
    """What a host is made of; paths are those before the root is changed."""

    name: str
    address: str
    disk: str
    """Folder on the host's own file system, with ``up``, ``work``, ``home``, ``root``, ``lab``."""
    root: str
    """Where the host's root is put together."""
    boot_id: str
    """File with the boot's id."""
    binds: list[str]
    """Folders of the machine below that are to be seen at the same place, read only."""


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2)."""
    words = [word.encode() for word in (source, target, kind, options)]
    if _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]) != 0:
        _fail(f"mount {kind or 'bind'} {source} on {target}")


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Show a file or folder at another place too."""
    mount(source, target, flags=MS_BIND)
    if read_only:
        mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)


def _fail(what: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, f"{what}: {os.strerror(number)}")


def make_root(machine: Machine) -> None:
    """The root: this machine's programs below, everything that is written on the host's disk."""
    disk, root = machine["disk"], machine["root"]
    layers = f"lowerdir=/,upperdir={disk}/up,workdir={disk}/work"
    mount("overlay", root, "overlay", options=layers)
    bind(f"{disk}/home", f"{root}/home")
    bind(f"{disk}/root", f"{root}/root")
    os.makedirs(f"{root}/etc/lab", exist_ok=True)
    bind(f"{disk}/lab", f"{root}/etc/lab")
    mount("tmpfs", f"{root}/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=1777")
    mount("tmpfs", f"{root}/run", "tmpfs", MS_NOSUID | MS_NODEV, "size=16m,mode=755")
    os.mkdir(f"{root}/run/sshd", 0o755)
    bind("/dev", f"{root}/dev")
    pts = "newinstance,ptmxmode=0666,mode=620,gid=5"
    mount("devpts", f"{root}/dev/pts", "devpts", options=pts)
    bind(f"{root}/dev/pts/ptmx", f"{root}/dev/ptmx")
    mount("tmpfs", f"{root}/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=1777")
    mount("proc", f"{root}/proc", "proc")
    mount("sysfs", f"{root}/sys", "sysfs", MS_RDONLY)
    bind(machine["boot_id"], f"{root}/proc/sys/kernel/random/boot_id")
    for path in machine["binds"]:
        show(path, root)


def show(path: str, root: str) -> None:
    """Make a folder of the machine below visible to every user of the host."""
    here = Path(f"{root}{path}")
    here.mkdir(parents=True, exist_ok=True)
    for parent in here.parents:
        mode = parent.stat().st_mode
        if parent == Path(root):
            break
        if not mode & 0o001:
            parent.chmod((mode & 0o7777) | 0o111)
    if not any(here.iterdir()):  # else the layer below shows it, and what is below may be written
        bind(path, str(here), read_only=True)


def enter(root: str) -> None:
    """Make this the root, and let go of the one before."""
    os.makedirs(f"{root}/.below", exist_ok=True)
    if _libc.pivot_root(root.encode(), f"{root}/.below".encode()) != 0:
        _fail("pivot_root")
    os.chdir("/")
    if _libc.umount2(b"/.below", MNT_DETACH) != 0:
        _fail("umount")
    os.rmdir("/.below")


def bring_up_network(machine: Machine) -> None:
    """Addresses on lo and eth0."""
    lines = (
        "link set lo up",
        f"address add {machine['address']}/24 dev eth0",
        "link set eth0 up",
    )
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines).encode(), check=True)


def reap() -> None:
    """Wait for orphans for ever."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        signal.sigwait({signal.SIGCHLD})


def main() -> None:
    """Come up, and stay."""
    machine: Machine = json.loads(sys.argv[1])
    outside = os.readlink("/proc/self")  # this /proc is still the one of the machine below
    for ended in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(ended, signal.SIG_IGN)
    make_root(machine)
    os.umask(0o022)
    bring_up_network(machine)
    name = machine["name"].encode()
    if _libc.sethostname(name, len(name)) != 0:
        _fail("sethostname")
    enter(machine["root"])
    subprocess.run(["/bin/sh", "/etc/lab/hardware"], check=True)
    subprocess.run(SSHD, check=True)
    print(outside, flush=True)
    quiet = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(quiet, number)
    reap()


if __name__ == "__main__":
    main()
