"""Engines on a node are asked for an architecture: the real one, and stand-ins that misbehave."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from llmgw_core.config import NodeConfig
from llmgw_core.engines.verdict import Verdict
from llmgw_core.errors import NodeLost
from llmgw_core.nodes.api import NodeHandle
from llmgw_core.nodes.facts import EngineFacts, NodeState
from llmgw_core.nodes.fleet import Fleet
from llmgw_core.nodes.verdicts import REMEMBERED, Verdicts
from tests.nodes.local_exec import LocalExec
from tests.nodes.shells import local
from tests.nodes.test_fleet import in_state, kept

__all__ = ["local"]

REAL = EngineFacts("llamacpp", "xllamacpp", sys.executable, "of this test")
engine = pytest.mark.skipif(
    importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp is not installed"
)

SERVER = """#!/bin/sh
echo asked >>'{folder}/calls'
[ "$1" = -m ] && [ "$3" = --host ] || exit 64
cp "$2" '{folder}/model.gguf'
echo "$2" >'{folder}/where'
echo "cards=$CUDA_VISIBLE_DEVICES" >'{folder}/cards'
{act}
"""
UNKNOWN = "echo \"error loading model: unknown model architecture: 'foo'\" >&2; exit 1"
MISSING = (
    "echo 'error loading model: error loading model hyperparameters: key not found' >&2; exit 1"
)


def server(folder: Path, act: str, version: str | None = "1") -> EngineFacts:
    """A llama-server that was found, and does this."""
    program = folder / "my llama-server"
    program.write_text(SERVER.format(folder=folder, act=act))
    program.chmod(0o755)
    return EngineFacts("llamacpp", "llama-server", str(program), version)


@engine
@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba", "bert", "gpt-oss"])
async def test_the_real_engine_knows_what_it_knows(tmp_path: Path, name: str) -> None:
    exec_ = LocalExec(Path("/bin"), tmp_path)
    verdict = await Verdicts().ask(exec_, REAL, name)
    assert verdict.known is True, verdict.sentence


@engine
async def test_the_real_engine_says_what_it_does_not_know(local: LocalExec) -> None:
    asker = Verdicts()
    verdict = await asker.ask(local, REAL, "foo")
    assert verdict.known is False
    assert verdict.sentence == "unknown architecture 'foo'"
    assert (await asker.ask(local, REAL, "clip")).known is False


async def test_a_server_is_given_the_file_and_no_card(local: LocalExec, tmp_path: Path) -> None:
    verdict = await Verdicts().ask(local, server(tmp_path, UNKNOWN), "foo")
    assert (verdict.known, verdict.engine) == (False, "llama.cpp 1")
    assert (tmp_path / "model.gguf").read_bytes().endswith(b"foo")
    assert (tmp_path / "cards").read_text() == "cards=\n"
    where = Path((tmp_path / "where").read_text().strip())
    assert not where.parent.exists()


async def test_an_answer_is_asked_for_once_for_each_version(
    local: LocalExec, tmp_path: Path
) -> None:
    asker = Verdicts()
    calls = tmp_path / "calls"
    found = server(tmp_path, UNKNOWN)
    for _ in range(3):
        assert (await asker.ask(local, found, "foo")).known is False
    assert calls.read_text().count("asked") == 1
    newer = server(tmp_path, MISSING, "2")
    assert (await asker.ask(local, newer, "foo")).known is True
    assert calls.read_text().count("asked") == 2
    # another one could lie there by now
    unversioned = server(tmp_path, MISSING, None)
    for _ in range(2):
        assert (await asker.ask(local, unversioned, "foo")).known is True
    assert calls.read_text().count("asked") == 4


async def test_no_answer_is_not_remembered(local: LocalExec, tmp_path: Path) -> None:
    asker = Verdicts()
    verdict = await asker.ask(local, server(tmp_path, "kill -ABRT $$"), "foo")
    assert verdict.known is None
    assert "signal 6" in verdict.sentence
    assert (await asker.ask(local, server(tmp_path, MISSING), "foo")).known is True


async def test_an_engine_that_hangs_is_ended(
    local: LocalExec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw_core.nodes.verdicts.ASKED_S", 1)
    verdict = await Verdicts().ask(local, server(tmp_path, "echo hm; exec sleep 600"), "foo")
    assert verdict.known is None
    assert "no answer within" in verdict.sentence


async def test_what_cannot_answer(local: LocalExec, tmp_path: Path) -> None:
    asker = Verdicts()
    gone = EngineFacts("llamacpp", "xllamacpp", str(tmp_path / "gone"), "1")
    assert "not there any more" in (await asker.ask(local, gone, "foo")).sentence
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    bare.chmod(0o755)
    without = EngineFacts("llamacpp", "xllamacpp", str(bare), "1")
    verdict = await asker.ask(local, without, "foo")
    assert verdict.known is None
    assert "cannot import xllamacpp" in verdict.sentence
    calls = local.calls
    vllm = EngineFacts("vllm", "vllm", "/opt/vllm", "0.11")
    assert (await asker.ask(local, vllm, "foo")).known is None
    assert (await asker.ask(local, gone, "a'; rm -rf /")).known is None
    assert local.calls == calls, "the node was asked for what cannot be answered"


async def test_only_so_many_answers_are_kept(tmp_path: Path) -> None:
    exec_ = LocalExec(Path("/bin"), tmp_path)
    asker = Verdicts()
    asker._known = {("p", "1", str(n)): Verdict(True, "") for n in range(REMEMBERED)}
    await asker.ask(exec_, server(tmp_path, MISSING), "foo")
    assert len(asker._known) == REMEMBERED


@engine
async def test_a_node_is_asked(tmp_path: Path) -> None:
    fleet = Fleet(
        (NodeConfig("here", local=True),),
        state_dir=tmp_path / "state",
        rng=lambda: 0.0,
        ssh_config=tmp_path / "none",
        local_homes={"here": tmp_path},
        agent_path=None,
    )
    node: NodeHandle = fleet.nodes["here"]
    with pytest.raises(NodeLost, match="not connected"):
        await node.knows_architecture(REAL, "llama")
    async with kept(fleet):
        await in_state(fleet.nodes["here"], NodeState.READY)
        assert (await node.knows_architecture(REAL, "llama")).known is True
        assert (await node.knows_architecture(REAL, "foo")).known is False
