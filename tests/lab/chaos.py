"""Random faults over four hosts, and after each: nothing lost, nothing doubled, nobody else hit.

    python -m tests.lab.chaos --faults 200 --seed 1

A real daemon, gateway and engines, clients that ask all the while, and processes of others on every
host. Faults of one round overlap; once they are over, everything must be as wanted again within a
bounded time, as read from the hosts' process tables. Needs root and a model in LLMGW_TEST_CACHE.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.lab.chaos_clients import Answers, Clients
from tests.lab.chaos_plan import VERBS, Fault, rounds
from tests.lab.chaos_scene import ASKERS, COUNT, SMOL, SPARE, WAKE, ChaosCluster, Scene, model_toml
from tests.lab.chaos_strangers import Strangers
from tests.lab.chaos_strikes import STRIKES, phase_hit
from tests.lab.chaos_truth import doubled, look
from tests.lab.conftest import HOSTS, first_net, lab_binds
from tests.lab.ground import missing
from tests.lab.hosts import Host, Lab

CONVERGED_MOST_S = 90.0
LOOK_EVERY_S = 0.25
HOLDS_S = 1.0
"""It is as wanted only if it still is after so long."""
EVENTS_SHOWN = 25
Say = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """What came of one round."""

    faults: Sequence[Fault]
    hits: dict[int, tuple[str, str]] = field(default_factory=dict)
    """By the fault's number: what was hit, and in which phase that was."""
    converged_s: float | None = None
    answers: Answers = field(default_factory=Answers)
    findings: list[str] = field(default_factory=list)
    """Everything that must not have happened."""

    def lines(self) -> list[str]:
        """One line a fault, for people."""
        took = f"{self.converged_s:5.1f} s" if self.converged_s is not None else "  never"
        a = self.answers
        clients = f"{a.asked} asked, {a.ok.total()} ok"
        if a.errors:
            clients += ", " + ", ".join(f"{n} x {kind}" for kind, n in sorted(a.errors.items()))
        if a.excused:
            clients += f", {a.excused} while the gateway was away"
        lines = []
        for fault in self.faults:
            what, phase = self.hits.get(fault.number, ("not reached", "–"))
            lines.append(
                f"{fault.number:4} {fault.verb:26} {fault.host} for {fault.lasts_s:4.1f} s, "
                f"{what} ({phase}): as wanted after {took}"
            )
        lines[-1] += f"; {clients}"
        return lines + [f"     !! {finding}" for finding in self.findings]


class Witness:
    """Looks at all hosts while the block lasts: nothing may run twice, nor too much of anything."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.complaints: list[str] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._task is not None
        self._task.cancel()
        for result in await asyncio.gather(self._task, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _watch(self) -> None:
        before: set[str] = set()
        while True:
            now = set(await asyncio.to_thread(self._look))
            # a process that is replaced while the table is read may be seen twice, once
            self.complaints += sorted(text for text in now & before if text not in self.complaints)
            before = now
            await asyncio.sleep(LOOK_EVERY_S)

    def _look(self) -> list[str]:
        scene = self._scene
        sight = look(scene.hosts.values())
        found = doubled(sight)
        for model, want in scene.wanted.items():
            there = [
                e for e in sight.engines
                if e.instance.rpartition(".")[0] == model and e.host not in scene.touched
            ]  # fmt: skip
            if len(there) > want.most + scene.surge:
                names = ", ".join(engine.name for engine in there)
                found.append(f"more of {model} than were asked for: {names}")
        return found


async def run_round(scene: Scene, witness: Witness, faults: Sequence[Fault]) -> Outcome:
    """Do these faults, wait until all is as wanted, and say what must not have happened."""
    outcome = Outcome(faults)
    scene.frozen.clear()
    scene.touched.clear()
    scene.surge = 0
    answers = scene.clients.answers.copy()
    await scene.snapshot()
    async with asyncio.TaskGroup() as group:
        for fault in faults:
            group.create_task(_do(scene, fault, outcome))
    strangers, frozen = scene.strangers, frozenset(scene.frozen)
    outcome.findings += await asyncio.to_thread(strangers.complain_and_start, frozen)
    outcome.converged_s, left = await converge(scene)
    outcome.findings += [f"not as wanted: {text}" for text in left]
    if left:
        outcome.findings += await _told(scene)
    outcome.findings += await asyncio.to_thread(strangers.complain_and_start, frozen)
    outcome.findings += witness.complaints
    witness.complaints.clear()
    outcome.answers = scene.clients.answers.minus(answers)
    outcome.findings += outcome.answers.unclean
    return outcome


async def _do(scene: Scene, fault: Fault, outcome: Outcome) -> None:
    await asyncio.sleep(fault.after_s)
    await scene.snapshot()
    try:
        what, heal = await STRIKES[fault.verb](scene, fault)
        outcome.hits[fault.number] = (what, phase_hit(scene, fault, what))
        await asyncio.sleep(fault.lasts_s)
        await heal()
    except AssertionError as error:
        outcome.findings.append(f"{fault.verb}: {error}")


async def converge(scene: Scene) -> tuple[float | None, list[str]]:
    """Wait until all is as wanted, and served; how long that took, or what is still wrong."""
    began = time.monotonic()
    served = scene.clients.answers.ok.copy()
    good_since: float | None = None
    left: list[str] = ["no daemon answers"]
    while time.monotonic() - began < CONVERGED_MOST_S:
        snapshot = await scene.snapshot()
        if snapshot is not None:
            left = scene.wrong(snapshot, await asyncio.to_thread(scene.sight))
        ok = scene.clients.answers.ok
        left = left or [f"{m} serves nobody" for m in (SMOL, SPARE) if ok[m] <= served[m]]
        now = time.monotonic()
        if left:
            good_since = None
        elif good_since is None:
            good_since = now
        elif now - good_since >= HOLDS_S:
            return good_since - began, []
        await asyncio.sleep(LOOK_EVERY_S)
    return None, left


async def _told(scene: Scene) -> list[str]:
    """The last events, for people who look for the cause."""
    if await scene.snapshot() is None:
        return ["no daemon answers"]
    events = [event async for event in scene.cluster.client.events(follow=False)]
    return [f"told: {event.text}" for event in events[-EVENTS_SHOWN:]]


@asynccontextmanager
async def scene_over(
    folder: Path, hosts: Sequence[Host], source: Path
) -> AsyncIterator[tuple[Scene, Witness]]:
    """Models that are served, clients that ask, strangers that stay; all ended with the block."""
    strangers = Strangers(folder / "strangers", hosts)
    cluster = ChaosCluster(folder, hosts)
    try:
        await asyncio.to_thread(strangers.start)
        await cluster.start()
        for name in (SMOL, SPARE, WAKE):
            await cluster.do("add", toml=model_toml(name, source))
        await cluster.ready(COUNT + 1)
        url = await cluster.url()
        async with Clients(url, ASKERS) as clients:
            scene = Scene(cluster, source, clients, strangers)
            async with Witness(scene) as witness:
                yield scene, witness
    finally:
        await cluster.end()
        strangers.stop()


async def run(
    folder: Path, hosts: Sequence[Host], source: Path, *, faults: int, seed: int,
    budget_s: float = float("inf"), verbs: Sequence[str] = tuple(VERBS), say: Say = print,
) -> list[str]:  # fmt: skip
    """Do so many faults, or as many as the time allows; returns what must not have happened."""
    found: list[str] = []
    began = time.monotonic()
    async with scene_over(folder, hosts, source) as (scene, witness):
        for some in rounds(seed, faults, [host.name for host in hosts], verbs):
            outcome = await run_round(scene, witness, some)
            for line in outcome.lines():
                say(line)
            found += [f"fault {some[0].number}: {finding}" for finding in outcome.findings]
            if outcome.converged_s is None or time.monotonic() - began > budget_s:
                break  # what follows would only be hit by what is still wrong
        total = scene.clients.answers
    say(
        f"seed {seed}: {total.asked} requests, {total.ok.total()} ok, {total.errors.total()} clean "
        f"errors, {total.excused} excused, the longest took {total.longest_s:.1f} s; "
        f"{len(found)} findings in {time.monotonic() - began:.0f} s"
    )
    return found


def main() -> int:
    """Run chaos in a lab of its own; 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--faults", type=int, default=int(os.environ.get("LLMGW_CHAOS_FAULTS", 200))
    )
    parser.add_argument("--seed", type=int, default=int(os.environ.get("LLMGW_CHAOS_SEED", 1)))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="end after so long")
    parser.add_argument("--verbs", default="", help="only these, separated by commas")
    parser.add_argument("--keep", action="store_true", help="keep the daemon's folder")
    args = parser.parse_args()
    source = next((p / "SmolLM2-135M-Instruct.gguf" for p in lab_binds()), None)
    if source is None or not source.exists():
        sys.exit("there is no model: set LLMGW_TEST_CACHE to the folder that scripts/test fills")
    with contextlib.ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="llmgw-chaos-"))
        if not args.keep:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        reason = missing(_new(folder / "trial"))
        if reason is not None:
            sys.exit(reason)
        if args.keep:
            print(f"everything is in {folder}", flush=True)
        lab = Lab(_new(folder / "lab"), binds=lab_binds(), first=first_net())
        try:
            found = asyncio.run(
                run(
                    _new(folder / "cluster"), lab.up(HOSTS), source,
                    faults=args.faults, seed=args.seed, budget_s=args.minutes * 60,
                    verbs=tuple(filter(None, args.verbs.split(","))) or tuple(VERBS),
                    say=lambda line: print(line, flush=True),
                )
            )  # fmt: skip
        finally:
            lab.down()
    return 1 if found else 0


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    sys.exit(main())
