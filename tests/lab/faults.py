"""What can befall a lab's host, each with what ends it.

Each fault that is on has an entry in ``Host.undo``; ``restore`` ends whatever is on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.lab.ground import LabError, call
from tests.lab.hosts import DISK, Host

_KEYS, _BANNED = "authorized_keys", "banned"
_RELAY = Path(__file__).with_name("relay.py")
_OWN_MOUNTS = ("/tmp", "/home")


def cut(host: Host) -> None:
    """Pull the network cable: nothing comes or goes, and nobody is told."""
    host.lab.ground.ip(f"link set {host.port} down")
    host.undo["cut"] = lambda: heal(host)


def heal(host: Host) -> None:
    """Plug it in again."""
    host.lab.ground.ip(f"link set {host.port} up")
    host.undo.pop("cut", None)


def slow(host: Host, delay_ms: float, *, loss: float = 0.0) -> None:
    """Let everything come and go so much later, each way, and lose a share of the frames."""
    _reconnected(host)
    fast(host)
    ground, space, port = host.lab.ground, f"slow-{host.name}", f"s-{host.name}"
    ground.ip(
        f"netns add {space}",
        f"link set {host.name} netns {space}",
        f"link add {port} type veth peer name out netns {space}",
        f"link set {port} master bridge up",
    )
    there = f"--net=/proc/{ground.pid}/root/run/netns/{space}"
    ups = f"link set {host.name} up\nlink set out up\n"
    call(["nsenter", there, "--", "ip", "-batch", "-"], given=ups)
    relay = subprocess.Popen(
        [*ground.enter("--pid", there), sys.executable, "-IS", str(_RELAY), host.name, "out",
         str(delay_ms), str(loss)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    assert relay.stdout is not None
    with relay.stdout as out:
        if not out.readline():
            raise LabError(f"the relay of {host.name} does not carry")
    host.port = port
    host.undo["slow"] = lambda: _undo_slow(host, relay)


def fast(host: Host) -> None:
    """Undo ``slow``; nothing where it is not on."""
    undo = host.undo.get("slow")
    if undo is not None:
        undo()


def _undo_slow(host: Host, relay: subprocess.Popen[bytes]) -> None:
    _reconnected(host)
    host.undo.pop("slow")
    relay.kill()
    relay.wait()
    ground, space = host.lab.ground, f"slow-{host.name}"
    ground.ip(f"link delete {host.port}")
    there = f"--net=/proc/{ground.pid}/root/run/netns/{space}"
    call(["nsenter", there, "--", "ip", "link", "set", host.name, "netns", str(ground.pid)])
    host.port = host.name
    ground.ip(f"link set {host.name} master bridge up", f"netns delete {space}")


def _reconnected(host: Host) -> None:
    """A change of wires is no cut that goes on: heal it first."""
    if "cut" in host.undo:
        heal(host)


def freeze(host: Host) -> None:
    """Stop every process. The kernel lives on: it takes connections that nobody serves."""
    _signal_all(host, signal.SIGSTOP)
    host.undo["freeze"] = lambda: thaw(host)


def thaw(host: Host) -> None:
    """Let them go on."""
    _signal_all(host, signal.SIGCONT)
    host.undo.pop("freeze", None)


def _signal_all(host: Host, number: signal.Signals) -> None:
    # -1 is everything in the sender's pid namespace but process 1, in one step for the kernel:
    # no fork slips by
    name = number.name.removeprefix("SIG")
    call(["nsenter", f"--target={host.pid}", "--pid", "--", "sh", "-c", f"kill -{name} -1"])


def reboot(host: Host) -> None:
    """In good order: connections are closed, then it comes up anew."""
    stop(host)
    start(host)


def crash(host: Host) -> None:
    """Lose the power and come up at once: old connections hear nothing until they speak."""
    lose_power(host)
    start(host)


def lose_power(host: Host) -> None:
    """Gone from one moment to the next, with no word to anybody."""
    cut(host)
    stop(host)


def stop(host: Host) -> None:
    """Shut it down in good order and leave it off."""
    host.halt(before_unwired=lambda: fast(host))
    host.undo.clear()
    host.undo["off"] = lambda: start(host)


def start(host: Host) -> None:
    """Turn it on."""
    host.undo.pop("off", None)
    host.boot()


def stop_sshd(host: Host, *, sessions: bool = False) -> None:
    """Refuse connections; with ``sessions`` those that stand are ended too."""
    for process in host.processes():
        if process.is_ssh and (sessions or "[listener]" in process.title):
            process.kill()
    host.undo["sshd"] = lambda: start_sshd(host)


def start_sshd(host: Host) -> None:
    """Take connections again."""
    host.start_sshd()
    host.undo.pop("sshd", None)


def fill(host: Host) -> None:
    """Leave no room on the disk; /tmp and /run are memory and keep theirs."""
    for attempt in range(5):
        room = os.statvfs(host.disk)
        used = (room.f_blocks - room.f_bfree) * room.f_frsize
        try:
            _resize(host, str(used))
        except LabError:  # more was written in between
            if attempt == 4:
                raise
        else:
            break
    host.undo["fill"] = lambda: unfill(host)


def unfill(host: Host) -> None:
    """Give the disk its size back."""
    _resize(host, DISK)
    host.undo.pop("fill", None)


def _resize(host: Host, size: str) -> None:
    host.in_ground("mount", "-o", f"remount,size={size}", f"{host.lab.disks}/{host.name}/disk")


def ban(host: Host) -> None:
    """Take the client's key out of what may log in."""
    _rename(host, _KEYS, _BANNED)
    host.undo["ban"] = lambda: unban(host)


def unban(host: Host) -> None:
    """Put it back."""
    _rename(host, _BANNED, _KEYS)
    host.undo.pop("ban", None)


def _rename(host: Host, old: str, new: str) -> None:
    for home in (host.home, host.disk / "root"):
        (home / ".ssh" / old).rename(home / ".ssh" / new)


def rekey(host: Host) -> None:
    """Show another host key from now on, as a machine that was set up anew does."""
    host.new_host_key()
    stop_sshd(host, sessions=True)
    start_sshd(host)


def noexec(host: Host) -> None:
    """Let no program run from /tmp or /home."""
    _remount(host, "noexec")
    host.undo["noexec"] = lambda: exec_ok(host)


def exec_ok(host: Host) -> None:
    """Let programs run from there again."""
    _remount(host, "exec")
    host.undo.pop("noexec", None)


def _remount(host: Host, how: str) -> None:
    for place in _OWN_MOUNTS:
        host.run("mount", "-o", f"remount,bind,{how}", place)


def restore(host: Host) -> None:
    """A host that is up and well, with nothing of the user's on it, whatever it went through."""
    if not host.is_on:
        host.halt()
        start(host)
    for undo in list(reversed(host.undo.values())):
        undo()
    host.clean()
