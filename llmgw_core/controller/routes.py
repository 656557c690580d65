"""From replicas to the gateway's routing table. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from llmgw_core.catalog.model import Mode, Model
from llmgw_core.controller.replica import Phase, Replica
from llmgw_core.engines.llamacpp import slots_of
from llmgw_core.gateway.table import RouteModel, Target, Tunnel
from llmgw_core.nodes.instance import Endpoint


def route_models(
    models: Iterable[Model],
    replicas: Iterable[Replica],
    endpoints: Mapping[str, Endpoint],
    tunnels: Mapping[str, Tunnel],
    reasons: Mapping[str, str],
    unsettled: AbstractSet[str] = frozenset(),
    ranks: Mapping[str, int] | None = None,
    fenced: AbstractSet[str] = frozenset(),
) -> tuple[RouteModel, ...]:
    """What clients may ask for, and where it is served.

    Args:
        models: the catalog.
        replicas: all that are known; only ready ones become targets.
        endpoints: where each replica is reached, by replica id.
        tunnels: nodes that the gateway reaches by SSH, by name.
        reasons: why a model lacks replicas, by model name.
        unsettled: models of which it is not known yet whether and where they are served.
        ranks: of classes, by name.
        fenced: replicas that take no new request, although they are ready (``Plan.fenced``).
    """
    by_model: dict[str, list[Replica]] = {}
    for replica in replicas:
        by_model.setdefault(replica.model, []).append(replica)
    return tuple(
        _route(
            model,
            by_model.get(model.name, []),
            endpoints,
            tunnels,
            reasons.get(model.name, ""),
            held=model.name in unsettled,
            rank=(ranks or {}).get(model.model_class, 0),
            fenced=fenced,
        )
        for model in models
    )


def _route(
    model: Model,
    replicas: list[Replica],
    endpoints: Mapping[str, Endpoint],
    tunnels: Mapping[str, Tunnel],
    reason: str,
    *,
    held: bool,
    rank: int,
    fenced: AbstractSet[str],
) -> RouteModel:
    targets = []
    for replica in sorted(replicas, key=lambda r: r.id):
        endpoint = endpoints.get(replica.id)
        if replica.phase is not Phase.READY or replica.id in fenced:
            continue
        if replica.port is None or endpoint is None:
            continue
        profile = model.profile(replica.profile)
        through = replica.node if replica.node in tunnels else None
        targets.append(
            Target(
                id=replica.id,
                host="127.0.0.1" if through else endpoint.host,
                port=replica.port,
                weight=profile.weight if profile else 1.0,
                slots=slots_of(replica.engine, replica.argv),
                api_key=replica.api_key,
                tunnel=through,
            )
        )
    coming = _coming(replicas)
    return RouteModel(
        name=model.name,
        aliases=model.aliases,
        targets=tuple(targets),
        state="ready"
        if targets
        else model_state(model, (r for r in replicas if r.id not in fenced)),
        reason="" if targets else reason,
        description=model.description,
        context_length=model.context_length,
        max_output=model.max_output,
        owned_by=model.owner or "llmgw",
        owner=model.owner,
        routing_profile=model.routing_profile.value,
        fallbacks=model.fallbacks,
        held=held and not targets,
        wakes=_wakes(model, replicas),
        rank=rank,
        progress=None if targets or coming is None else _progress(coming),
        node="" if targets or coming is None else coming.node,
    )


def _coming(replicas: Iterable[Replica]) -> Replica | None:
    """The replica that will be ready first, as far as one can tell."""
    coming = [replica for replica in replicas if replica.phase.coming]
    return max(coming, key=lambda replica: (_ORDER[replica.phase], replica.id), default=None)


_ORDER = {Phase.PENDING: 0, Phase.FETCHING: 1, Phase.STARTING: 2, Phase.LOADING: 3}


def _progress(replica: Replica) -> float | None:
    fetched = replica.fetched
    if replica.phase is Phase.FETCHING and fetched is not None and fetched.total:
        return fetched.done / fetched.total
    return replica.progress


def _wakes(model: Model, replicas: Iterable[Replica]) -> bool:
    """Whether it makes sense to wait for a replica: one comes, or one would."""
    phases = {replica.phase for replica in replicas}
    if model.scaling.mode is Mode.STOPPED:
        return False
    if any(phase.coming for phase in phases):
        return True
    return model.scaling.mode is Mode.ON_DEMAND and Phase.FAILED not in phases


def model_state(model: Model, replicas: Iterable[Replica]) -> str:
    """One word for a model: ready, starting, failed, unknown, pending, stopped, on demand."""
    phases = {replica.phase for replica in replicas}
    if Phase.READY in phases:
        return "ready"
    if any(phase.coming for phase in phases):
        return "starting"
    for phase in (Phase.FAILED, Phase.UNKNOWN):
        if phase in phases:
            return phase.value
    match model.scaling.mode:
        case Mode.STOPPED:
            return "stopped"
        case Mode.ON_DEMAND:
            return "on demand"
        case Mode.ALWAYS:
            return "pending"


def out_of_touch(replica: Replica, now: float, silent_s: float) -> bool:
    """Whether what waits for its answer had better ask another: its node is away, or it has not
    answered its health check for so long."""
    silent = replica.answered_at is not None and now - replica.answered_at > silent_s
    return replica.phase is Phase.UNKNOWN or (replica.phase is Phase.READY and silent)
