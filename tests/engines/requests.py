"""Launch requests as the controller makes them, and how a launch is carried out on a node."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llmgw_core.catalog.model import Profile
from llmgw_core.engines.base import Launch, LaunchRequest
from llmgw_core.nodes.facts import EngineFacts

KEY = "sk-a-secret-of-one-replica"
XLLAMACPP = EngineFacts("llamacpp", "xllamacpp", sys.executable)
LLAMA_SERVER = EngineFacts("llamacpp", "llama-server", "/opt/llama-server")
VLLM_FOUND = EngineFacts("vllm", "vllm", "/opt/vllm")


def request(
    *args: str,
    source: str = "/w/model.gguf",
    found: EngineFacts = XLLAMACPP,
    cores: float | None = 2,
    port: int = 18000,
    profile: Profile | None = None,
    gpus: tuple[str, ...] = (),
) -> LaunchRequest:
    return LaunchRequest(
        model="smol",
        source=source,
        profile=profile
        or Profile("cpu", engine=found.name, args=args, cpu_cores=cores, min_memory_gb=1),
        found=found,
        host="127.0.0.1",
        port=port,
        api_key=KEY,
        gpus=gpus,
    )


def value_of(argv: tuple[str, ...], option: str) -> str:
    """The word after an option."""
    return argv[argv.index(option) + 1]


@dataclass
class Started:
    """A launch that runs, with its log."""

    process: subprocess.Popen[bytes]
    log: Path

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def end(self) -> None:
        self.process.kill()
        self.process.wait(30)


def start(launch: Launch, folder: Path, env: Mapping[str, str] | None = None) -> Started:
    """As a node does it: files beside the record, a process group of its own, output in a log."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in launch.files.items():
        (folder / name).touch(mode=0o600)
        (folder / name).write_bytes(content)
    argv = [word.replace("{dir}", str(folder)) for word in launch.argv]
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv,
            env={**os.environ, **launch.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    return Started(process, log)
