"""Names that the mirror takes, and what a pull is told."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.catalog.sources import HubSource, MirrorSource, PathSource, UrlSource
from llmgw_core.errors import InvalidInput
from llmgw_core.mirror.names import (
    PullSource,
    check_file,
    check_files,
    check_model,
    check_version,
    default_model,
    default_version,
    file_trouble,
    read_mirror,
    read_pull,
    shown,
)


@pytest.mark.parametrize("name", ["qwen2.5-7b", "A", "0", "v1.0+cu", "2026-01-02", "a" * 96])
def test_good_names(name: str) -> None:
    assert check_model(name) == name
    assert check_version(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".hidden",
        "-rf",
        "a/b",
        "a\\b",
        "a b",
        "a\n",
        "ä",
        "a" * 97,
        "~",
        "a\0",
        "a:b",
    ],
)
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_model(name)


@pytest.mark.parametrize("name", ["a.gguf", "sub/a b.gguf", "Ω.gguf", "a/b/c.json", "a#?%.gguf"])
def test_good_files(name: str) -> None:
    assert check_file(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "", "/etc/passwd", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.git/b", "-a", "~/a",
        "a\\b", "a\nb", "a\x1b[2J", "a\u202eb", "a\ud800", " a", "a ", "é" * 121, "/".join("a" * 9),
        "/".join(["a" * 200] * 5),
    ],
)  # fmt: skip
def test_files_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be a file's name"):
        check_file(name)


@given(st.text(max_size=60))
def test_a_good_file_never_leaves_its_folder(name: str) -> None:
    if not file_trouble(name):
        parts = name.split("/")
        assert all(part and part not in {".", ".."} for part in parts)
        assert not name.startswith(("/", "-", "."))
        assert name.isprintable() or " " in name


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a.gguf", "A.gguf"], "differ only in case"),
        (["\u00e9.gguf", "e\u0301.gguf"], "differ only in case"),
        (["a", "a/b"], "a file and the folder of"),
        (["A/c", "a"], "a file and the folder of"),
        (["ok", "../x"], "cannot be"),
    ],
)
def test_files_in_each_others_way_are_refused(names: list[str], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        check_files(names)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("hf:org/repo", HubSource("org/repo")),
        ("hf:org/repo@v1:*Q4*", HubSource("org/repo", "v1", "*Q4*")),
        (" https://host/a.gguf?x=1\n", UrlSource("https://host/a.gguf?x=1")),
        ("/srv/a.gguf", PathSource("/srv/a.gguf")),
        ("./models/", PathSource("./models/")),
    ],
)
def test_a_pull_is_read(text: str, meant: PullSource) -> None:
    assert read_pull(text) == meant


@pytest.mark.parametrize("text", ["", "hf:org", "hf:", "mirror:a/b", "https:///a", "http://host/"])
def test_what_cannot_be_pulled_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        read_pull(text)


def test_a_refusal_does_not_repeat_a_login() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_pull("https://me:secret@host/?token=secret")
    assert "secret" not in str(caught.value)


def test_an_address_is_shown_without_its_secrets() -> None:
    assert shown("https://me:pw@host:8/a%20b.gguf?sig=x#y") == "https://host:8/a%20b.gguf"
    assert shown("https://host?sig=a/b@c") == "https://host"
    assert shown("hf:org/repo@main:a") == "hf:org/repo@main:a"


def test_a_version_in_the_mirror_is_read() -> None:
    assert read_mirror("mirror:m/v/a.gguf") == MirrorSource("m", "v", "a.gguf")
    assert read_mirror("m/v") == MirrorSource("m", "v")
    for bad in ("m", "m/..", "mirror:m/v/../x", "mirror:.m/v", "m/v/.x"):
        with pytest.raises(InvalidInput):
            read_mirror(bad)


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("hf:Qwen/Qwen2.5-7B_Instruct-GGUF", "qwen2.5-7b-instruct-gguf"),
        ("https://host/d/My%20Model.Q4_K_M.gguf?x", "my-model.q4-k-m"),
        ("/srv/Big-00001-of-00003.GGUF", "big"),
        ("/srv/Folder v1.2/", "folder-v1.2"),
        ("/srv/ÄÖ-1.gguf", "ao-1"),
    ],
)
def test_a_model_is_named_for_what_is_pulled(text: str, model: str) -> None:
    assert default_model(read_pull(text)) == check_model(model)


def test_what_gives_no_name_asks_for_one() -> None:
    with pytest.raises(InvalidInput, match="name one"):
        default_model(PathSource("/srv/模型.gguf"))


def test_a_version_is_named_for_the_commit_or_the_day() -> None:
    assert default_version("0123456789abcdef", date(2026, 1, 2)) == "0123456789ab"
    assert default_version("", date(2026, 1, 2)) == "2026-01-02"
