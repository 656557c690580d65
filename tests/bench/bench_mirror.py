"""The mirror's throughput and CPU, measured against nginx.

A script, not a test: it prints a table. Both serve the same file from the same folder with
sendfile, and take turns in short rounds, so that whatever else the machine does hits both alike;
medians over the rounds are shown with their spread. The client is curl, which throws the bytes
away. CPU is the server's own, from the scheduler.

    python tests/bench/bench_mirror.py [--rounds N] [--mb N] [--folder DIR]

Needs ``curl``, and ``nginx`` for the comparison; without it the mirror alone is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from llmgw_core.mirror.link import MirrorLink
from llmgw_core.mirror.settings import MirrorSettings
from llmgw_core.mirror.tokens import ensure_secret, fetch_token
from tests.mirror.shelves import shelve

MB = 1_000_000
MIB = 1024 * 1024
NGINX = """
daemon off;
{user}
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  client_body_temp_path {folder}/1; proxy_temp_path {folder}/2; fastcgi_temp_path {folder}/3;
  uwsgi_temp_path {folder}/4; scgi_temp_path {folder}/5;
  server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


@dataclass(frozen=True)
class Place:
    """A server: where the file is, and whose CPU is counted, all threads together."""

    url: str
    pid: int
    token: str = ""

    def cpu_s(self) -> float:
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


@dataclass
class Figures:
    """One figure per round for each line of the table."""

    rows: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.rows.setdefault(name, []).append(value)

    def show(self) -> None:
        print(f"{'':44}{'median':>10}{'min':>10}{'max':>10}")
        for name, values in self.rows.items():
            median = statistics.median(values)
            print(f"{name:44}{median:10.3g}{min(values):10.3g}{max(values):10.3g}")


def fetch(place: Place, clients: int, size: int) -> tuple[float, float]:
    """MB/s of so many clients together, and the server's CPU seconds a GB."""
    argv = ["curl", "--silent", "--show-error", "--fail", "--output", "/dev/null"]
    # from a file: a command line can be read by others
    config = f'header = "Authorization: Bearer {place.token}"\n' if place.token else ""
    cpu, began = place.cpu_s(), time.perf_counter()
    running = [
        subprocess.Popen([*argv, "--config", "-", place.url], stdin=subprocess.PIPE, text=True)
        for _ in range(clients)
    ]
    for client in running:
        assert client.stdin is not None
        client.stdin.write(config)
        client.stdin.close()
    for client in running:
        if client.wait():
            raise SystemExit(f"curl ended with status {client.returncode}")
    elapsed, spent = time.perf_counter() - began, place.cpu_s() - cpu
    moved = clients * size
    return moved / MB / elapsed, spent / (moved / 1e9)


def measure(places: dict[str, Place], size: int, rounds: int) -> Figures:
    """All rounds, the servers in turn, the order changing each time."""
    figures = Figures()
    for place in places.values():
        fetch(place, 1, size)
    for number in range(rounds):
        order = list(places.items())
        if number % 2:
            order.reverse()
        for clients in (1, 8):
            found: dict[str, float] = {}
            for name, place in order:
                found[name], cpu = fetch(place, clients, size)
                figures.add(f"MB/s, {clients} at once, {name}", found[name])
                figures.add(f"CPU s a GB, {clients} at once, {name}", cpu)
            if "nginx" in found:
                share = found["mirror"] / found["nginx"]
                figures.add(f"mirror / nginx, {clients} at once", share)
    return figures


def start_nginx(folder: Path, root: Path, port: int) -> tuple[subprocess.Popen[bytes], int]:
    """A server with one worker; it, and the worker's pid."""
    folder.mkdir()
    user = "user root;" if os.geteuid() == 0 else ""
    path = folder / "nginx.conf"
    path.write_text(NGINX.format(folder=folder, port=port, root=root, user=user))
    # in a session of its own, as the mirror: some kernels share the CPU out by session
    process = subprocess.Popen(["nginx", "-c", str(path)], start_new_session=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    for _ in range(100):
        found = children.read_text().split()
        if found:
            return process, int(found[0])
        time.sleep(0.05)
    raise SystemExit("nginx does not start")


async def run(arguments: argparse.Namespace) -> None:
    """Start what is needed, measure, print, and end what was started."""
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-", dir=arguments.folder) as made:
        folder = Path(made)
        root = folder / "store"
        content = os.urandom(MIB) * arguments.mb
        shelve(root, "m", "v", {"weights.gguf": content})
        print(f"{len(content) / MB:.0f} MB, sha256 {hashlib.sha256(content).hexdigest()[:12]}")
        secret = ensure_secret(folder / "secret")
        link = MirrorLink(folder / "state")
        settings = MirrorSettings(root=root, secret_file=folder / "secret")
        address = await link.ensure(settings)
        status = await link.status()
        assert status is not None
        token = fetch_token(secret, "m", "v", expires=time.time() + 3600)
        url = f"{address.url}/v1/files/m/v/weights.gguf"
        places = {"mirror": Place(url, status.pid, token)}
        nginx: subprocess.Popen[bytes] | None = None
        try:
            if shutil.which("nginx"):
                port = address.port - 1 if address.port > 1024 else address.port + 1
                nginx, worker = start_nginx(folder / "nginx", root, port)
                places["nginx"] = Place(f"http://127.0.0.1:{port}/m/v/weights.gguf", worker)
            figures = await asyncio.to_thread(measure, places, len(content), arguments.rounds)
        finally:
            if nginx is not None:
                nginx.send_signal(signal.SIGTERM)
                nginx.wait()
            await link.stop(drain_s=1.0)
    figures.show()


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--mb", type=int, default=256, help="MiB of the file")
    parser.add_argument("--folder", help="where the file lies; the temporary folder by default")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
