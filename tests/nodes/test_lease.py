"""Whose a node is: leases under each shell, by the node's own clock."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.errors import LlmgwError, NodeRefused, RefusedBecause, RemoteFailed
from llmgw_core.nodes.held import remove_held
from llmgw_core.nodes.instance import InstanceSpec, InstanceState
from llmgw_core.nodes.instances import Instances
from llmgw_core.nodes.lease import (
    Claim,
    Holder,
    LeaseHeld,
    give_back,
    parse_lease,
    take_over,
    this_controller,
)
from llmgw_core.nodes.sampler import Tick, samples
from llmgw_core.nodes.script import load
from llmgw_core.plain_text import is_unsafe
from tests.nodes.local_exec import LocalExec
from tests.nodes.shells import local, node, state, until_true

__all__ = ["local", "node", "state"]

INTERVAL_S = 0.05
ADA = Holder("a" * 32 + ".11111111", "west", "desk", "ada", 11, 1000)
BOB = Holder("b" * 32 + ".22222222", "east side", "laptop", "bob", 22, 2000)


def stream(local: LocalExec, state: Path, claim: Claim) -> AsyncGenerator[Tick, None]:
    return samples(local, str(state), INTERVAL_S, claim=claim, node="n1")


def stamp(state: Path, holder: Holder) -> Path:
    return state / f"lease.at.{holder.id}"


def age(state: Path, holder: Holder, seconds: float) -> None:
    """As if so much time had passed on the node since the holder's last renewal."""
    boot, at = stamp(state, holder).read_text().split()
    stamp(state, holder).write_text(f"{boot} {int(at) - round(seconds * 100)}\n")


def restart(state: Path, holder: Holder) -> None:
    """As if the node had been restarted since."""
    at = stamp(state, holder).read_text().split()[1]
    stamp(state, holder).write_text(f"another-boot {at}\n")


async def test_the_first_has_the_node_and_a_second_is_told_who(
    local: LocalExec, state: Path
) -> None:
    async with aclosing(stream(local, state, Claim(ADA))) as ticks:
        await anext(ticks)
        with pytest.raises(LeaseHeld) as caught:
            await anext(stream(local, state, Claim(BOB)))
        await anext(ticks)
    refused = caught.value
    assert refused.because is RefusedBecause.LEASE
    assert refused.holder == ADA
    for word in ("n1 is led by", "ada on desk", "cluster west", "takeover n1", "0 s ago"):
        assert word in str(refused), str(refused)


async def test_two_of_one_controller_share_it(local: LocalExec, state: Path) -> None:
    after = replace(ADA, pid=12)
    async with (
        aclosing(stream(local, state, Claim(ADA))) as ticks,
        aclosing(stream(local, state, Claim(after))) as more,
    ):
        for _ in range(2):
            await anext(ticks)
            await anext(more)
        with pytest.raises(LeaseHeld, match="pid 12"):
            await anext(stream(local, state, Claim(BOB)))


@pytest.mark.parametrize("how", ["not renewed", "restarted", "no stamp"])
async def test_an_old_lease_is_taken(local: LocalExec, state: Path, how: str) -> None:
    async with aclosing(stream(local, state, Claim(ADA))) as ticks:
        await anext(ticks)
    age(state, ADA, 29.0)
    with pytest.raises(LeaseHeld):
        await anext(stream(local, state, Claim(BOB, old_s=600.0)))
    if how == "not renewed":
        age(state, ADA, 2.0)
    elif how == "restarted":
        restart(state, ADA)
    else:
        stamp(state, ADA).unlink()
    async with aclosing(stream(local, state, Claim(BOB))) as ticks:
        await anext(ticks)
        with pytest.raises(LeaseHeld, match="bob on laptop"):
            await anext(stream(local, state, Claim(ADA)))
    assert not stamp(state, ADA).exists()


async def test_a_lease_is_renewed_by_each_tick_that_is_dealt_with(
    local: LocalExec, state: Path
) -> None:
    async with aclosing(stream(local, state, Claim(ADA))) as ticks:
        await anext(ticks)
        age(state, ADA, 1000.0)
        await anext(ticks)
        with pytest.raises(LeaseHeld, match="0 s ago"):
            await anext(stream(local, state, Claim(BOB)))


async def test_a_loop_that_nobody_answers_renews_nothing(local: LocalExec, state: Path) -> None:
    """As behind a connection that was cut without a word: the loop goes on, the controller not."""
    text = load("lib.sh", "cgroup.sh", "lease.sh", "sampler.sh")
    loop = await asyncio.create_subprocess_exec(
        str(local.tools / "sh"), "-s", "--", str(state), "0.01", *Claim(ADA).args(),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=local.env,
    )  # fmt: skip
    assert loop.stdin is not None
    assert loop.stdout is not None
    loop.stdin.write(text.encode())
    assert await loop.stdout.readuntil(b"\n.\n")
    age(state, ADA, 1000.0)
    children = Path(f"/proc/{loop.pid}/task/{loop.pid}/children")
    await until_true(lambda: not children.read_text())  # it does not even sleep
    async with aclosing(stream(local, state, Claim(BOB))) as ticks:
        await anext(ticks)
        loop.stdin.write(b".\n")
        assert b"@@lease lost" in await loop.stdout.readline()
        await loop.wait()
        await anext(ticks)


async def test_a_takeover_ends_the_others_stream_and_binds_its_hands(
    local: LocalExec, node: Instances, state: Path
) -> None:
    ada = Instances(local, str(state), node="n1", holder=ADA.id)
    bob = Instances(local, str(state), node="n1", holder=BOB.id)
    weights = state / "weights" / "m" / "v"
    async with aclosing(stream(local, state, Claim(ADA))) as ticks:
        await anext(ticks)
        await ada.start(InstanceSpec("a", "t1", ("sleep", "600")))
        await ada.start(InstanceSpec("ended", "t1", ("true",)))
        await until_true(lambda: (state / "run" / "ended" / "exit").exists())
        with pytest.raises(LeaseHeld, match="ada on desk"):
            await bob.stop("a", 1.0)
        assert await take_over(local, str(state), Claim(BOB)) == ADA
        with pytest.raises(LeaseHeld, match="n1 was taken over by another controller, bob on"):
            await anext(ticks)
    weights.mkdir(parents=True)
    for act in (
        ada.start(InstanceSpec("b", "t1", ("sleep", "600"))),
        ada.start(InstanceSpec("a", "t1", ("sleep", "600"))),
        ada.stop("a", 1.0),
        ada.forget("ended"),
        remove_held(local, str(state), "m/v", node="n1", holder=ADA.id),
    ):
        with pytest.raises(NodeRefused, match="bob on laptop"):
            await act
    found = await ada.refresh()  # looking is free
    assert set(found) == {"a", "ended"}
    assert found["a"].state is InstanceState.RUNNING
    assert weights.exists()
    assert sorted(p.name for p in (state / "run").iterdir()) == [".lock", "a", "ended"]
    # the new one goes on with what runs
    assert (await bob.stop("a", 5.0)).left == ()


async def test_a_lease_is_given_back_by_who_took_it_only(local: LocalExec, state: Path) -> None:
    first, again = Claim(ADA), Claim(ADA)
    await give_back(local, str(state), first)  # where nothing was taken nothing happens
    for claim in (first, again):
        async with aclosing(stream(local, state, claim)) as ticks:
            await anext(ticks)
    await give_back(local, str(state), first)
    with pytest.raises(LeaseHeld):
        await anext(stream(local, state, Claim(BOB)))
    await give_back(local, str(state), again)
    async with aclosing(stream(local, state, Claim(BOB))) as ticks:
        await anext(ticks)


async def test_a_lease_that_is_removed_by_hand_is_asked_for_anew(
    local: LocalExec, state: Path
) -> None:
    async with aclosing(stream(local, state, Claim(ADA))) as ticks:
        await anext(ticks)
        (state / "lease").unlink()
        with pytest.raises(RemoteFailed, match="started again"):
            await anext(ticks)
    (state / "lease").write_bytes(b"\0" * 100)  # as after a power cut
    async with aclosing(stream(local, state, Claim(BOB))) as ticks:
        await anext(ticks)


async def test_of_many_at_once_one_gets_it(local: LocalExec, state: Path) -> None:
    holders = [replace(ADA, id=f"{n:032}.11111111", pid=n) for n in range(6)]
    streams = [stream(local, state, Claim(holder)) for holder in holders]
    found = await asyncio.gather(*(anext(s) for s in streams), return_exceptions=True)
    ticks = [one for one in found if isinstance(one, Tick)]
    assert len(ticks) == 1, found
    first = holders[found.index(ticks[0])]
    assert {one.holder.pid for one in found if isinstance(one, LeaseHeld)} == {first.pid}
    for one in streams:
        await one.aclose()


async def test_without_flock_one_gets_it_too(local: LocalExec, state: Path, tmp_path: Path) -> None:
    broken = tmp_path / "no flock"
    broken.mkdir()
    (broken / "flock").write_text("#!/bin/sh\nexit 127\n")
    (broken / "flock").chmod(0o755)
    local.env["PATH"] = f"{broken}:{local.env['PATH']}"
    await test_of_many_at_once_one_gets_it(local, state)
    assert not (state / "run" / ".lock.d").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
async def test_a_full_disk_keeps_and_passes_on_a_lease(local: LocalExec, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], check=True)
    fill = small / "fill"
    try:
        async with aclosing(stream(local, small, Claim(ADA))) as ticks:
            await anext(ticks)
            fill.write_bytes(b"x" * filling(small))
            age(small, ADA, 0.0)
            for _ in range(3):
                await anext(ticks)
            with pytest.raises(LeaseHeld, match="ada"):
                await anext(stream(local, small, Claim(BOB)))
        assert await take_over(local, str(small), Claim(BOB)) == ADA
        with pytest.raises(LeaseHeld, match="bob"):
            await Instances(local, str(small), holder=ADA.id).stop("a", 1.0)
        # where none was ever written a full disk keeps nobody from clearing it
        (small / "lease").unlink()
        fill.write_bytes(b"x" * (filling(small) + fill.stat().st_size))
        async with aclosing(stream(local, small, Claim(ADA))) as ticks:
            await anext(ticks)
            fill.unlink()
            await anext(ticks)
            with pytest.raises(LeaseHeld, match="ada"):
                await anext(stream(local, small, Claim(BOB)))
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def filling(folder: Path) -> int:
    free = os.statvfs(folder)
    return free.f_bavail * free.f_frsize


# --- who a controller is


def test_a_controller_is_known_by_its_state_directory_and_machine(tmp_path: Path) -> None:
    one = this_controller(tmp_path / "one", "c", started=5.5, host=lambda: "desk")
    again = this_controller(tmp_path / "one", "other", started=9.0, host=lambda: "desk")
    assert again.id == one.id
    assert (one.host, one.started, one.pid) == ("desk", 5, os.getpid())
    assert this_controller(tmp_path / "two", "c", started=1.0, host=lambda: "desk").id != one.id
    # a copy of the directory on another machine is another controller
    assert this_controller(tmp_path / "one", "c", started=1.0, host=lambda: "lap").id != one.id
    assert (tmp_path / "one" / "controller.id").stat().st_mode & 0o777 == 0o600
    (tmp_path / "one" / "controller.id").write_text("no id\n")
    assert this_controller(tmp_path / "one", "c", started=1.0, host=lambda: "desk").id != one.id


def test_a_state_directory_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LlmgwError, match=r"controller\.id cannot be written"):
        this_controller(tmp_path / "file", "c", started=1.0)


@given(st.binary())
def test_lines_of_strangers_are_read_with_care(rest: bytes) -> None:
    line = parse_lease(b"@@lease other 12 " + rest)
    if line is not None:
        shown = str(LeaseHeld("n1", line))
        assert not any(is_unsafe(char) for char in shown)
        assert len(shown) < 600


@given(st.text(min_size=1, max_size=60), st.text(min_size=1, max_size=60), st.integers(1, 1 << 22))
def test_names_come_through_as_they_are(cluster: str, host: str, pid: int) -> None:
    if any(is_unsafe(char) for char in cluster + host):
        return
    holder = Holder("a" * 32 + ".11111111", cluster, host, "ada", pid, 7)
    id_, token, _, *words = Claim(holder).args()
    line = parse_lease(f"@@lease other 1234 {id_} {token} {' '.join(words)}   ".encode())
    assert line is not None
    assert (line.holder, line.age_s) == (holder, 12.34)
