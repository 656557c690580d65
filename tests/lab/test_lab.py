"""That each fault is what it says it is, as an SSH client and the kernel see it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from tests.lab import faults, hardware
from tests.lab.conftest import first_net
from tests.lab.hosts import USER, Host, Lab

pytestmark = pytest.mark.lab

SHORT_S = 1.5
"""Long enough for an answer from a neighbouring namespace, were there one."""
ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def login(host: Host, *, user: str = USER) -> AsyncIterator[asyncssh.SSHClientConnection]:
    async with asyncssh.connect(
        host.address,
        username=user,
        client_keys=[str(host.lab.client_key)],
        known_hosts=asyncssh.import_known_hosts(host.known_hosts_line(host.address)),
        config=None,
        agent_path=None,
    ) as connection:
        yield connection


async def said(host: Host, command: str, *, user: str = USER) -> str:
    async with asyncio.timeout(20), login(host, user=user) as connection:
        done = await connection.run(command)
    return f"{done.stdout!s}{done.stderr!s}".strip()


async def answers(host: Host) -> bool:
    try:
        async with asyncio.timeout(SHORT_S):
            return await said(host, "echo yes") == "yes"
    except TimeoutError:
        return False


async def test_hosts_are_machines_of_their_own(hosts: list[Host]) -> None:
    names = [await said(host, "hostname") for host in hosts]
    assert names == ["n1", "n2", "n3", "n4"]
    boots = {await said(host, "cat /proc/sys/kernel/random/boot_id") for host in hosts}
    assert len(boots) == len(hosts)
    one, two = hosts[:2]
    await said(one, "echo 1 > ~/file; echo 1 > /tmp/file; echo 1 > /dev/shm/file")
    assert await said(two, "ls ~/file /tmp/file /dev/shm/file 2>/dev/null") == ""
    assert await said(one, "echo $PPID; cat /proc/1/cmdline | tr '\\0' ' '")
    assert int(await said(one, "cut -d. -f1 /proc/uptime")) < 3600
    assert await said(two, f"exec 3<>/dev/tcp/{one.address}/22 && head -c 4 <&3") == "SSH-"
    assert "unreachable" in (await said(one, "exec 3<>/dev/tcp/192.0.2.1/80")).lower()
    assert await said(one, "id -u") == "4242"
    assert await said(one, "id -u", user="root") == "0"


async def test_a_cut_is_silence_and_healing_goes_on_where_it_was(hosts: list[Host]) -> None:
    host, other = hosts[:2]
    async with login(host) as connection:
        faults.cut(host)
        assert not await answers(host)
        assert await answers(other)
        faults.heal(host)
        async with asyncio.timeout(20):
            assert (await connection.run("echo still")).stdout == "still\n"


async def test_a_slow_link_is_slow_both_ways(hosts: list[Host]) -> None:
    host = hosts[0]

    async def round_trip_s() -> float:
        start = time.monotonic()
        _, writer = await asyncio.open_connection(host.address, 22)
        writer.close()
        return time.monotonic() - start

    faults.slow(host, 60)
    assert await round_trip_s() >= 0.12
    blob = await said(host, "head -c 300000 /dev/zero | tr '\\0' x")
    assert blob == "x" * 300000
    faults.cut(host)
    assert not await answers(host)
    faults.heal(host)
    assert await said(host, "hostname") == host.name
    faults.slow(host, 5, loss=0.05)
    assert await said(host, "hostname") == host.name
    await asyncio.to_thread(faults.reboot, host)
    assert host.undo == {}
    assert min([await round_trip_s() for _ in range(5)]) < 0.12


async def test_a_frozen_host_takes_connections_that_nobody_serves(hosts: list[Host]) -> None:
    host = hosts[0]
    faults.freeze(host)
    _, writer = await asyncio.open_connection(host.address, 22)
    writer.close()
    assert not await answers(host)
    faults.thaw(host)
    assert await answers(host)


async def test_boots(hosts: list[Host]) -> None:
    host = hosts[0]
    await said(host, "echo kept > ~/file; echo lost > /tmp/file; setsid sleep 999 >&- 2>&- &")
    boot = await said(host, "cat /proc/sys/kernel/random/boot_id")
    async with login(host) as connection:
        await asyncio.to_thread(faults.reboot, host)
        async with asyncio.timeout(10):
            await connection.wait_closed()
    assert await said(host, "cat ~/file; cat /tmp/file 2>/dev/null") == "kept"
    assert not [process for process in host.processes() if "sleep" in process.words]
    again = await said(host, "cat /proc/sys/kernel/random/boot_id")
    assert again != boot
    assert int(await said(host, "cut -d. -f1 /proc/uptime")) < 60

    async with login(host) as connection:
        await asyncio.to_thread(faults.lose_power, host)
        assert not await answers(host)
        assert not connection.is_closed()
        await asyncio.to_thread(faults.start, host)
        with pytest.raises((asyncssh.Error, OSError)):  # a reset, once something is said
            await asyncio.wait_for(connection.run("true"), 20)
    assert await said(host, "cat /proc/sys/kernel/random/boot_id") not in (boot, again)


async def test_the_ssh_server_stops_and_its_sessions_live_on(hosts: list[Host]) -> None:
    host = hosts[0]
    async with login(host) as connection:
        faults.stop_sshd(host)
        with pytest.raises(ConnectionRefusedError):
            await said(host, "true")
        assert (await connection.run("echo still")).stdout == "still\n"
        faults.start_sshd(host)
        assert await answers(host)
        faults.stop_sshd(host, sessions=True)
        async with asyncio.timeout(10):
            await connection.wait_closed()


async def test_disk_keys_and_rights(hosts: list[Host]) -> None:
    host = hosts[0]
    faults.fill(host)
    assert "No space left" in await said(host, "echo new > ~/new")
    faults.unfill(host)
    assert await said(host, "echo new > ~/new && cat ~/new") == "new"

    program = "printf '#!/bin/sh\\necho ran\\n' > ~/x; chmod +x ~/x; cp ~/x /tmp/x; "
    faults.noexec(host)
    assert "denied" in (await said(host, program + "~/x")).lower()
    assert "denied" in (await said(host, program + "/tmp/x")).lower()
    faults.exec_ok(host)
    assert await said(host, "~/x; /tmp/x") == "ran\nran"

    faults.ban(host)
    with pytest.raises(asyncssh.PermissionDenied):
        await said(host, "true")
    faults.unban(host)
    assert await answers(host)

    before = host.known_hosts_line(host.address)
    faults.rekey(host)
    assert host.known_hosts_line(host.address) != before
    assert await answers(host)


async def test_make_believe_hardware_outlives_a_reboot(hosts: list[Host]) -> None:
    host = hosts[0]
    hardware.hw(host, 96, 1024)
    hardware.gpu(host, "8xh100")
    await asyncio.to_thread(faults.reboot, host)
    look = "nproc; grep -c ^processor /proc/cpuinfo; awk '/MemTotal/{print $2}' /proc/meminfo"
    assert (await said(host, look)).split() == ["96", "96", str(1024 << 20)]
    ask = "nvidia-smi --query-gpu=index,memory.total --format=csv,noheader,nounits"
    assert (await said(host, ask)).splitlines()[-1] == "7, 81559"
    hardware.gpu(host, "broken")
    assert "failed" in await said(host, "nvidia-smi")
    hardware.gpu(host, "none")
    assert "not found" in await said(host, "nvidia-smi")
    hardware.hw(host, None)
    assert await said(host, "nproc") == str(len(os.sched_getaffinity(0)))


def born(pid: int | str) -> str | None:
    """A process by pid and start time, which no other one ever has; None where there is none."""
    try:
        return f"{pid}:{Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]}"
    except OSError:
        return None


def members(made: Lab) -> set[str]:
    """Every process in a lab's namespaces, which last for as long as one of these."""
    first = (made.ground.pid, *(host.pid for host in made.hosts))
    kinds = ("pid", "mnt", "net")
    own = {os.readlink(f"/proc/self/ns/{kind}") for kind in kinds}
    mine = {os.readlink(f"/proc/{pid}/ns/{kind}") for pid in first for kind in kinds} - own
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            inside = {os.readlink(entry / "ns" / kind) for kind in kinds} & mine
        except OSError:  # it has ended meanwhile
            continue
        name = born(entry.name) if inside else None
        found |= {name} if name is not None else set()
    return found


def lasting(made: Lab) -> set[str]:
    """Every process in a lab's namespaces, once its own visits to the SSH servers are over."""
    while any(
        process.is_ssh and "[listener]" not in process.title
        for host in made.hosts
        for process in host.processes()
    ):
        time.sleep(0.01)
    return members(made)


def left(processes: set[str]) -> set[str]:
    """Those of them that live."""
    return {name for name in processes if born(name.partition(":")[0]) == name}


@pytest.mark.usefixtures("can_have_labs")
def test_nothing_is_left_after_down(tmp_path: Path) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    made = Lab(tmp_path, first=first_net() + 4)
    try:
        made.up(2)
        mine, link = members(made), made.ground.link
        assert len(mine) >= 5  # the ground, and process 1 and sshd of each host
        faults.freeze(made.hosts[0])
        faults.lose_power(made.hosts[1])
    finally:
        made.down()
    assert left(mine) == set()
    assert not Path(f"/sys/class/net/{link}").exists()
    assert Path("/proc/self/mountinfo").read_text() == mounts
    made.down()


_OWNER = """
import sys
from pathlib import Path
from tests.lab.hosts import Lab
from tests.lab.test_lab import lasting
made = Lab(Path(sys.argv[1]), first=int(sys.argv[2]))
made.up(1)
print(made.ground.link, *lasting(made), flush=True)
sys.stdin.read()
"""


@pytest.mark.usefixtures("can_have_labs")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_nothing_is_left_after_its_maker(tmp_path: Path, number: signal.Signals) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(tmp_path), str(first_net() + 5)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    with owner:
        assert owner.stdout is not None
        link, *mine = owner.stdout.readline().decode().split()
        assert len(mine) >= 3
        assert left(set(mine)) == set(mine)
        owner.send_signal(number)
        owner.wait(20)
    async with asyncio.timeout(20):
        while left(set(mine)) or Path(f"/sys/class/net/{link}").exists():
            await asyncio.sleep(0.02)
