"""The start script for llama-server, under the shells that nodes have, over a stand-in program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from llmgw_core.engines.llamacpp import LlamaCpp
from llmgw_core.nodes.facts import EngineFacts

from .requests import request

SHELLS = [
    shell
    for shell in (["sh"], ["dash"], ["bash", "--posix"], ["busybox", "sh"])
    if shutil.which(shell[0])
]

NEW = """-c,    --ctx-size N      size of the prompt context
-kvu,  --kv-unified, -no-kvu, --no-kv-unified   one buffer
-cram, --cache-ram N     cache size in MiB
--fit [on|off]           fit
--load-mode MODE         mode"""
OLD = "-c,    --ctx-size N      size of the prompt context"


class Node:
    """A folder with a program that prints its help, or its arguments one a line."""

    def __init__(self, folder: Path, shell: list[str]) -> None:
        self.folder, self.shell = folder, shell
        self.weights = folder / "my weights"
        self.weights.mkdir()

    def run(
        self, *args: str, source: str | None = None, help_text: str = NEW, cores: float | None = 2
    ) -> tuple[int, list[str], str]:
        """Exit status, the arguments that the program got, and stderr."""
        program = self.folder / "llama-server"
        program.write_text(
            f"#!/bin/sh\n[ \"$1\" != --help ] || {{ cat <<'X'\n{help_text}\nX\nexit; }}\n"
            "printf '%s\\n' \"$@\"\n"
        )
        program.chmod(0o755)
        if source is None:
            source = str(self.weights / "m.gguf")
            Path(source).write_bytes(b"GGUF")
        found = EngineFacts("llamacpp", "llama-server", str(program))
        launch = LlamaCpp().launch(request(*args, source=source, found=found, cores=cores))
        for name, content in launch.files.items():
            (self.folder / name).write_bytes(content)
        argv = [word.replace("{dir}", str(self.folder)) for word in launch.argv]
        done = subprocess.run(
            [*self.shell, *argv[1:]], capture_output=True, text=True, check=False, timeout=60
        )
        return done.returncode, done.stdout.splitlines(), done.stderr

    def put(self, *names: str) -> str:
        """Files in the weights' folder, as a source."""
        for name in names:
            (self.weights / name).write_bytes(b"GGUF")
        return f"{self.weights}/"


@pytest.fixture(params=SHELLS, ids=" ".join)
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Node:
    return Node(tmp_path, request.param)


def after(argv: list[str], option: str) -> str:
    return argv[argv.index(option) + 1]


def test_the_server_gets_its_model_and_every_argument_as_one_word(node: Node) -> None:
    template = "{{ a b }}\t'\"$x`*"
    status, argv, _ = node.run("--chat-template", template, "--lora", "")
    assert status == 0
    assert after(argv, "--model") == str(node.weights / "m.gguf")
    assert after(argv, "--chat-template") == template
    assert after(argv, "--lora") == ""
    assert after(argv, "--port") == "18000"


def test_a_new_build_is_given_what_it_knows(node: Node) -> None:
    _, argv, _ = node.run()
    assert "--kv-unified" in argv
    assert after(argv, "--cache-ram") == "102"
    assert after(argv, "--fit") == "off"
    assert after(argv, "--load-mode") == "none"
    assert "--ctx-checkpoints" not in argv
    assert "--try" not in argv


def test_an_old_build_is_not_given_what_it_does_not_know(node: Node) -> None:
    status, argv, _ = node.run(help_text=OLD)
    assert status == 0
    for option in ("--kv-unified", "--cache-ram", "--fit", "--load-mode"):
        assert option not in argv
    assert after(argv, "--ctx-size") == "16384"


def test_without_cores_it_bounds_the_threads_itself(node: Node) -> None:
    _, argv, said = node.run(cores=None)
    threads = int(after(argv, "--threads"))
    assert 1 <= threads <= 16
    assert after(argv, "--threads-batch") == str(threads)
    assert f"{threads} threads" in said


def test_a_folders_only_model_goes_with_its_projector(node: Node) -> None:
    _, argv, _ = node.run(source=node.put("A.GGUF", "mmproj-f16.gguf", "README"))
    assert after(argv, "--model") == str(node.weights / "A.GGUF")
    assert after(argv, "--mmproj") == str(node.weights / "mmproj-f16.gguf")


def test_a_projector_of_the_profile_wins(node: Node) -> None:
    source = node.put("a.gguf", "mmproj-f16.gguf")
    _, argv, _ = node.run("--mmproj", "/other", source=source)
    assert argv.count("--mmproj") == 1
    assert after(argv, "--mmproj") == "/other"


def test_a_folders_first_part_is_taken(node: Node) -> None:
    source = node.put(*(f"a-0000{n}-of-00003.gguf" for n in (1, 2, 3)))
    _, argv, _ = node.run(source=source)
    assert after(argv, "--model") == str(node.weights / "a-00001-of-00003.gguf")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "holds no GGUF file"),
        (["mmproj.gguf"], "holds no GGUF file"),
        (["a.gguf", "b.gguf"], "2 GGUF files to choose from"),
        (["a-00001-of-00002.gguf", "b-00001-of-00002.gguf"], "2 GGUF files to choose from"),
    ],
)
def test_no_choice_or_too_many_is_a_sentence(node: Node, names: list[str], said: str) -> None:
    status, _, log = node.run(source=node.put(*names))
    assert status == 66
    assert said in LlamaCpp().failure_reason(log, status)


@pytest.mark.parametrize("source", ["/nowhere/m.gguf", "/nowhere/at/all/"])
def test_a_missing_source_is_a_sentence(node: Node, source: str) -> None:
    status, _, log = node.run(source=source)
    assert status == 66
    assert source in LlamaCpp().failure_reason(log, status)
