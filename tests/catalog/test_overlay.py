"""Models added at run time: one readable file each, that comes back as it was put."""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from llmgw_core.catalog.canonical import model_toml
from llmgw_core.catalog.model import Model, Profile, Scaling
from llmgw_core.catalog.overlay import LoadedCatalog, Overlay, entry_text, load_catalog
from llmgw_core.config import Config, OwnerConfig
from llmgw_core.config_file import parse_config
from llmgw_core.errors import LlmgwError, NotFound
from tests.catalog.standins import ENGINES
from tests.catalog.strategies import models


def added(name: str, **changes: object) -> Model:
    model = Model(name, "/w/m.gguf", (Profile("cpu", engine="llamacpp"),), declared=False)
    return replace(model, **changes)  # type: ignore[arg-type]


def declared(name: str, **changes: object) -> Model:
    return added(name, declared=True, **changes)


@pytest.fixture
def overlay(tmp_path: Path) -> Overlay:
    return Overlay(tmp_path / "state" / "catalog.d")


def loaded(overlay: Overlay, *models: Model) -> LoadedCatalog:
    return load_catalog(Config(models=models), overlay, ENGINES)


@given(models())
@settings(max_examples=150, deadline=None)
def test_a_model_comes_back_as_it_was_put(model: Model) -> None:
    with tempfile.TemporaryDirectory() as folder:
        overlay = Overlay(Path(folder) / "catalog.d")
        overlay.put(model)
        assert overlay.load() == ((model,), ())
        assert [p.parent for p in overlay.directory.iterdir()] == [overlay.directory]
        overlay.remove(model.name)
        assert list(overlay.directory.iterdir()) == []


@given(models())
@settings(max_examples=100, deadline=None)
def test_its_file_means_the_same_in_the_configuration(model: Model) -> None:
    for text in (entry_text(model, 3), model_toml(model)):
        read = parse_config(text, engines=ENGINES)
        assert read.problems == ()
        assert read.config is not None
        assert read.config.models == (
            replace(model, declared=True, changed_by=None, changed_at=None),
        )


def test_what_a_person_reads(overlay: Overlay) -> None:
    overlay.put(added("org/m:7b", scaling=Scaling(2, 2), changed_by="ada", changed_at=1790000000.0))
    (path,) = overlay.directory.iterdir()
    assert path.name == "org%2Fm%3A7b.toml"
    assert path.read_text() == (
        "# Added at run time and written by llmgw: change it there, or copy it into config.toml.\n"
        "#: added = 1\n"
        '#: changed_by = "ada"\n'
        "#: changed_at = 1790000000.0  # 2026-09-21 14:13:20 UTC\n"
        "\n"
        "[[models]]\n"
        'name = "org/m:7b"\n'
        'source = "/w/m.gguf"\n'
        "scaling = { min = 2 }\n"
        "\n"
        "[[models.profiles]]\n"
        'name = "cpu"\n'
        'engine = "llamacpp"\n'
    )
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(overlay.directory.stat().st_mode) == 0o700


def test_order_of_adding_outlives_changes(overlay: Overlay) -> None:
    for name in ("z", "a", "m"):
        overlay.put(added(name))
    overlay.put(added("z", owner="ada"))
    overlay.remove("a")
    overlay.put(added("a"))
    assert [m.name for m in overlay.load()[0]] == ["z", "m", "a"]


def test_nothing_added_yet(overlay: Overlay) -> None:
    assert overlay.load() == ((), ())
    with pytest.raises(NotFound, match='"m"'):
        overlay.remove("m")


def test_a_bad_file_is_told_of_and_the_rest_is_kept(overlay: Overlay) -> None:
    overlay.put(added("good"))
    bad = {
        "broken.toml": b"[[models",
        "binary.toml": b"\xff\xfe\x00",
        "empty.toml": b"",
        "two.toml": b'[[models]]\nname="x"\n[[models]]\nname="y"\n',
        "half.toml": b'[[models]]\nname = "half"\n',
        "other.toml": b'colour = "red"\n',
    }
    for name, content in bad.items():
        (overlay.directory / name).write_bytes(content)
    (overlay.directory / "folder.toml").mkdir()
    (overlay.directory / "notes.txt").write_text("not ours")
    (overlay.directory / ".half-written.new").write_text("[[models")
    found, problems = overlay.load()
    assert [m.name for m in found] == ["good"]
    assert {Path(p.file or "").name for p in problems} == {*bad, "folder.toml"}
    overlay.put(added("better"))
    assert [m.name for m in overlay.load()[0]] == ["good", "better"]


def test_a_file_with_a_name_of_its_own_is_changed_in_place(overlay: Overlay) -> None:
    overlay.directory.mkdir(parents=True)
    mine = overlay.directory / "mine.toml"
    mine.write_text(model_toml(added("m")))
    overlay.put(added("m", owner="ada"))
    assert list(overlay.directory.iterdir()) == [mine]
    assert overlay.load()[0][0].owner == "ada"
    overlay.remove("m")
    assert overlay.load() == ((), ())


def test_a_file_that_holds_another_model_is_left_alone(overlay: Overlay) -> None:
    overlay.directory.mkdir(parents=True)
    (overlay.directory / "m.toml").write_text(model_toml(added("other")))
    overlay.put(added("m"))
    overlay.put(added("m", owner="ada"))
    assert {m.name: m.owner for m in overlay.load()[0]} == {"other": None, "m": "ada"}
    overlay.remove("m")
    assert [m.name for m in overlay.load()[0]] == ["other"]


def test_two_files_for_one_name(overlay: Overlay) -> None:
    overlay.put(added("m"))
    (overlay.directory / "copy.toml").write_text(model_toml(added("m", owner="ada")))
    found, (problem,) = overlay.load()
    assert [m.owner for m in found] == [None]
    assert "m.toml" in problem.message
    assert problem.model == "m"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LlmgwError, match='"m" could not be saved'):
        Overlay(tmp_path / "file" / "catalog.d").put(added("m"))


def test_a_failed_write_leaves_the_old_file(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay.put(added("m"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(LlmgwError, match="No space left"):
        overlay.put(added("m", owner="ada"))
    assert overlay.load() == ((added("m"),), ())
    assert len(list(overlay.directory.iterdir())) == 1


def test_declared_come_first_then_added_in_order(overlay: Overlay) -> None:
    overlay.put(added("b"))
    overlay.put(added("a"))
    result = loaded(overlay, declared("z"))
    assert [m.name for m in result.catalog] == ["z", "b", "a"]
    assert result.problems == ()


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (added("d"), "declared"),
        (added("x"), "alias"),
        (added("n", aliases=("d",)), "alias"),
        (added("n", aliases=("x",)), "alias"),
        (added("n", aliases=("n",)), "alias"),
        (added("n", aliases=("y", "y")), "twice"),
        (added("n", profiles=(Profile("p", engine="gone"),)), "engine"),
        (added("n", profiles=(Profile("p"),)), "gpu_class"),
    ],
)
def test_what_does_not_go_with_the_declared_is_left_out(
    overlay: Overlay, model: Model, word: str
) -> None:
    overlay.put(model)
    result = loaded(overlay, declared("d", aliases=("x",)))
    assert [m.name for m in result.catalog] == ["d"]
    assert word in result.problems[0].message
    assert result.problems[0].model == model.name
    assert (result.problems[0].file or "").endswith(".toml")


@pytest.mark.parametrize("change", [{"owner": "gone"}, {"fallbacks": ("gone",)}])
def test_what_only_lost_a_reference_is_told_of_and_kept(
    overlay: Overlay, change: dict[str, object]
) -> None:
    overlay.put(added("first"))
    overlay.put(added("n", **change))
    result = load_catalog(Config(owners=(OwnerConfig("ada"),)), overlay, ENGINES)
    assert [m.name for m in result.catalog] == ["first", "n"]
    (problem,) = result.problems
    assert (problem.model, Path(problem.file or "").name) == ("n", "n.toml")
    assert "gone" in problem.message


def test_the_earlier_of_two_added_keeps_an_alias(overlay: Overlay) -> None:
    overlay.put(added("z", aliases=("x",)))
    overlay.put(added("a", aliases=("x",)))
    result = loaded(overlay)
    assert [m.name for m in result.catalog] == ["z"]
    assert '"z"' in result.problems[0].message
