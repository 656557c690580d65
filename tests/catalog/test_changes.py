"""Changes: what an operator asked for, nothing else, and a reason where it cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from llmgw_core.catalog import changes
from llmgw_core.catalog.canonical import model_toml
from llmgw_core.catalog.changes import UNSET
from llmgw_core.catalog.model import Catalog, Model, Profile, Scaling
from llmgw_core.config import Config, OwnerConfig
from llmgw_core.errors import InvalidInput, NotFound, Refused
from tests.catalog.standins import ENGINES

ADDED = Model("m", "/w/m.gguf", (Profile("cpu", engine="llamacpp"),), declared=False)
DECLARED = replace(ADDED, name="d", declared=True)
CONFIG = Config(owners=(OwnerConfig("ada"),))
WHO = {"actor": "ada", "now": 100.0}

scale = partial(changes.scale, actor="ada", now=100.0)
set_resources = partial(changes.set_resources, actor="ada", now=100.0)
add = partial(changes.add, config=CONFIG, actor="ada", now=100.0, engines=ENGINES)
edit = partial(changes.edit, config=CONFIG, actor="ada", now=100.0, engines=ENGINES)


def catalog(scaling: Scaling | None = None, **more: object) -> Catalog:
    model = replace(ADDED, scaling=scaling or Scaling(), **more)  # type: ignore[arg-type]
    return Catalog((DECLARED, model))


STOPPED, ALWAYS2, DEMAND3 = Scaling(0, 0), Scaling(2, 2), Scaling(0, 3, 60.0)


@pytest.mark.parametrize(
    ("before", "delta", "after"),
    [
        (STOPPED, 1, Scaling(1, 1)),
        (STOPPED, -1, STOPPED),
        (ALWAYS2, 1, Scaling(3, 3)),
        (ALWAYS2, -1, Scaling(1, 1)),
        (Scaling(1, 1), -1, STOPPED),
        (ALWAYS2, -5, STOPPED),
        (DEMAND3, 1, Scaling(0, 4, 60.0)),
        (DEMAND3, -1, Scaling(0, 2, 60.0)),
        (Scaling(0, 1), -1, Scaling(0, 1)),
    ],
)
def test_one_more_and_one_less(before: Scaling, delta: int, after: Scaling) -> None:
    assert scale(catalog(before), "m", delta=delta).scaling == after


@pytest.mark.parametrize(
    ("before", "mode", "replicas", "after"),
    [
        (STOPPED, "always", 2, ALWAYS2),
        (STOPPED, "always", 0, Scaling(1, 1)),
        (STOPPED, "always", None, Scaling(1, 1)),
        (DEMAND3, "always", None, Scaling(3, 3, 60.0)),
        (ALWAYS2, "ondemand", None, Scaling(0, 2)),
        (ALWAYS2, "On demand", 4, Scaling(0, 4)),
        (ALWAYS2, "stopped", None, STOPPED),
        (ALWAYS2, None, 5, Scaling(5, 5)),
        (ALWAYS2, None, 0, STOPPED),
        (DEMAND3, None, 5, Scaling(0, 5, 60.0)),
        (STOPPED, None, 2, ALWAYS2),
    ],
)
def test_mode_and_count(
    before: Scaling, mode: str | None, replicas: int | None, after: Scaling
) -> None:
    assert scale(catalog(before), "m", mode=mode, replicas=replicas).scaling == after


def test_idle_time() -> None:
    assert scale(catalog(DEMAND3), "m", idle_s=30).scaling == Scaling(0, 3, 30)
    assert scale(catalog(DEMAND3), "m", idle_s=0).scaling == Scaling(0, 3, 900)
    assert scale(catalog(ALWAYS2), "m", mode="ondemand", idle_s=30).scaling == Scaling(0, 2, 30)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"mode": "sometimes"},
        {"replicas": -1},
        {"idle_s": -1.0},
        {"idle_s": float("nan")},
        {"delta": 1, "replicas": 2},
        {"delta": 10**9},
        {"mode": "always", "replicas": 10**9},
    ],
)
def test_scalings_that_cannot_be(asked: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        scale(catalog(), "m", **asked)  # type: ignore[arg-type]


def test_a_change_says_who_and_when_and_no_change_says_nothing() -> None:
    models = catalog(ALWAYS2, changed_by="bob", changed_at=1.0)
    same = scale(models, "m", replicas=2)
    assert same is models.find("m")
    changed = scale(models, "m", replicas=3)
    assert (changed.changed_by, changed.changed_at) == ("ada", 100.0)
    assert replace(changed, scaling=ALWAYS2, changed_by="bob", changed_at=1.0) == same


def test_by_alias() -> None:
    assert scale(catalog(aliases=("x",)), "x", delta=1).name == "m"


DOERS: list[Callable[[Catalog, str], Model]] = [
    lambda c, n: scale(c, n, delta=1),
    lambda c, n: changes.set_class(c, n, "critical", CONFIG, actor="a", now=1.0),
    lambda c, n: changes.set_owner(c, n, "ada", CONFIG, actor="a", now=1.0),
    lambda c, n: set_resources(c, n, cpu_cores=1),
    lambda c, n: edit(c, n, model_toml(replace(ADDED, name=n))),
    lambda c, n: changes.remove(c, n),
]


@pytest.mark.parametrize("do", DOERS)
def test_a_declared_model_is_changed_where_it_stands(do: Callable[[Catalog, str], Model]) -> None:
    with pytest.raises(Refused, match=r'"d" is declared in config.toml; change it there'):
        do(catalog(), "d")
    with pytest.raises(NotFound, match="no model"):
        do(catalog(), "zzz")
    assert do(catalog(), "m").name == "m"


def test_class_and_owner() -> None:
    assert changes.set_class(catalog(), "m", "critical", CONFIG, **WHO).model_class == "critical"  # type: ignore[arg-type]
    owned = changes.set_owner(catalog(), "m", "ada", CONFIG, actor="a", now=1.0)
    assert owned.owner == "ada"
    freed = changes.set_owner(Catalog((owned,)), "m", None, CONFIG, actor="a", now=1.0)
    assert freed.owner is None
    with pytest.raises(InvalidInput, match='did you mean "critical"'):
        changes.set_class(catalog(), "m", "critcal", CONFIG, actor="a", now=1.0)
    with pytest.raises(InvalidInput, match="bob"):
        changes.set_owner(catalog(), "m", "bob", CONFIG, actor="a", now=1.0)


def test_resources() -> None:
    (profile,) = set_resources(catalog(), "m", min_memory_gb=2, cpu_cores=3).profiles
    assert (profile.min_memory_gb, profile.cpu_cores) == (2.0, 3.0)
    sized = Catalog((replace(ADDED, profiles=(profile,)),))
    (profile,) = set_resources(sized, "m", "cpu", min_memory_gb=None, cpu_cores=UNSET).profiles
    assert (profile.min_memory_gb, profile.cpu_cores) == (None, 3.0)
    with pytest.raises(InvalidInput, match="nothing to change"):
        set_resources(catalog(), "m")
    with pytest.raises(InvalidInput, match="cpu_cores"):
        set_resources(catalog(), "m", cpu_cores=-1.0)
    with pytest.raises(InvalidInput, match="min_memory_gb"):
        set_resources(catalog(), "m", min_memory_gb=float("inf"))
    with pytest.raises(NotFound, match='it has "cpu"'):
        set_resources(catalog(), "m", "big", cpu_cores=1)
    two = (*ADDED.profiles, Profile("big", engine="llamacpp"))
    with pytest.raises(InvalidInput, match="several profiles"):
        set_resources(catalog(profiles=two), "m", cpu_cores=1)
    assert set_resources(catalog(profiles=two), "m", "big", cpu_cores=1).profiles[0] == two[0]


def text(**changed: object) -> str:
    return model_toml(replace(ADDED, **changed))  # type: ignore[arg-type]


def test_add() -> None:
    model = add(catalog(), text(name="new", aliases=("n",), fallbacks=("m",)))
    assert (model.declared, model.changed_by, model.changed_at) == (False, "ada", 100.0)
    for name, word in (("d", "declared"), ("m", "edit")):
        with pytest.raises(Refused, match=word):
            add(catalog(), text(name=name))


@pytest.mark.parametrize(
    ("toml", "word"),
    [
        ("", "holds 0"),
        (text(name="a") + text(name="b"), "holds 2"),
        ("[[models", "TOML"),
        ('cluster = "x"\n' + text(name="a"), "cluster"),
        ('[[models]]\nname = "a"\n', "1 more problem"),
        (text(name="a", fallbacks=("zz",)), "zz"),
        (text(name="a", aliases=("m",)), "alias"),
        (text(name="a", model_class="gold"), "gold"),
        (text(name="a", owner="bob"), "bob"),
        (text(name="a", profiles=(Profile("p"),)), "gpu_class"),
        (text(name="a\udc80"), "TOML"),
    ],
)
def test_texts_that_cannot_be_added(toml: str, word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        add(catalog(), toml)


def test_a_new_name_must_not_be_anothers_alias() -> None:
    with pytest.raises(InvalidInput, match="alias"):
        add(catalog(aliases=("x",)), text(name="x"))


def test_a_problem_that_was_there_before_does_not_block() -> None:
    broken = replace(ADDED, name="old", fallbacks=("gone",))
    assert add(Catalog((broken,)), text(name="new")).name == "new"
    assert edit(Catalog((broken, ADDED)), "m", text(owner="ada")).owner == "ada"


def test_edit() -> None:
    models = catalog(changed_by="bob", changed_at=1.0)
    assert edit(models, "m", text()) is models.find("m")
    edited = edit(models, "m", text(description="new"))
    assert (edited.description, edited.changed_by) == ("new", "ada")
    with pytest.raises(InvalidInput, match="rename"):
        edit(models, "m", text(name="other"))


def test_an_edit_must_not_break_another_model() -> None:
    user = replace(ADDED, name="user", fallbacks=("x",))
    models = Catalog((replace(ADDED, aliases=("x",)), user))
    with pytest.raises(InvalidInput, match=r'"user".*"x"'):
        edit(models, "m", text())


def test_remove() -> None:
    assert changes.remove(catalog(), "m").name == "m"
    user = replace(ADDED, name="user", fallbacks=("m",))
    with pytest.raises(Refused, match='fallback of "user"'):
        changes.remove(Catalog((ADDED, user)), "m")
