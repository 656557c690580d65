"""Pulls from a model hub on loopback, which redirects to another server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw_core.errors import InvalidInput, LlmgwError, NotFound, Refused
from llmgw_core.mirror.pull import PullRequest, pull
from llmgw_core.mirror.store import Store
from llmgw_core.mirror.versions import MirrorVersion

from .filled import digest, tree
from .origin import COMMIT, Origin, publish, serving

TOKEN = "hf_planted_0123456789"
WEIGHTS = bytes(range(256)) * 2000
FILES = {
    ".gitattributes": b"x",
    "README.md": b"# m",
    "m-Q4_K_M.gguf": WEIGHTS,
    "m-Q8_0-00001-of-00002.gguf": WEIGHTS[1:],
    "m-Q8_0-00002-of-00002.gguf": WEIGHTS[2:],
    "mmproj-F16.gguf": WEIGHTS[3:],
}


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hub() -> Iterator[Origin]:
    with serving() as made:
        yield made


@pytest.fixture
def cdn() -> Iterator[Origin]:
    with serving() as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


async def get(store: Store, hub: Origin, source: str, version: str = "") -> MirrorVersion:
    return await pull(store, PullRequest(source, version=version, endpoint=hub.base))


async def test_a_pattern_of_a_repository_is_pulled(hub: Origin, cdn: Origin, store: Store) -> None:
    publish(hub, cdn, "org/My-Model-GGUF", FILES)
    made = await get(store, hub, "hf:org/My-Model-GGUF@main:*Q4_K_M*")
    assert made.name == "my-model-gguf/0123456789ab"
    assert made.revision == COMMIT
    assert made.source == "hf:org/My-Model-GGUF@main:*Q4_K_M*"
    assert [(file.file, file.sha256) for file in made.files] == [("m-Q4_K_M.gguf", digest(WEIGHTS))]
    assert cdn.sent == len(WEIGHTS)
    both = await get(store, hub, "hf:org/My-Model-GGUF:*Q8_0*,*mmproj*")
    assert len(both.files) == 4
    assert both.complete


async def test_a_whole_repository_of_tensors_is_pulled(
    hub: Origin, cdn: Origin, store: Store
) -> None:
    files = {"config.json": b"{}", "model.safetensors": WEIGHTS, "pytorch_model.bin": WEIGHTS[1:]}
    publish(hub, cdn, "org/m", files)
    made = await get(store, hub, "hf:org/m", "v1")
    assert {file.file for file in made.files} == {"config.json", "model.safetensors"}
    assert store.path("m", "v1", "config.json").read_bytes() == b"{}"


async def test_several_quantisations_ask_which(hub: Origin, cdn: Origin, store: Store) -> None:
    publish(hub, cdn, "org/m", FILES)
    with pytest.raises(Refused, match=r"2 models .*\*Q4_K_M\*, \*Q8_0\*; say which"):
        await get(store, hub, "hf:org/m")
    with pytest.raises(NotFound, match="no file that matches \\*Q5\\*; the nearest"):
        await get(store, hub, "hf:org/m:*Q5*")
    assert store.versions() == ()


async def test_what_the_hub_does_not_have_is_said(hub: Origin, cdn: Origin, store: Store) -> None:
    publish(hub, cdn, "org/m", FILES)
    with pytest.raises(NotFound, match="has no repository org/other; check its name"):
        await get(store, hub, "hf:org/other")
    hub.always["/api/models/org/m/revision/v9"] = (404, {"X-Error-Code": "RevisionNotFound"})
    with pytest.raises(NotFound, match="hf:org/m has no revision 'v9'"):
        await get(store, hub, "hf:org/m@v9")
    hub.always["/api/models/org/down"] = (502, {})
    with pytest.raises(LlmgwError, match="answers 502 about hf:org/down"):
        await get(store, hub, "hf:org/down")
    with pytest.raises(LlmgwError):
        await get(store, hub, "hf:org/..")


async def test_no_hub_is_one_sentence(store: Store) -> None:
    with serving() as gone:
        pass
    with pytest.raises(LlmgwError, match=r"the hub http://127\S+ cannot be reached \(ConnectE"):
        await get(store, gone, "hf:org/m")


@pytest.mark.parametrize(
    ("token", "said"),
    [("", r"is gated; accept its terms at \S+/org/m and set HF_TOKEN"),
     ("hf_other", "is gated and its owner has not let this token in")],
)  # fmt: skip
async def test_a_gated_repository_says_what_to_do(
    hub: Origin, cdn: Origin, store: Store, monkeypatch: pytest.MonkeyPatch,
    token: str, said: str,
) -> None:  # fmt: skip
    publish(hub, cdn, "org/m", FILES)
    hub.token = TOKEN
    hub.gated = {f"/org/m/resolve/{COMMIT}/m-Q4_K_M.gguf"}
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(Refused, match=said) as caught:
        await get(store, hub, "hf:org/m:*Q4*")
    assert cdn.sent == 0
    assert token == "" or token not in str(caught.value)
    hub.gated.add("/api/models/org/m")
    with pytest.raises(Refused, match=said):
        await get(store, hub, "hf:org/m:*Q4*")


async def test_a_token_goes_to_the_hub_alone_and_is_written_nowhere(
    hub: Origin, cdn: Origin, store: Store, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    publish(hub, cdn, "org/m", FILES)
    hub.token = TOKEN
    hub.gated = {f"/org/m/resolve/{COMMIT}/m-Q4_K_M.gguf", "/api/models/org/m"}
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    cdn.cuts = [100_000]
    made = await get(store, hub, "hf:org/m:*Q4*")
    assert made.complete
    assert any(a.headers.get("authorization") == f"Bearer {TOKEN}" for a in hub.asked)
    assert len(cdn.asked) == 2
    assert not any("authorization" in asked.headers for asked in cdn.asked)
    assert TOKEN not in repr(made)
    assert not any(TOKEN.encode() in text for text in tree(store.root).values())
    assert not any(b"X-Signature" in text for text in tree(store.root).values())
    assert TOKEN not in caplog.text


async def test_a_token_that_the_hub_does_not_take_is_said(
    hub: Origin, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.always["/api/models/org/m"] = (
        401, {"X-Error-Message": "Invalid credentials in Authorization header"},
    )  # fmt: skip
    with pytest.raises(Refused, match="does not accept the token; check HF_TOKEN") as caught:
        await get(store, hub, "hf:org/m")
    assert TOKEN not in str(caught.value)


async def test_a_signature_that_ran_out_is_asked_for_again(
    hub: Origin, cdn: Origin, store: Store
) -> None:
    publish(hub, cdn, "org/m", FILES)
    cdn.cuts = [100_000]
    cdn.answers = [(403, {})]
    made = await get(store, hub, "hf:org/m:*Q4*")
    assert made.complete
    assert cdn.sent == len(WEIGHTS)


async def test_content_that_is_not_the_hubs_is_refused(
    hub: Origin, cdn: Origin, store: Store
) -> None:
    publish(hub, cdn, "org/m", FILES)
    cdn.content[f"/blobs/{digest(WEIGHTS)}"] = WEIGHTS[::-1]
    with pytest.raises(LlmgwError, match="its checksum is"):
        await get(store, hub, "hf:org/m:*Q4*")
    assert not store.need("m", COMMIT[:12]).complete


@pytest.mark.parametrize("name", ["../x.gguf", "a\\b.gguf", "a\nb.gguf"])
async def test_names_that_lead_out_of_the_store_are_refused(
    hub: Origin, cdn: Origin, store: Store, name: str
) -> None:
    publish(hub, cdn, "org/m", {name: WEIGHTS})
    with pytest.raises((InvalidInput, NotFound)):
        await get(store, hub, "hf:org/m")
    assert cdn.sent == 0
    assert tree(store.root) == {}
