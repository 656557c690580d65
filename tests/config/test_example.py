"""config.example.toml: every key, each with its default and a line of why."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from llmgw_core.catalog.model import Model, Profile
from llmgw_core.config import Config, NodeConfig, OwnerConfig
from llmgw_core.config_file import parse_config
from tests.catalog.standins import ENGINES
from tests.config.keys import all_keys

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "config.example.toml").read_text()
KEY = re.compile(r"# (\[\[?[a-z.]+\]\]?|[a-z_]+ = .*)")
OPTIONAL = re.compile(r"No default\.$")


def uncommented(*, defaults_only: bool = False) -> str:
    """The example with its commented keys in force; all, or only required ones and defaults."""
    lines: list[str] = []
    why = ""
    for line in TEXT.splitlines():
        key = KEY.fullmatch(line)
        if not (key and defaults_only and OPTIONAL.search(why)):
            lines.append(key[1] if key else line)
        why = line
    return "\n".join(lines)


def config(text: str) -> Config:
    loaded = parse_config(text, engines=ENGINES)
    assert loaded.problems == ()
    assert loaded.config is not None
    return loaded.config


def test_as_it_stands_it_is_the_defaults() -> None:
    assert config(TEXT) == Config()


def test_every_key_with_a_default_shows_that_default() -> None:
    text = uncommented(defaults_only=True).replace('name = "gpu"', 'name = "gpu"\ngpu_class = "g"')
    read = config(text)
    assert read.nodes == (NodeConfig(name="gpu-1", host="gpu-1"),)
    assert read.owners == (OwnerConfig("research"),)
    (model,) = read.models
    profile = Profile("gpu", gpu_class="g", gpus_per_node=1)
    assert model == Model("chat", model.source, (profile,))
    assert replace(read, nodes=(), owners=(), models=()) == Config()


def test_every_key_can_be_used_and_none_without_a_default_is_at_its_default() -> None:
    text = uncommented().replace('fallbacks = ["small"]', "fallbacks = []")
    read = config(text)
    (owner,), (node,), (model,) = read.owners, read.nodes, read.models
    assert None not in [getattr(owner, f.name) for f in fields(owner)]
    assert None not in [getattr(node, f.name) for f in fields(node)]
    stamps = {"changed_by", "changed_at"}
    assert None not in [getattr(model, f.name) for f in fields(model) if f.name not in stamps]
    assert None not in [getattr(model.profiles[0], f.name) for f in fields(Profile)]
    assert read.console.theme is not None


@pytest.mark.parametrize("path", ["config.example.toml", "docs/configuration.md"])
def test_every_key_is_there_and_no_other(path: str) -> None:
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        rows = re.findall(r"^\| `([a-z_0-9]+)`", text, re.M)
        shown = set(rows)
    else:
        shown = set(re.findall(r"(?:^|[{,]) ?([a-z_0-9]+) = ", uncommented(), re.M))
        shown -= {"quit", "zone", "llamacpp"}
    known = all_keys()
    assert known - shown == set()
    assert shown - known == set()
