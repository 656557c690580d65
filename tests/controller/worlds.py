"""Small worlds for the planner, and a simulation that carries its plans out."""

from __future__ import annotations

from dataclasses import replace

from llmgw_core.catalog.model import Mode, Model, Profile, Scaling
from llmgw_core.controller.planner import Kind, Plan, World, plan
from llmgw_core.controller.replica import Phase, Replica
from llmgw_core.placement.rooms import Room

CPU = Profile("cpu", engine="llamacpp", min_memory_gb=2, cpu_cores=1)


def model(name: str = "m", count: int = 1, mode: Mode = Mode.ALWAYS, **values: object) -> Model:
    scaling = Scaling.for_mode(mode, count)
    return replace(Model(name, f"/w/{name}.gguf", (CPU,), scaling=scaling), **values)  # type: ignore[arg-type]


def room(name: str, **values: object) -> Room:
    given = {"engines": frozenset({"llamacpp"}), "memory_gb": 8.0, "cores": 4.0, **values}
    return Room(name, **given)  # type: ignore[arg-type]


def replica(
    of: Model, number: int, node: str, phase: Phase = Phase.READY, **values: object
) -> Replica:
    profile = of.profiles[0]
    name = f"{of.name}.{number}"
    base = Replica(
        name, of.name, profile.name, node, profile.revision(of.source), phase, since=0.0,
        instance=name, memory_gb=profile.min_memory_gb, cores=profile.cpu_cores,
        created=float(number),
    )  # fmt: skip
    return replace(base, **values)  # type: ignore[arg-type]


def apply(world: World, planned: Plan) -> World:
    """The world once a plan's actions have succeeded."""
    replicas = {r.id: r for r in world.replicas}
    models = {m.name: m for m in world.models}
    for action in planned.actions:
        if action.kind is Kind.STOP:
            del replicas[action.replica]
            continue
        of = models[action.model]
        profile = of.profile(action.profile)
        assert profile is not None
        number = int(action.replica.rpartition(".")[2])
        replicas[action.replica] = replica(
            of, number, action.nodes[0], profile=profile.name,
            revision=profile.revision(of.source), memory_gb=profile.min_memory_gb,
            cores=profile.cpu_cores, created=world.now,
        )  # fmt: skip
    return replace(world, replicas=tuple(replicas.values()), now=world.now + 1)


def settle(world: World, rounds: int = 50) -> World:
    """Plan and apply until nothing changes; fails where that never comes."""
    for _ in range(rounds):
        loaded = (
            replace(r, phase=Phase.READY) if r.phase is Phase.LOADING else r for r in world.replicas
        )
        world = replace(world, replicas=tuple(loaded))
        planned = plan(world)
        if not planned.actions:
            return world
        world = apply(world, planned)
    raise AssertionError(f"never settles: {plan(world).actions}")
