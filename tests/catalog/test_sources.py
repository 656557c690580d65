"""What a source means."""

from __future__ import annotations

import pytest

from llmgw_core.catalog.sources import (
    HubSource,
    MirrorSource,
    PathSource,
    Source,
    UrlSource,
    mirror_source,
    read_source,
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("mirror:qwen/v1", MirrorSource("qwen", "v1")),
        ("mirror:qwen/v1/", MirrorSource("qwen", "v1")),
        ("mirror:/qwen/v1/", MirrorSource("qwen", "v1")),
        ("mirror:/qwen/v1/a b.gguf", MirrorSource("qwen", "v1", "a b.gguf")),
        ("mirror:qwen/v1/sub/a.gguf", MirrorSource("qwen", "v1", "sub/a.gguf")),
        ("mirror:qwen", None),
        ("mirror:qwen/../a.gguf", None),
        ("mirror://v1/a.gguf", None),
        ("hf:org/repo", HubSource("org/repo")),
        ("hf:org/repo@main:*Q4_K_M*", HubSource("org/repo", "main", "*Q4_K_M*")),
        ("hf:org/repo:a.gguf", HubSource("org/repo", "", "a.gguf")),
        ("hf:org", None),
        ("https://host/dir/a.gguf?x=1", UrlSource("https://host/dir/a.gguf?x=1")),
        ("https:///a.gguf", None),
        ("/srv/a.gguf", PathSource("/srv/a.gguf")),
        ("~/models/", PathSource("~/models/")),
    ],
)
def test_a_source_is_read(text: str, meant: Source | None) -> None:
    assert read_source(text) == meant


def test_a_mirror_source_is_written_as_it_is_read() -> None:
    assert mirror_source("qwen", "v1", "a.gguf") == "mirror:/qwen/v1/a.gguf"
    assert mirror_source("qwen", "v1") == "mirror:/qwen/v1/"
    assert read_source(mirror_source("qwen", "v1", "a.gguf")) == MirrorSource(
        "qwen", "v1", "a.gguf"
    )


def test_the_file_of_a_url_is_told_without_its_query() -> None:
    assert UrlSource("https://host/dir/a.gguf?token=x").file == "a.gguf"
