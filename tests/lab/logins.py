"""How a host's administrators make logins hard: its SSH server, accounts, shells, tools and mounts.

As in ``faults``, each has an entry in ``Host.undo``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab import faults
from tests.lab.ground import call
from tests.lab.hosts import USER, USER_ID, Host


def sshd(host: Host, **options: str) -> None:
    """Give the SSH server these settings, before its own; connections that stand go on."""
    path = host.disk / "lab" / "sshd_config"
    before = path.read_text()
    lines = "".join(f"{key} {value}\n" for key, value in options.items())
    path.write_text(lines + before)
    _anew(host)

    def undo() -> None:
        path.write_text(before)
        _anew(host)
        host.undo.pop("sshd settings")

    host.undo["sshd settings"] = undo


def _anew(host: Host) -> None:
    faults.stop_sshd(host)
    faults.start_sshd(host)


def shell(host: Host, program: str) -> None:
    """Give the user another login shell."""
    _edit(host, "passwd", f"s#^\\({USER}:.*\\):[^:]*$#\\1:{program}#")


def expire(host: Host) -> None:
    """Let the user's account expire, long ago."""
    _edit(host, "shadow", f"s#^{USER}:.*#{USER}:*:19000:::::1:#")


def _edit(host: Host, name: str, command: str) -> None:
    path = f"/etc/{name}"
    before = host.run("cat", path)
    host.run("sed", "-i", command, path)

    def undo() -> None:
        call([*host.enter(), "sh", "-c", f"cat > {path}"], given=before)
        host.undo.pop(name)

    host.undo[name] = undo


def write(host: Host, path: str, text: str) -> None:
    """A file below the user's home that was not there."""
    file = host.home / path
    top = host.home / Path(path).parts[0]
    was_there = top.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    call(["chown", "-R", f"{USER_ID}:{USER_ID}", str(top)])

    def undo() -> None:
        file.unlink(missing_ok=True)
        if not was_there and top.is_dir():
            shutil.rmtree(top)
        host.undo.pop(path)

    host.undo[path] = undo


def root_file(host: Host, path: str, text: str, *, mode: int = 0o644) -> None:
    """A file of the administrator's that was not there."""
    call([*host.enter(), "sh", "-c", f"cat > {shlex.quote(path)}"], given=text)
    host.run("chmod", f"{mode:o}", path)

    def undo() -> None:
        host.run("rm", "-f", path)
        host.undo.pop(path)

    host.undo[path] = undo


def hide(host: Host, *programs: str) -> None:
    """Let these programs be none."""
    for program in programs:
        found = shutil.which(program, path="/usr/local/bin:/usr/bin:/bin")
        if found is None:
            continue
        place = os.path.realpath(found)
        host.run("mount", "--bind", "/dev/null", place)
        host.undo[place] = lambda place=place: _unmount(host, place)  # type: ignore[misc]


def _unmount(host: Host, place: str) -> None:
    host.run("umount", place)
    host.undo.pop(place)


def read_only(host: Host, place: str = "/home") -> None:
    """Let nothing be written below a folder; what writes to open files there goes on."""
    host.run("mount", "--bind", place, place)
    host.run("mount", "-o", "remount,bind,ro", place)

    def undo() -> None:
        host.run("umount", "-l", place)
        host.undo.pop("read only")

    host.undo["read only"] = undo


def hide_processes(host: Host) -> None:
    """Let users see no processes but their own."""
    host.run("mount", "-o", "remount,hidepid=2", "/proc")

    def undo() -> None:
        host.run("mount", "-o", "remount,hidepid=0", "/proc")
        host.undo.pop("hidepid")

    host.undo["hidepid"] = undo


@contextmanager
def ssh_agent(folder: Path, *keys: Path, options: tuple[str, ...] = ()) -> Iterator[Path]:
    """A person's agent with these keys, for as long as the block lasts; asked, they say no."""
    sock = folder / "agent"
    env = {**os.environ, "SSH_AUTH_SOCK": str(sock), "DISPLAY": ":0",
           "SSH_ASKPASS": "/bin/false", "SSH_ASKPASS_REQUIRE": "force"}  # fmt: skip
    process = subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(sock)], env=env, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it listens
        for key in keys:
            subprocess.run(
                ["ssh-add", "-q", *options, str(key)], env=env, check=True, stderr=subprocess.PIPE
            )
        yield sock
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def lock(sock: Path, folder: Path) -> None:
    """Lock an agent, as ``ssh-add -x``."""
    _password(sock, folder, "-x")


def unlock(sock: Path, folder: Path) -> None:
    """Unlock it again."""
    _password(sock, folder, "-X")


def _password(sock: Path, folder: Path, option: str) -> None:
    answer = folder / "answer"
    answer.write_text("#!/bin/sh\necho secret\n")
    answer.chmod(0o700)
    env = {**os.environ, "SSH_AUTH_SOCK": str(sock), "DISPLAY": ":0",
           "SSH_ASKPASS": str(answer), "SSH_ASKPASS_REQUIRE": "force"}  # fmt: skip
    subprocess.run(["ssh-add", option], env=env, check=True, capture_output=True)
