from __future__ import annotations

from dataclasses import replace

from llmgw_core.catalog.differences import diff_models, diff_nodes
from llmgw_core.catalog.model import Catalog, Model, Profile
from llmgw_core.config import NodeConfig


def model(name: str, **changes: object) -> Model:
    return replace(Model(name, "/w", (Profile("p"),)), **changes)  # type: ignore[arg-type]


def test_models() -> None:
    old = Catalog((model("same"), model("gone"), model("other"), model("stamped")))
    new = Catalog(
        (model("stamped", changed_by="ada"), model("same"), model("other", owner="x"), model("new"))
    )
    diff = diff_models(old, new)
    assert [m.name for m in diff.added] == ["new"]
    assert [m.name for m in diff.removed] == ["gone"]
    assert [(a.owner, b.owner) for a, b in diff.changed] == [(None, "x")]
    assert [m.name for m in diff.unchanged] == ["stamped", "same"]
    assert not diff.empty
    assert diff_models(new, new).empty


def test_nodes() -> None:
    a, b = NodeConfig("a"), NodeConfig("b")
    diff = diff_nodes((a, b), (replace(b, port=22), a))
    assert diff.changed == ((b, replace(b, port=22)),)
    assert diff.unchanged == (a,)
