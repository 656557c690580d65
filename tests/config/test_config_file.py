"""The configuration file: where it is found, what it says, and everything that is wrong in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmgw_core.config import Config, DataPath, NodeConfig, Reserve
from llmgw_core.config_file import (
    ConfigProblems,
    find_config,
    load_config,
    parse_config,
    read_config,
)
from llmgw_core.errors import InvalidInput
from tests.catalog.standins import ENGINES
from tests.catalog.strategies import tables


def config(text: str) -> Config:
    loaded = parse_config(text, engines=ENGINES)
    assert loaded.problems == ()
    assert loaded.config is not None
    return loaded.config


def messages(text: str) -> list[str]:
    loaded = parse_config(text, engines=ENGINES)
    assert (loaded.config is None) is bool(loaded.problems)
    return [problem.message for problem in loaded.problems]


def test_no_file_is_all_defaults() -> None:
    assert load_config(None) == Config()
    assert config("") == Config()


def test_everything_at_once() -> None:
    read = config(
        """
cluster = "lab"
[gateway]
host = "0.0.0.0"
port = 9000
drain_timeout = "2m"
max_body_mb = 8
[controller]
tick = "250ms"
node_grace = 90
[console]
theme = "light"
keys = { quit = "ctrl+x" }
[[nodes]]
name = "gpu-1"
host = "10.0.0.5"
port = 2222
user = "ops"
identity_file = "~/.ssh/lab"
jump = "bastion"
labels = { zone = "a", rack = 7 }
gpu_class = "h100"
fabric = "ib0"
serve_address = "10.1.0.5"
port_range = "20000-20099"
reserve = { memory_gb = 4, cores = 2 }
data_path = "tunnel"
state_dir = "~/llmgw"
engines = { llamacpp = "/opt/llama-server" }
[[nodes]]
name = "bastion"
[[nodes]]
name = "here"
local = true
[[classes]]
name = "standard"
rank = 7
[[owners]]
name = "ada"
gpus = 2
memory_gb = 1.5
tokens_per_day = 1000
"""
    )
    assert read.cluster == "lab"
    assert (read.gateway.port, read.gateway.drain_timeout_s) == (9000, 120)
    assert (read.controller.tick_s, read.controller.node_grace_s) == (0.25, 90)
    assert read.console.keys == {"quit": "ctrl+x"}
    gpu, bastion, here = read.nodes
    assert gpu == NodeConfig(
        name="gpu-1",
        host="10.0.0.5",
        port=2222,
        user="ops",
        identity_file="~/.ssh/lab",
        jump="bastion",
        labels={"zone": "a", "rack": "7"},
        gpu_class="h100",
        fabric="ib0",
        serve_address="10.1.0.5",
        port_range=(20000, 20099),
        reserve=Reserve(4.0, 2.0),
        data_path=DataPath.TUNNEL,
        state_dir="~/llmgw",
        engines={"llamacpp": "/opt/llama-server"},
    )
    assert bastion.host == "bastion"
    assert (here.host, here.local) == ("", True)
    assert read.rank("standard") == 7
    assert read.rank("critical") is None
    assert (read.owners[0].gpus, read.owners[0].replicas) == (2, None)


def test_the_cluster_may_be_a_table() -> None:
    assert config('[cluster]\nname = "lab"').cluster == "lab"
    assert "cluster.nam" in messages('[cluster]\nnam = "lab"')[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[gatway]\n", ["line 1", "gatway", '"gateway"']),
        ('[gateway]\nport = "x"', ["line 2", "gateway.port", "whole number"]),
        ("[gateway]\nport = 70000", ["gateway.port", "65535"]),
        ("[gateway]\nmax_body_mb = 0", ["gateway.max_body_mb"]),
        ("[controller]\ntick = 0", ["controller.tick", "more than 0"]),
        ('[controller]\ntik = "1s"', ["controller.tik", '"tick"']),
        ("gateway = 3", ["gateway", "table"]),
        ("nodes = 3", ["nodes", "[[nodes]]"]),
        ("[console]\nkeys = { a = [] }", ["console.keys.a"]),
        ("[[nodes]]\n", ["node #1", "name"]),
        ('[[nodes]]\nname = "a b"', ['"a b"', "name"]),
        ('[[nodes]]\nname = "a"\n[[nodes]]\nname = "a"', ["line 4", '"a"', "twice"]),
        ('[[nodes]]\nname = "a"\nport = 0', ["port", "at least 1"]),
        ('[[nodes]]\nname = "a"\nhost = "-oProxy"', ["host"]),
        ('[[nodes]]\nname = "a"\nhost = "ops@h"', ["host"]),
        ('[[nodes]]\nname = "a"\nuser = "-x"', ["user"]),
        ('[[nodes]]\nname = "a"\npasword = "hunter2"', ["unknown key pasword"]),
        ('[[nodes]]\nname = "a"\nport_range = [5, 4]', ["port_range", "before"]),
        ('[[nodes]]\nname = "a"\nport_range = [80, 90]', ["port_range", "1024"]),
        ('[[nodes]]\nname = "a"\nport_range = "many"', ["port_range", "18000-18999"]),
        ('[[nodes]]\nname = "a"\nport_range = [true, 2000]', ["port_range"]),
        ('[[nodes]]\nname = "a"\ndata_path = "tunel"', ["data_path", '"tunnel"']),
        ('[[nodes]]\nname = "a"\nreserve = { memory = 1 }', ["reserve.memory", "memory_gb"]),
        ('[[nodes]]\nname = "a"\nreserve = { cores = -1 }', ["reserve.cores", "negative"]),
        ('[[nodes]]\nname = "a"\nengines = { vlm = "/x" }', ["vlm", '"vllm"']),
        ('[[nodes]]\nname = "a"\nstate_dir = "x"', ["state_dir", "absolute"]),
        ('[[nodes]]\nname = "a"\nlocal = true\nhost = "h"', ["host", "local"]),
        ('[[nodes]]\nname = "a"\nlocal = "yes"', ["local", "true or false"]),
        ('[[nodes]]\nname = "a"\njump = "a"', ["jump", "itself"]),
        ('[[nodes]]\nname = "a"\njump = "a b"', ["jump", "[user@]host[:port]"]),
        ('[[nodes]]\nname = "a"\njump = "h:99999"', ["jump"]),
        (
            '[[nodes]]\nname = "a"\njump = "b"\n[[nodes]]\nname = "b"\nlocal = true',
            ["jump", "this machine"],
        ),
        ("[[classes]]\nname = 'gold'", ["gold", "rank"]),
        ("[[classes]]\nname='g'\nrank=1\n[[classes]]\nname='g'\nrank=2", ["line 5", "twice"]),
        ("[[owners]]\nname = 'ada'\ngpus = -1", ["ada", "gpus", "negative"]),
        ("[[owners]]\nname = 'ada'\ntokens = 1", ["unknown key tokens"]),
    ],
)
def test_one_thing_wrong(text: str, words: list[str]) -> None:
    (message,) = messages(text)
    for word in words:
        assert word in message
    assert "hunter2" not in message


def test_jumps_in_a_circle() -> None:
    circle = "".join(f'[[nodes]]\nname = "{a}"\njump = "{b}"\n' for a, b in ("ab", "bc", "ca"))
    assert len(messages(circle)) == 3
    assert "a → b → c → a" in messages(circle)[0]
    chain = "".join(f'[[nodes]]\nname = "{a}"\njump = "{b}"\n' for a, b in ("ab", "bc"))
    assert len(config(chain).nodes) == 2


@pytest.mark.parametrize("jump", ["ops@b.example:2222", "10.0.0.1", "[fe80::1]:22", "b", "u@b"])
def test_jumps_elsewhere(jump: str) -> None:
    assert config(f'[[nodes]]\nname = "a"\njump = "{jump}"').nodes[0].jump == jump


def test_all_problems_at_once_in_the_order_of_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        '[[models]]\nname = "m"\nowner = "nobody"\n[[models.profiles]]\nname = "p"\n'
        'tp = -1\n[gateway]\nport = -1\n[[nodes]]\nname = "n"\ncolour = 1\n'
    )
    loaded = read_config(file, ENGINES)
    assert [p.key for p in loaded.problems] == [
        "source", "owner", "gpu_class", "tp", "gateway.port", "colour",
    ]  # fmt: skip
    assert loaded.problems[2].model == "m"
    assert loaded.problems[2].profile == "p"
    with pytest.raises(ConfigProblems, match=r"config.toml: line 1.*\(and 5 more problems\)") as e:
        load_config(file, ENGINES)
    assert e.value.problems == loaded.problems
    assert e.value.exit_code == 2


def test_a_key_that_cannot_be_read_is_told_of_once() -> None:
    text = '[[models]]\nname="m"\nsource="/w"\n[[models.profiles]]\nname="p"\ngpu_class=3\n'
    assert len(messages(text)) == 1


def test_where_the_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMGW_CONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "etc"))
    assert find_config(None) is None
    usual = tmp_path / "etc" / "llmgw" / "config.toml"
    usual.parent.mkdir(parents=True)
    usual.touch()
    assert find_config(None) == usual
    other = tmp_path / "other.toml"
    monkeypatch.setenv("LLMGW_CONFIG", str(other))
    with pytest.raises(InvalidInput, match=r"other.toml \(named by LLMGW_CONFIG\)"):
        find_config(None)
    other.touch()
    assert find_config(None) == other
    assert find_config(usual) == usual
    with pytest.raises(InvalidInput, match="no configuration file"):
        find_config(tmp_path / "missing.toml")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'# one\ncluster = "caf\xe9"\n')
    (tmp_path / "huge.toml").write_text("a = " + "[" * 5000)
    (tmp_path / "number.toml").write_text("a = " + "1" * 5000)
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbfa = 1")
    for name, word in {
        "latin.toml": "line 2: not UTF-8",
        "huge.toml": "TOML",
        "number.toml": "range",
        "bom.toml": "line 1",
        "missing.toml": "no such file",
        ".": "cannot be read",
    }.items():
        (problem,) = read_config(tmp_path / name, ENGINES).problems
        assert word in problem.message
        assert problem.file == str(tmp_path / name)


def test_windows_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b'cluster = "lab"\r\n[gateway]\r\nport = 1\r\n')
    read = read_config(file, ENGINES).config
    assert read is not None
    assert (read.cluster, read.path) == ("lab", file)


@given(st.binary(max_size=300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(content)
    loaded = read_config(file, ENGINES)
    assert (loaded.config is None) is bool(loaded.problems)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_none(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value if item is not None]
    return value


@given(tables)
@settings(max_examples=200, deadline=None)
def test_any_toml(raw: dict[str, object]) -> None:
    loaded = parse_config(tomli_w.dumps(_without_none(raw)), engines=ENGINES)
    assert (loaded.config is None) is bool(loaded.problems)
    assert all("\n" not in problem.message for problem in loaded.problems)
