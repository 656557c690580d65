"""vLLM on one node. Gangs over several nodes come later."""

from __future__ import annotations

from dataclasses import dataclass

from llmgw_core.catalog.model import CatalogProblem, Profile
from llmgw_core.engines.base import Launch, LaunchRequest
from llmgw_core.engines.verdict import Question
from llmgw_core.engines.words import ended, option_name
from llmgw_core.errors import InvalidInput, Refused
from llmgw_core.metrics.mapping import VLLM, MetricsMapping
from llmgw_core.nodes.facts import EngineFacts

OURS = frozenset(
    {
        "--model", "--served-model-name", "--host", "--port", "--api-key", "--uds",
        "--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--headless",
    }
)  # fmt: skip
"""Options that llmgw sets, or that would take the engine out of its sight."""

_SIGNS = (
    ("CUDA out of memory", "there was not enough GPU memory; lower --gpu-memory-utilization or "
     "--max-model-len, or choose a bigger GPU class"),
    ("No available memory for the cache blocks", "no GPU memory was left for the KV cache; lower "
     "--max-model-len or raise --gpu-memory-utilization"),
    ("larger than the maximum number of tokens that can be stored", "the context does not fit into "
     "the KV cache; lower --max-model-len"),
    ("address already in use", "its port was taken by another process; it is tried again on "
     "another port"),
    ("unrecognized arguments", "vLLM does not know one of the profile's args; see its log"),
    ("are not supported for now", "this vLLM does not know the model's architecture; install a "
     "newer one"),
)  # fmt: skip


@dataclass(slots=True)
class Vllm:
    """``vllm serve`` as found on a node; it needs a GPU."""

    name: str = "vllm"
    can_serve_on_cpu: bool = False
    stop_grace_s: float = 30.0
    metrics: MetricsMapping = VLLM
    numbers_prove_life: bool = False
    health_path: str = "/health"

    def validate(self, profile: Profile) -> list[CatalogProblem]:
        """Nothing of its own: the catalog's rules see to nodes, degrees and GPUs."""
        return []

    def launch(self, request: LaunchRequest) -> Launch:
        """``vllm serve`` with the key in the environment.

        Raises:
            Refused: a gang over several nodes.
            InvalidInput: an argument that llmgw sets itself.
        """
        profile = request.profile
        if profile.nodes > 1:
            raise Refused(
                f"profile {profile.name} of {request.model} wants vllm over nodes = "
                f"{profile.nodes}, and this version starts vllm on one node only",
                hint="choose a profile with nodes = 1",
            )
        for arg in profile.args:
            # vLLM takes underscores for hyphens
            if option_name(arg).replace("_", "-") in OURS:
                raise InvalidInput(
                    f"the option {option_name(arg)} in profile {profile.name} of {request.model} "
                    "is set by llmgw for vllm; remove it from args"
                )
        argv = [
            *(request.found.path, "serve", request.source),
            *("--served-model-name", request.model),
            *("--host", request.host, "--port", str(request.port)),
            *("--tensor-parallel-size", str(profile.tp)),
        ]
        if profile.pp > 1:
            argv += ["--pipeline-parallel-size", str(profile.pp)]
        env = dict(profile.env)
        if request.gpus:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(request.gpus)
        env["VLLM_API_KEY"] = request.api_key
        return Launch((*argv, *profile.args), env)

    def architecture_question(self, found: EngineFacts, architecture: str) -> Question | None:
        """None: vLLM tells its architectures only after tens of seconds of imports."""
        return None

    def load_progress(self, log_tail: str) -> float | None:
        """vLLM's log has no one scale for loading, compiling and capturing."""
        return None

    def failure_reason(self, log_tail: str, exit_status: int | None) -> str:
        """One sentence on why it ended, as its log shows it."""
        lower = log_tail.lower()
        for sign, reason in _SIGNS:
            if sign.lower() in lower:
                return reason
        return ended("vllm", exit_status, log_tail)
