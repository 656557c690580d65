from __future__ import annotations

import subprocess
import sys

from llmgw_core.catalog.model import Profile
from llmgw_core.engines.registry import ENGINES


def test_the_names_are_those_of_the_engines() -> None:
    assert {name: engine.name for name, engine in ENGINES.items()} == {
        "llamacpp": "llamacpp",
        "vllm": "vllm",
    }


def test_only_llamacpp_serves_without_a_gpu() -> None:
    assert [name for name, engine in ENGINES.items() if engine.can_serve_on_cpu] == ["llamacpp"]


def test_asking_for_the_engines_loads_nothing_that_talks_or_computes() -> None:
    code = (
        "import sys; import llmgw_core.engines.registry; "
        "print([m for m in ('asyncssh', 'httpx', 'aiohttp', 'xllamacpp', 'asyncio', 'textual')"
        " if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"


def test_llamacpp_refuses_degrees_that_it_would_accept_and_not_do() -> None:
    problems = ENGINES["llamacpp"].validate(Profile("g", engine="llamacpp", tp=2, pp=3, nodes=4))
    said = {problem.key: problem.message for problem in problems}
    assert set(said) == {"tp", "pp", "nodes"}
    assert "llamacpp" in said["tp"]
    assert "tp = 2" in said["tp"]
    assert "nodes = 4" in said["nodes"]


def test_llamacpp_refuses_options_that_llmgw_sets_under_all_their_spellings() -> None:
    args = ("--port=1", "--api_key", "s3cret", "-m", "x", "--ctx-size", "512")
    (problem,) = ENGINES["llamacpp"].validate(Profile("cpu", engine="llamacpp", args=args))
    assert problem.key == "args"
    assert "--port, --api-key, -m" in problem.message
    assert "s3cret" not in problem.message


def test_vllm_leaves_its_profile_to_the_catalogs_rules() -> None:
    assert ENGINES["vllm"].validate(Profile("g", gpu_class="l4", tp=8, nodes=2)) == []
