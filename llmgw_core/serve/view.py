"""A serve plan as faces see it. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace

from llmgw_core.api.serve_views import MeasuredView, MemoryPartView, ServePlanView
from llmgw_core.engines.verdict import Opinion, combine
from llmgw_core.gguf.architectures import architecture
from llmgw_core.gguf.facts import Kind, facts
from llmgw_core.mirror.looked import Looked
from llmgw_core.serve.form import ServeForm, filled, problems, toml
from llmgw_core.serve.plan import FleetNode, Known, ServePlan, Wish, plan_serve

GIB = 1024**3
MEASURED_SPARE = 1.05

_KINDS = {
    Kind.PROJECTOR: "a projector, which is served beside its model",
    Kind.ADAPTER: "an adapter, which is applied to a model",
    Kind.IMATRIX: "an importance matrix",
    Kind.CONTROL_VECTOR: "a control vector",
    Kind.VOCABULARY: "a vocabulary without weights",
}


def wish_of(fields: Mapping[str, str]) -> Wish:
    """What a person chose of the estimate; fields that do not read are left to the plan."""
    return Wish(
        ctx_pool=_whole(fields.get("ctx_pool")) or Wish().ctx_pool,
        parallel=_whole(fields.get("parallel")),
        kv_type=fields.get("kv_type") or "f16",
        name=(fields.get("name") or "").strip(),
    )


def slot_context(plan: ServePlan) -> int | None:
    """Tokens that one client may use while the others are idle; None for other engines."""
    if plan.engine != "llamacpp":
        return None
    pool = plan.ctx_pool if plan.unified else plan.ctx_pool // max(plan.parallel, 1)
    return min(pool, plan.context_length) if plan.context_length else pool


@dataclass(frozen=True, slots=True)
class Around:
    """What a plan depends on beside the weights, and what its form offers."""

    fleet: tuple[FleetNode, ...] = ()
    declared: Collection[str] = ()
    """Names and aliases that stand in the configuration."""
    added: Collection[str] = ()
    classes: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    gpu_classes: tuple[str, ...] = ()
    """Those that nodes have."""


def view_of(
    looked: Looked,
    typed: Mapping[str, str],
    around: Around,
    opinion: Opinion | None = None,
    measured: MeasuredView | None = None,
) -> ServePlanView:
    """Everything that a dialog shows, but for what only a controller knows.

    Args:
        looked: the weights.
        typed: the fields that a person has changed.
        around: fleet, catalog and configuration.
        opinion: what the engines said of the architecture; the built-in table's, where None.
        measured: what such a replica really used, which is preferred to the estimate where the
            build and the devices are the same.

    Raises:
        InvalidInput: a typed field is none of the form's.
    """
    arch = looked.header.architecture if looked.header else ""
    if opinion is None:
        known = architecture(arch) is not None
        opinion = combine({}, arch, known_to_table=known) if arch else Opinion()
    known_now = Known(
        fleet=around.fleet,
        declared=around.declared,
        added=around.added,
        engine_refuses=not_served(looked) or opinion.refusal,
        header=looked.header,
        header_error=looked.header_error,
        mmproj_bytes=looked.mmproj_bytes,
    )
    plan = plan_serve(looked.version, known_now, wish_of(typed))
    notes = [text for text in (plan.warning, opinion.warning, looked.unread) if text]
    plan = replace(plan, source=looked.source or plan.source, warning=", and ".join(notes))
    return _view(plan, looked, typed, around, measured)


def not_served(looked: Looked) -> str:
    """Why a file is none that is served by itself; empty where it is one."""
    if looked.header is None:
        return ""
    kind = facts(looked.header).kind
    if kind.is_served:
        return ""
    return f"{looked.version.model} is no model but {_KINDS.get(kind, kind.value)}"


def preferred_gb(plan: ServePlan, measured: MeasuredView) -> int:
    """Whole GiB to reserve after what was measured.

    A twentieth to spare, and the prompt cache, which may not have been full then.
    """
    cache = plan.memory.prompt_cache_bytes / GIB if plan.memory else 0.0
    return math.ceil(measured.peak_gb * MEASURED_SPARE + cache)


def _view(
    plan: ServePlan,
    looked: Looked,
    typed: Mapping[str, str],
    around: Around,
    measured: MeasuredView | None,
) -> ServePlanView:
    gpu_class = around.gpu_classes[0] if len(around.gpu_classes) == 1 else ""
    default = filled(plan, gpu_class=gpu_class)
    if measured is not None and measured.exact:
        default = replace(default, memory=str(preferred_gb(plan, measured)))
    form = default.with_fields(dict(typed))
    wrong = problems(form)
    told = facts(looked.header) if looked.header else None
    return ServePlanView(
        model=plan.model,
        version=plan.version,
        source=plan.source,
        engine=plan.engine,
        profile=plan.profile,
        files=plan.files,
        ctx_pool=plan.ctx_pool,
        min_memory_gb=plan.min_memory_gb,
        memory_basis=plan.memory_basis,
        cpu_cores=plan.cpu_cores,
        refusal=plan.refusal,
        warning=plan.warning,
        already=plan.already,
        bytes=plan.weights_bytes,
        parallel=plan.parallel,
        unified=plan.unified,
        kv_type=plan.kv_type,
        slot_context=slot_context(plan),
        context_length=plan.context_length,
        cores_basis=plan.cores_basis,
        parts=parts_of(plan),
        architecture=(told.architecture if told else None) or "",
        file_type=(told.file_type if told else None) or "",
        parameters=told.parameters if told else None,
        in_mirror=looked.in_mirror,
        engine_nodes=tuple(n.name for n in around.fleet if plan.engine in (n.engines or ())),
        measured=measured,
        form=_texts(form),
        filled=_texts(default),
        problems=wrong,
        toml="" if wrong else toml(form),
        classes=around.classes,
        owners=around.owners,
        gpu_classes=around.gpu_classes,
    )


def parts_of(plan: ServePlan) -> tuple[MemoryPartView, ...]:
    """The summands of the estimate; none where it is a guess from the size."""
    if plan.memory is None:
        return ()
    return tuple(MemoryPartView(p.name, p.size_bytes, p.words) for p in plan.memory.parts)


def _texts(form: ServeForm) -> dict[str, str]:
    return {name: str(text) for name, text in asdict(form).items()}


def _whole(text: str | None) -> int | None:
    """A whole number above 0; None for anything else, which the form then complains of."""
    text = (text or "").strip()
    return int(text) if text.isdecimal() and 0 < int(text) <= 2**31 else None
