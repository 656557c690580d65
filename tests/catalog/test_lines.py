from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.catalog.lines import LineIndex

TEXT = '''\
cluster = "c"  # a comment

[[models]]
name = "a"
description = """
[[models]]
name = "not a key"
"""
scaling = { min = 1 }
  [[models.profiles]]
  name = "p"
  [[models.profiles]]
  name = "q"
  [models.profiles.env]
  A = "1"

[[ models ]] # second
"name" = "b"
slo.ttft_p99 = 1
'''


def test_lines() -> None:
    assert len(tomllib.loads(TEXT)["models"]) == 2
    index = LineIndex(TEXT)
    assert index.line(("cluster",)) == 1
    assert index.line(("models", 0, "name")) == 4
    assert index.line(("models", 0, "scaling", "min")) == 9
    assert index.line(("models", 0, "profiles", 1, "name")) == 13
    assert index.line(("models", 0, "profiles", 1, "env", "A")) == 15
    assert index.line(("models", 1)) == 17
    assert index.line(("models", 1, "name")) == 18
    assert index.line(("models", 1, "slo", "ttft_p99")) == 19
    assert index.line(("models", 1, "owner")) == 17
    assert index.line(("nowhere",)) is None


@given(st.text())
def test_any_text(text: str) -> None:
    assert LineIndex(text).line(("a", 0, "b")) is None or "a" in text
