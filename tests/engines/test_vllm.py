from __future__ import annotations

import pytest

from llmgw_core.catalog.model import Profile
from llmgw_core.engines.vllm import Vllm
from llmgw_core.errors import InvalidInput, Refused

from .requests import KEY, VLLM_FOUND, request, value_of


def gpu(*args: str, nodes: int = 1, tp: int = 1, pp: int = 1) -> Profile:
    return Profile("gpu", gpu_class="l4", args=args, nodes=nodes, tp=tp, pp=pp)


def test_it_serves_the_model_under_its_name_with_the_profiles_degrees() -> None:
    launch = Vllm().launch(
        request(found=VLLM_FOUND, profile=gpu("--max-model-len", "8192", tp=2), gpus=("0", "3"))
    )
    assert launch.argv[:3] == ("/opt/vllm", "serve", "/w/model.gguf")
    assert value_of(launch.argv, "--served-model-name") == "smol"
    assert value_of(launch.argv, "--tensor-parallel-size") == "2"
    assert "--pipeline-parallel-size" not in launch.argv
    assert launch.argv[-2:] == ("--max-model-len", "8192")
    assert launch.env["CUDA_VISIBLE_DEVICES"] == "0,3"


def test_the_key_stands_in_the_environment_alone() -> None:
    launch = Vllm().launch(request(found=VLLM_FOUND, profile=gpu()))
    assert launch.env["VLLM_API_KEY"] == KEY
    assert not any(KEY in word for word in launch.argv)


def test_a_gang_is_refused_with_a_sentence() -> None:
    with pytest.raises(Refused, match=r"nodes = 2.*one node only"):
        Vllm().launch(request(found=VLLM_FOUND, profile=gpu(nodes=2, tp=2)))


@pytest.mark.parametrize("arg", ["--api-key=x", "--served_model_name", "--port"])
def test_options_that_llmgw_sets_are_refused_by_name(arg: str) -> None:
    with pytest.raises(InvalidInput, match=arg.partition("=")[0]):
        Vllm().launch(request(found=VLLM_FOUND, profile=gpu(arg, "x")))


@pytest.mark.parametrize(
    ("log", "status", "said"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", 1, "GPU memory"),
        ("ValueError: No available memory for the cache blocks.", 1, "KV cache"),
        ("OSError: [Errno 98] error while attempting to bind: Address already in use", 1, "port"),
        ("vllm: error: unrecognized arguments: --nope", 2, "args"),
        ("", 137, "memory"),
        ("", None, "nobody saw"),
        ("Traceback\nImportError: libcudart.so.12", 1, "ImportError: libcudart.so.12"),
    ],
)
def test_it_says_why_it_ended(log: str, status: int | None, said: str) -> None:
    assert said in Vllm().failure_reason(log, status)
