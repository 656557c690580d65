"""Serve plans as the engine gives them: the one of the sketch, and an engine that re-estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from msgspec import to_builtins
from msgspec.structs import replace

from llmgw_core.api.serve_views import MeasuredView, MemoryPartView, ServePlanView, WhereView
from llmgw_core.api.views import Command, CommandResult
from llmgw_core.serve.form import ServeForm, problems, toml
from tests.tui.fleets import NOW

GIB = 1024**3
SOURCE = "mirror:gemma-3-27b-it/v2"
WEIGHTS, ENGINE, PROMPTS = 15.4, 0.9, 0.5
MEASURED = MeasuredView(peak_gb=18.2, node="n3", at=NOW - 86400, load_time_s=41.0)
WHERE = WhereView(
    node="n3", why="fewest replicas", held_by=("n3",), fetch_bytes=0, load_time_s=41.0,
    obstacles=(("n1", "needs 20 GiB, has 4.8 free"),),
)  # fmt: skip


def gemma(fields: Mapping[str, str] | None = None, **changes: object) -> ServePlanView:
    """The plan of the sketch, with the fields that a person has typed."""
    typed = dict(fields or {})
    pool = int(typed["ctx_pool"]) if typed.get("ctx_pool", "").isdecimal() else 16384
    slots = int(typed["parallel"]) if typed.get("parallel", "").isdecimal() else 4
    kv = 3.1 * pool / 16384 * (0.53 if typed.get("kv_type") == "q8_0" else 1)
    memory = int(WEIGHTS + kv + ENGINE + PROMPTS + 0.999)
    filled = ServeForm(
        name="gemma-3-27b-it", source=f"{SOURCE}/", engine="llamacpp", profile="cpu",
        ctx_pool=str(pool), parallel="4", cache_ram="512", memory=str(memory), cores="8",
    )  # fmt: skip
    form = filled.with_fields(typed)
    wrong = problems(form)
    usual = ServePlanView(
        model="gemma-3-27b-it", version="v2", source=f"{SOURCE}/", engine="llamacpp",
        profile="cpu", files=3, ctx_pool=pool, min_memory_gb=memory,
        memory_basis=f"weights 15.4 GB + KV cache {kv:.1f} GB (10 full layers; 52 window layers "
        "hold 4608 tokens) + 0.9 GB for the engine + 0.5 GB prompt cache", cpu_cores=8, refusal="",
        warning="", already=False, bytes=int(15.4 * GIB), parallel=slots,
        slot_context=pool, context_length=131072,
        cores_basis="half of n1's 16, the smallest node that fits",
        parts=(
            MemoryPartView("weights", int(WEIGHTS * GIB), ""),
            MemoryPartView("kv", int(kv * GIB),
                           "10 full layers; 52 window layers hold 4608 tokens"),
            MemoryPartView("engine", int(ENGINE * GIB), ""),
            MemoryPartView("prompt_cache", int(PROMPTS * GIB), ""),
        ),
        architecture="gemma3", file_type="Q4_K_M", parameters=27_400_000_000, in_mirror=True,
        engine_nodes=("n1", "n2", "n3"), measured=MEASURED, where=WHERE,
        form={name: str(text) for name, text in asdict(form).items()},
        filled={name: str(text) for name, text in asdict(filled).items()},
        problems=wrong, toml="" if wrong else toml(form),
        classes=("critical", "standard", "spare"), owners=("team-a", "team-b"),
    )  # fmt: skip
    return replace(usual, **changes)


def result(view: ServePlanView) -> CommandResult:
    """As it comes over the client protocol."""
    return CommandResult(f"how {view.model} would be served", to_builtins(view))


def answering(**changes: object) -> object:
    """Answers each question by what was typed so far."""

    async def answer(command: Command) -> CommandResult:
        return result(gemma(command.args["fields"], **changes))

    return answer
