"""How each fault is done, and undone.

A strike takes the scene and the fault, does it, and returns what it hit, in words, with what ends
it. Everything that blocks runs in a thread: faults overlap.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx

from llmgw_core.api.views import Snapshot
from llmgw_core.errors import LlmgwError
from tests.lab import faults
from tests.lab.chaos_plan import Fault
from tests.lab.chaos_scene import CONTEXTS, COUNT, SMOL, SPARE, Scene, model_toml
from tests.lab.chaos_truth import Engine, instance_of
from tests.lab.hosts import Host

SEEN_MOST_S = 40.0
"""Bound on what has to be seen before a person can act."""
BACK_MOST_S = 60.0
Heal = Callable[[], Awaitable[None]]
Strike = Callable[[Scene, Fault], Awaitable[tuple[str, Heal]]]


async def nothing() -> None:
    """What ends a fault that is over at once."""


# --- whole hosts


def _host(hit: Callable[[Host], None], heal: Callable[[Host], None] | None = None) -> Strike:
    async def strike(scene: Scene, fault: Fault) -> tuple[str, Heal]:
        host = scene.hosts[fault.host]
        scene.touched.add(host.name)
        await asyncio.to_thread(hit, host)

        async def end() -> None:
            if heal is not None:
                await asyncio.to_thread(heal, host)

        return host.name, end

    return strike


async def _freeze(scene: Scene, fault: Fault) -> tuple[str, Heal]:
    scene.frozen.add(fault.host)
    return await _host(faults.freeze, faults.thaw)(scene, fault)


async def _ban(scene: Scene, fault: Fault) -> tuple[str, Heal]:
    """The key no longer lets us in, and the sessions that stand are ended."""
    host = scene.hosts[fault.host]
    scene.touched.add(host.name)

    def hit() -> None:
        faults.ban(host)
        for process in host.processes():
            if process.is_ssh and "[listener]" not in process.title:
                process.kill()

    async def end() -> None:
        await asyncio.to_thread(faults.unban, host)
        # refused logins are tried again rarely: a person who has let us in says so
        await _insist(scene, "node.probe", name=host.name)

    await asyncio.to_thread(hit)
    return host.name, end


async def _rekey(scene: Scene, fault: Fault) -> tuple[str, Heal]:
    """Another host key: refused until a person has seen it and trusts it."""
    host = scene.hosts[fault.host]
    scene.touched.add(host.name)
    await asyncio.to_thread(faults.rekey, host)

    def shown(snapshot: Snapshot) -> bool:
        return any(n.name == host.name and n.fingerprint == host.fingerprint and
                   n.state == "refused" for n in snapshot.nodes)  # fmt: skip

    async def end() -> None:
        await _seen(scene, shown, f"{host.name} shows another key")
        await _insist(scene, "node.trust", name=host.name, fingerprint=host.fingerprint)

    return host.name, end


async def _seen(scene: Scene, condition: Callable[[Snapshot], bool], what: str) -> None:
    try:
        async with asyncio.timeout(SEEN_MOST_S):
            while not ((snapshot := await scene.snapshot()) and condition(snapshot)):
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"never: {what}") from None


async def _insist(scene: Scene, command: str, /, **args: object) -> None:
    """As a person does, who tries again while the answer is no."""
    said = ""
    try:
        async with asyncio.timeout(SEEN_MOST_S):
            while (said := await scene.command(command, **args)).startswith("refused: "):
                await asyncio.sleep(0.5)
    except TimeoutError:
        raise AssertionError(f"{command} of {args} is still {said}") from None


# --- processes


def _engine(scene: Scene, fault: Fault) -> Engine | None:
    """One of those that run, on the fault's host where there is one."""
    engines = scene.sight().engines
    engines = tuple(e for e in engines if e.host == fault.host) or engines
    return engines[int(fault.pick * len(engines))] if engines else None


def _signal(number: signal.Signals, *pids: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # it ended by itself, or with its parent
            continue


def _kill(choose: Callable[[Engine], tuple[int, ...]], number: signal.Signals) -> Strike:
    async def strike(scene: Scene, fault: Fault) -> tuple[str, Heal]:
        engine = await asyncio.to_thread(_engine, scene, fault)
        if engine is None:
            return "nothing there", nothing
        _signal(number, *choose(engine))
        return engine.name, nothing

    return strike


async def _stop_engine(scene: Scene, fault: Fault) -> tuple[str, Heal]:
    engine = await asyncio.to_thread(_engine, scene, fault)
    if engine is None:
        return "nothing there", nothing
    held = [(pid, os.pidfd_open(pid)) for pid in engine.pids if Path(f"/proc/{pid}").exists()]
    _signal(signal.SIGSTOP, *engine.pids)

    async def end() -> None:
        for _, fd in held:
            try:
                signal.pidfd_send_signal(fd, signal.SIGCONT)
            except ProcessLookupError:  # it was ended meanwhile
                continue
            finally:
                os.close(fd)

    return engine.name, end


async def _delete_record(scene: Scene, fault: Fault) -> tuple[str, Heal]:
    engine = await asyncio.to_thread(_engine, scene, fault)
    if engine is None:
        return "nothing there", nothing
    folder = scene.hosts[engine.host].home / ".local/state/llmgw/run" / engine.instance
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    return engine.name, nothing


async def _kill_gateway(scene: Scene, fault: Fault) -> tuple[str, Heal]:
    snapshot = scene.last
    pid = snapshot.gateway.pid if snapshot else None
    if pid is None or scene.clients.gateway_away:
        return "nothing there", nothing
    scene.clients.gateway_killed()
    _signal(signal.SIGKILL, pid)

    async def end() -> None:
        async with asyncio.timeout(BACK_MOST_S), httpx.AsyncClient(timeout=5) as http:
            while not await _answers(http, f"{scene.clients.url}/health"):
                await asyncio.sleep(0.1)
        scene.clients.gateway_serves()

    return f"pid {pid}", end


async def _answers(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(url)).status_code == 200
    except httpx.HTTPError:
        return False


async def _kill_daemon(scene: Scene, fault: Fault) -> tuple[str, Heal]:
    daemon = scene.cluster.daemon
    if daemon is None or daemon.poll() is not None:
        return "nothing there", nothing
    await scene.cluster.kill()

    async def end() -> None:
        await scene.cluster.start()

    return f"pid {daemon.pid}", end


async def _pause_daemon(scene: Scene, fault: Fault) -> tuple[str, Heal]:
    daemon = scene.cluster.daemon
    if daemon is None or daemon.poll() is not None:
        return "nothing there", nothing
    daemon.send_signal(signal.SIGSTOP)

    async def end() -> None:
        daemon.send_signal(signal.SIGCONT)

    return f"pid {daemon.pid}", end


async def _kill_mirror(scene: Scene, fault: Fault) -> tuple[str, Heal]:
    pid = scene.last.mirror.pid if scene.last else None
    if pid is None:
        return "nothing there", nothing
    _signal(signal.SIGKILL, pid)
    return f"pid {pid}", nothing


# --- what a person does


def _scale(delta: int) -> Strike:
    async def strike(scene: Scene, fault: Fault) -> tuple[str, Heal]:
        scene.surge += abs(delta)
        said = await scene.command("scale", name=SMOL, delta=delta)

        async def end() -> None:
            await _insist(scene, "scale", name=SMOL, replicas=COUNT)

        return said, end

    return strike


async def _edit(scene: Scene, fault: Fault) -> tuple[str, Heal]:
    other = CONTEXTS[CONTEXTS.index(scene.context) - 1]
    scene.surge += 1
    said = await scene.command("edit", name=SMOL, toml=model_toml(SMOL, scene.source, other))

    async def end() -> None:
        await _insist(scene, "edit", name=SMOL, toml=model_toml(SMOL, scene.source, other))
        scene.context = other

    return said, end


async def _restart(scene: Scene, fault: Fault) -> tuple[str, Heal]:
    replicas = scene.last.replicas if scene.last else ()
    if not replicas:
        return "nothing there", nothing
    scene.surge += 1
    replica = replicas[int(fault.pick * len(replicas))]
    return await scene.command("restart", replica=replica.id), nothing


def _node(command: str) -> Strike:
    async def strike(scene: Scene, fault: Fault) -> tuple[str, Heal]:
        scene.surge += 1
        said = await scene.command(command, name=fault.host)

        async def end() -> None:
            await _insist(scene, "node.uncordon", name=fault.host)

        return said, end

    return strike


async def _remove_and_add(scene: Scene, fault: Fault) -> tuple[str, Heal]:
    scene.surge += 1
    said = await scene.command("remove", name=SPARE)

    async def end() -> None:
        try:
            async with asyncio.timeout(SEEN_MOST_S):
                while not await _is_there(scene):
                    await scene.command("add", toml=model_toml(SPARE, scene.source))
                    await asyncio.sleep(0.3)
        except TimeoutError:
            raise AssertionError(f"{SPARE} cannot be added again") from None

    return said, end


async def _is_there(scene: Scene) -> bool:
    try:
        snapshot = await scene.cluster.client.snapshot()
    except LlmgwError:
        return False
    return any(model.name == SPARE for model in snapshot.models)


STRIKES: dict[str, Strike] = {
    "cut": _host(faults.cut, faults.heal),
    "slow": _host(lambda host: faults.slow(host, 60, loss=0.02), faults.fast),
    "freeze": _freeze,
    "reboot": _host(faults.reboot),
    "crash": _host(faults.crash),
    "lose power": _host(faults.lose_power, faults.start),
    "stop": _host(faults.stop, faults.start),
    "stop sshd": _host(faults.stop_sshd, faults.start_sshd),
    "stop sshd and sessions": _host(
        lambda host: faults.stop_sshd(host, sessions=True), faults.start_sshd
    ),
    "fill": _host(faults.fill, faults.unfill),
    "ban": _ban,
    "rekey": _rekey,
    "noexec": _host(faults.noexec, faults.exec_ok),
    "kill engine": _kill(lambda engine: engine.pids[:1], signal.SIGKILL),
    "kill engine's child": _kill(lambda engine: engine.pids[1:], signal.SIGKILL),
    "stop engine": _stop_engine,
    "term engine": _kill(lambda engine: engine.pids[:1], signal.SIGTERM),
    "kill supervisor": _kill(lambda engine: engine.supervisors, signal.SIGKILL),
    "kill engine and supervisor": _kill(
        lambda engine: (*engine.supervisors, *engine.pids), signal.SIGKILL
    ),
    "delete record": _delete_record,
    "kill gateway": _kill_gateway,
    "kill daemon": _kill_daemon,
    "pause daemon": _pause_daemon,
    "kill mirror": _kill_mirror,
    "scale up": _scale(1),
    "scale down": _scale(-1),
    "edit": _edit,
    "restart": _restart,
    "drain": _node("node.drain"),
    "cordon": _node("node.cordon"),
    "remove and add": _remove_and_add,
}


def phase_hit(scene: Scene, fault: Fault, what: str) -> str:
    """In which states the replicas were that a fault hit, by the newest snapshot."""
    if scene.last is None:
        return "–"
    named = [r for r in scene.last.replicas if what.startswith(f"{instance_of(r.id)} on ")]
    there = [r for r in scene.last.replicas if fault.host in r.nodes]
    return ", ".join(f"{r.id} {r.state}" for r in named or there) or "–"
