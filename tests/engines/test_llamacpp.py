from __future__ import annotations

import sys

import pytest

from llmgw_core.catalog.model import Profile
from llmgw_core.engines.llamacpp import (
    LlamaCpp,
    MemorySettings,
    context_pool,
    launcher_file,
    settings_key,
)
from llmgw_core.errors import InvalidInput
from llmgw_core.nodes.facts import EngineFacts

from .requests import KEY, LLAMA_SERVER, XLLAMACPP, request, value_of

ENGINE = LlamaCpp()
BOTH = pytest.mark.parametrize("found", [XLLAMACPP, LLAMA_SERVER], ids=lambda found: found.kind)


def tried(argv: tuple[str, ...]) -> set[str]:
    """What is passed where the build knows it."""
    return {argv[i + 1] for i, word in enumerate(argv) if word == "--try"}


@BOTH
def test_the_server_is_found_again_by_alias_host_and_port(found: EngineFacts) -> None:
    argv = ENGINE.launch(request(found=found)).argv
    assert value_of(argv, "--alias") == "smol"
    assert value_of(argv, "--host") == "127.0.0.1"
    assert value_of(argv, "--port") == "18000"
    assert "--metrics" in argv


@BOTH
def test_the_key_lies_in_a_file_and_nowhere_else(found: EngineFacts) -> None:
    launch = ENGINE.launch(request(found=found))
    name = value_of(launch.argv, "--api-key-file").removeprefix("{dir}/")
    assert launch.files[name] == f"{KEY}\n".encode()
    assert not any(KEY in word for word in launch.argv)
    assert KEY not in launch.env.values()
    assert not any(KEY.encode() in text for other, text in launch.files.items() if other != name)


@BOTH
def test_what_the_estimate_assumes_is_said_out_loud(found: EngineFacts) -> None:
    argv = ENGINE.launch(request(found=found)).argv
    assert value_of(argv, "--ctx-size") == "16384"
    assert value_of(argv, "--parallel") == "4"
    assert value_of(argv, "--threads") == value_of(argv, "--threads-batch") == "2"
    assert tried(argv) == {
        "--kv-unified",
        "--cache-ram=102",
        "--ctx-checkpoints=0",
        "--load-mode=none",
        "--fit=off",
    }


@BOTH
def test_what_the_profile_says_wins_under_any_spelling(found: EngineFacts) -> None:
    args = ("-c", "4096", "-np", "1", "--no-kv-unified", "--cache_ram=0", "--no-mmap", "-t", "7")
    argv = ENGINE.launch(request(*args, found=found)).argv
    assert "--ctx-size" not in argv
    assert "--parallel" not in argv
    assert "--threads" not in argv
    assert "--own-threads" not in argv
    assert tried(argv) == {"--ctx-checkpoints=0", "--fit=off"}
    assert argv[-10:] == (
        *("-c", "4096", "-np", "1", "--no-kv-unified", "--cache_ram", "0", "--no-mmap", "-t", "7"),
    )


@pytest.mark.parametrize(("cores", "threads"), [(0.5, "1"), (1.9, "1"), (8.0, "8")])
def test_cores_become_whole_threads(cores: float, threads: str) -> None:
    argv = ENGINE.launch(request(cores=cores)).argv
    assert value_of(argv, "--threads") == threads


def test_without_cores_the_node_bounds_the_threads() -> None:
    assert "--own-threads" in ENGINE.launch(request(cores=None, found=LLAMA_SERVER)).argv
    assert "--threads" not in ENGINE.launch(request(cores=None)).argv


def test_the_prompt_cache_is_a_tenth_of_the_memory_and_bounded() -> None:
    roomy = Profile("cpu", engine="llamacpp", min_memory_gb=100)
    unknown = Profile("cpu", engine="llamacpp")
    for profile in (roomy, unknown):
        assert "--cache-ram=512" in ENGINE.launch(request(profile=profile)).argv


def test_a_node_with_llama_server_runs_it_through_the_start_script() -> None:
    launch = ENGINE.launch(request(found=LLAMA_SERVER))
    assert launch.argv[:4] == ("/bin/sh", "{dir}/start.sh", "/opt/llama-server", "/w/model.gguf")
    assert set(launch.files) == {"key", "start.sh"}


def test_a_node_with_the_package_runs_the_launcher() -> None:
    launch = ENGINE.launch(request())
    assert launch.argv[:4] == (sys.executable, "{dir}/launcher.py", "--model", "/w/model.gguf")
    assert set(launch.files) == {"key", "launcher.py"}


def test_the_launcher_is_one_file_that_needs_nothing_of_llmgw() -> None:
    text = launcher_file().decode()
    compile(text, "launcher.py", "exec")
    assert "llmgw_core" not in text
    assert text.count("from __future__") == 1


def test_an_option_that_the_launcher_cannot_map_is_refused_by_name_before_anything_starts() -> None:
    with pytest.raises(InvalidInput, match=r"profile cpu of smol: the option --rpc ") as refusal:
        ENGINE.launch(request("--rpc", "host:1"))
    assert refusal.value.exit_code == 2


def test_llama_server_may_know_options_that_we_do_not() -> None:
    argv = ENGINE.launch(request("--rpc", "host:1", found=LLAMA_SERVER)).argv
    assert value_of(argv, "--rpc") == "host:1"


def test_llama_servers_variables_are_refused_where_nothing_reads_them() -> None:
    profile = Profile("cpu", engine="llamacpp", env={"LLAMA_ARG_TOP_K": "1"})
    with pytest.raises(InvalidInput, match="LLAMA_ARG_TOP_K"):
        ENGINE.launch(request(profile=profile))
    assert ENGINE.launch(request(profile=profile, found=LLAMA_SERVER)).env == profile.env


@BOTH
def test_options_of_llmgw_are_refused_at_launch_too(found: EngineFacts) -> None:
    with pytest.raises(InvalidInput, match="--port"):
        ENGINE.launch(request("--port", "1", found=found))


@pytest.mark.parametrize(
    ("log", "share"),
    [
        ("", None),
        ("llmgw: loaded 3 %\nsomething\nllmgw: loaded 42 %\n", 0.42),
        ("llmgw: loaded 100 %\n", 1.0),
        ("load_tensors: CPU buffer\n..........\n", 0.1),
        ("he said: ...\n", None),
    ],
)
def test_how_far_loading_is(log: str, share: float | None) -> None:
    assert ENGINE.load_progress(log) == share


@pytest.mark.parametrize(
    ("args", "pool"), [((), 16384), (("-c", "4096"), 4096), (("--ctx-size=0",), None)]
)
@BOTH
def test_the_context_pool_is_read_back_from_the_command(
    found: EngineFacts, args: tuple[str, ...], pool: int | None
) -> None:
    assert context_pool(ENGINE.launch(request(*args, found=found)).argv) == pool
    assert context_pool(()) is None


@pytest.mark.parametrize("found", [XLLAMACPP, LLAMA_SERVER])
def test_the_settings_of_a_started_engine_are_those_that_it_was_given(found: EngineFacts) -> None:
    launch = LlamaCpp().launch(request("-c", "4096", "--cache-type-k=q8_0", found=found))
    assert settings_key("llamacpp", launch.argv) == MemorySettings(4096, 4, "q8_0/f16")
    plain = LlamaCpp().launch(request(found=found))
    assert settings_key("llamacpp", plain.argv) == settings_key("llamacpp", ())


@pytest.mark.parametrize(
    ("args", "settings"),
    [
        ((), MemorySettings(16384, 4, "f16")),
        (("--ctx_size", "0", "-np", "1"), MemorySettings(0, 1, "f16")),
        (("-c", "1", "--ctx-size=2", "-ctk", "Q4_0", "-ctv", "q4_0"), MemorySettings(2, 4, "q4_0")),
        (("-c", "many"), None),
        (("-c", "-1"), None),
        (("--parallel",), None),
        (("-ctv", ""), None),
    ],
)
def test_settings_that_take_memory(args: tuple[str, ...], settings: MemorySettings | None) -> None:
    assert settings_key("llamacpp", args) == settings
    assert settings_key("vllm", args) is None
