"""What a lab stands on: namespaces that end with the process that made them.

One process keeps a mount, a network and a pid namespace in which everything of a lab lies: disks,
bridge, hosts. It ends at the end of its input, which only its maker holds open. So whatever becomes
of the maker (Ctrl-C, a crash, SIGKILL), the kernel takes down all processes, mounts and links.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

TOOLS = ("ip", "unshare", "nsenter", "mount", "/usr/sbin/sshd")
_FIRST = """
set -e
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=711 tmpfs "$1"
ip link set lo up
ip link add bridge type bridge
ip link set bridge up
read -r pid _ </proc/self/stat
echo "$pid"
exec 1>&-
read -r _ || :
"""
_TRIAL = """
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/up" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/up,workdir=$1/work" overlay "$1/root"
ip link add bridge type bridge
ip link add trial0 type veth peer name trial1
"""
_OWN = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--")
MOST_LABS = 250
WAIT_S = 20.0


class LabError(Exception):
    """The lab could not do what it was told."""


def missing(folder: Path) -> str | None:
    """Why there can be no lab here, in words; None where there can."""
    if os.geteuid() != 0:
        return "a lab of hosts needs root"
    lacking = [tool for tool in TOOLS if shutil.which(tool) is None]
    if lacking:
        return f"a lab of hosts needs {', '.join(lacking)} (openssh-server, iproute2, util-linux)"
    trial = [*_OWN, "unshare", "--uts", "--ipc", "--time", "sh", "-c", _TRIAL, "trial", str(folder)]
    done = subprocess.run(trial, capture_output=True, check=False, timeout=WAIT_S)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().replace("\n", "; ")
        return f"a lab of hosts needs namespaces, overlay and veth: {said}"
    return None


def call(argv: Sequence[str], *, given: str = "") -> str:
    """Run a program; returns its output, raises LabError with its words where it fails."""
    done = subprocess.run(argv, input=given.encode(), capture_output=True, check=False, timeout=60)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise LabError(f"{' '.join(argv)} ended with {done.returncode}: {said}")
    return done.stdout.decode(errors="replace")


class Ground:
    """The namespaces of one lab, its bridge, and the link from this machine to it.

    Args:
        folder: An empty folder of this machine; the lab's disks lie over it, seen only inside.
        nets: The first two numbers of the addresses; the third one is found free.
        first: Where to begin to look.
    """

    def __init__(self, folder: Path, *, nets: str = "10.77", first: int = 0) -> None:
        self._process = subprocess.Popen(
            [*_OWN, "sh", "-c", _FIRST, "lab", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the maker, who then takes it down
        )
        self.link: str | None = None
        try:
            self.pid = self._pid()
            self.inside = Path(f"/proc/{self.pid}/root{folder}")
            """The disks, as this machine reaches them."""
            self.net = self._connect(nets, first)
            """The first three numbers of the hosts' addresses."""
        except BaseException:
            self.close()
            raise

    def _pid(self) -> int:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        said = self._process.stdout.readline().strip()
        if not said.isdigit():
            raise LabError(self._process.stderr.read().decode(errors="replace").strip())
        return int(said)

    def _connect(self, nets: str, first: int) -> str:
        """A link into the lab. Its name is the lock on its addresses: the kernel gives it once."""
        for step in range(MOST_LABS):
            number = 1 + (first + step) % MOST_LABS
            name = f"llmgwlab{number}"
            try:
                call(["ip", "link", "add", name, "type", "veth", "peer", "name", "below",
                      "netns", str(self.pid)])  # fmt: skip
            except LabError as error:
                if "exists" in str(error):
                    continue
                raise
            self.link = name
            call(["ip", "address", "add", f"{nets}.{number}.1/24", "dev", name])
            call(["ip", "link", "set", name, "up"])
            self.ip("link set below master bridge up")
            return f"{nets}.{number}"
        raise LabError("every address is taken by another lab")

    def ip(self, *lines: str) -> None:
        """Change the lab's network: lines for ``ip -batch``, all or as far as they go."""
        call([*self.enter("--net", "--mount"), "ip", "-batch", "-"], given="\n".join(lines))

    def enter(self, *kinds: str) -> list[str]:
        """Words that run what follows them in these namespaces of the lab."""
        return ["nsenter", f"--target={self.pid}", *kinds, "--"]

    def close(self) -> None:
        """Take everything down; may be called again."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(WAIT_S)
        if self.link is not None:
            # it goes with its other end, a moment later; its name is free when this returns
            gone = ["ip", "link", "delete", self.link]
            subprocess.run(gone, capture_output=True, check=False, timeout=WAIT_S)
            self.link = None
