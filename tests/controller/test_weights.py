"""What a model's source asks of the mirror and the nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from llmgw_core.api.views import MirrorView
from llmgw_core.catalog.model import Mode, Model, Scaling
from llmgw_core.config import Config, MirrorConfig, NodeConfig
from llmgw_core.controller.keeper import Keeper
from llmgw_core.controller.mirror_keeper import MirrorKeeper, is_loopback
from llmgw_core.controller.pull_book import PullBook
from llmgw_core.controller.pulls import PullRequest
from llmgw_core.controller.weights import WeightsKeeper, wanted_files
from llmgw_core.errors import EngineFailed
from llmgw_core.ledger.events import EventLog
from llmgw_core.mirror.link import Address
from llmgw_core.mirror.versions import FileState, MirrorFile, MirrorVersion
from llmgw_core.nodes.api import NodeHandle
from llmgw_core.nodes.weights import HeldFile, HeldVersion
from tests.controller.worlds import CPU


def file(name: str, state: FileState = FileState.DONE, done: int = 10) -> MirrorFile:
    return MirrorFile(name, done, 10, state, "0" * 64)


class Shelf:
    """A mirror that holds what it is told, and notes what it is asked to pull."""

    def __init__(self, *versions: MirrorVersion) -> None:
        self.versions = versions
        self.root = Path("/nonexistent")
        self.wanted: list[str] = []

    def view(self) -> MirrorView:
        return MirrorView()

    def find(self, source: str) -> MirrorVersion | None:
        return next((v for v in self.versions if v.source == source), None)

    def pulling(self, source: str) -> str:
        return "34 % of 4.6 GB" if source in self.wanted else ""

    def want(self, source: str) -> None:
        self.wanted.append(source)

    async def address_for(self, node: NodeConfig) -> str | None:
        return None

    def token(self, model: str, version: str) -> str:
        return "t"

    def attach(self, events: EventLog, kick: Callable[[], None]) -> None:
        pass

    async def run(self) -> None:
        pass

    async def stop(self) -> None:
        pass


def model(source: str, mode: Mode = Mode.ALWAYS) -> Model:
    return Model("m", source, (CPU,), scaling=Scaling.for_mode(mode))


QWEN = MirrorVersion("qwen", "v1", (file("a.gguf"),))


def test_a_path_on_the_node_needs_nothing_and_waits_for_nothing() -> None:
    weights = WeightsKeeper(Shelf())
    assert weights.need(model("/w/m.gguf")) is None
    assert weights.waiting(model("/w/m.gguf")) == ""


def test_a_version_that_is_whole_is_needed_and_one_that_is_not_is_waited_for() -> None:
    weights = WeightsKeeper(Shelf(QWEN))
    need = weights.need(model("mirror:qwen/v1/a.gguf"))
    assert need is not None
    assert need.key == "qwen/v1"
    assert weights.waiting(model("mirror:qwen/v1/a.gguf")) == ""
    half = replace(QWEN, files=(file("a.gguf", FileState.FETCHING, done=4),))
    said = WeightsKeeper(Shelf(half)).waiting(model("mirror:qwen/v1/"))
    assert "40 %" in said


def test_what_the_mirror_lost_can_start_only_where_it_is_held() -> None:
    lost = WeightsKeeper(Shelf())
    need = lost.need(model("mirror:qwen/v1/"))
    assert need is not None
    assert (need.key, lost.waiting(model("mirror:qwen/v1/"))) == ("qwen/v1", "")
    assert "llmgw run mirror pull" in need.missing
    damaged = replace(QWEN, files=(file("a.gguf", FileState.DAMAGED),))
    need = WeightsKeeper(Shelf(damaged)).need(model("mirror:qwen/v1/"))
    assert need is not None
    assert "is not whole" in need.missing


class Holds:
    """A node with these versions."""

    config = NodeConfig("n1", host="10.9.9.9")

    def __init__(self, **files: str) -> None:
        self.held = {name: HeldFile(10, sha) for name, sha in files.items()}

    async def weights(self) -> dict[str, HeldVersion]:
        return {"qwen/v1": HeldVersion(complete=bool(self.held), files=self.held)}

    def weights_path(self, key: str, file: str = "") -> str:
        return f"/s/weights/{key}/{file}".rstrip("/")


@pytest.mark.parametrize(
    ("held", "source", "state", "found"),
    [
        ({"a": "0" * 64}, "mirror:qwen/v1/", None, "/s/weights/qwen/v1/a"),
        ({"a": "0" * 64}, "mirror:qwen/v1/a", None, "/s/weights/qwen/v1/a"),
        ({"a": "0" * 64, "b": "0" * 64}, "mirror:qwen/v1/", None, "/s/weights/qwen/v1/"),
        ({"a": "0" * 64}, "mirror:qwen/v1/", FileState.DAMAGED, "/s/weights/qwen/v1/a"),
        ({"a": "1" * 64}, "mirror:qwen/v1/", FileState.DAMAGED, None),
        ({"a": "0" * 64}, "mirror:qwen/v1/b", None, None),
        ({}, "mirror:qwen/v1/", None, None),
    ],
)
async def test_a_node_that_holds_all_needs_no_mirror(
    held: dict[str, str], source: str, state: FileState | None, found: str | None
) -> None:
    shelf = Shelf() if state is None else Shelf(replace(QWEN, files=(file("a", state),)))
    weights, node = WeightsKeeper(shelf), cast(NodeHandle, Holds(**held))
    if found is None:
        with pytest.raises(EngineFailed, match="qwen/v1"):
            await weights.locate(node, model(source), lambda _: None)
    else:
        assert await weights.locate(node, model(source), lambda _: None) == found


def test_a_hubs_source_is_pulled_for_models_that_may_run_and_says_how_far_that_is() -> None:
    shelf = Shelf()
    weights = WeightsKeeper(shelf)
    weights.want([model("hf:org/repo:a.gguf", Mode.STOPPED)])
    assert shelf.wanted == []
    weights.want([model("hf:org/repo:a.gguf")])
    assert shelf.wanted == ["hf:org/repo:a.gguf"]
    assert "34 % of 4.6 GB" in weights.waiting(model("hf:org/repo:a.gguf"))


def test_the_secret_part_of_an_address_is_not_told() -> None:
    said = WeightsKeeper(Shelf()).waiting(model("https://me:pw@host/a.gguf?X-Signature=abc"))
    assert "pw" not in said
    assert "abc" not in said


def test_who_uses_a_version_is_known_even_while_it_is_missing() -> None:
    weights = WeightsKeeper(Shelf())
    models = [model("mirror:qwen/v1/a.gguf"), replace(model("mirror:/qwen/v1/"), name="n")]
    assert weights.users(models) == {"qwen/v1": ("m", "n")}


def test_one_part_of_a_set_means_all_of_it() -> None:
    parts = tuple(file(f"m-0000{n}-of-00002.gguf") for n in (1, 2))
    version = MirrorVersion("m", "v1", (*parts, file("other.gguf")))
    assert wanted_files(version, "m-00001-of-00002.gguf") == parts
    assert wanted_files(version, "other.gguf") == (file("other.gguf"),)
    assert wanted_files(version, "") == version.files
    with pytest.raises(EngineFailed, match="does not have all of"):
        wanted_files(MirrorVersion("m", "v1", parts[:1]), "m-00001-of-00002.gguf")


@pytest.mark.parametrize(
    ("listens", "url", "node", "wanted"),
    [
        ("127.0.0.1", None, NodeConfig("a", local=True), "http://127.0.0.1:8480"),
        ("127.0.0.1", None, NodeConfig("a", host="10.9.9.9"), None),
        ("127.0.0.1", "http://relay:80/", NodeConfig("a", host="10.9.9.9"), "http://relay:80"),
        ("10.1.1.1", None, NodeConfig("a", host="10.9.9.9"), "http://10.1.1.1:8480"),
        ("0.0.0.0", None, NodeConfig("a", local=True), "http://127.0.0.1:8480"),
        ("0.0.0.0", None, NodeConfig("a", host="127.0.0.1"), "http://127.0.0.1:8480"),
        ("0.0.0.0", None, NodeConfig("a", host="10.9.9.9", jump="b"), None),
        ("0.0.0.0", None, NodeConfig("a", host="no such name"), None),
    ],
)
async def test_a_node_is_given_an_address_only_if_it_may_reach_it(
    tmp_path: Path, listens: str, url: str | None, node: NodeConfig, wanted: str | None
) -> None:
    keeper = Keeper(tmp_path, None, lambda: 0.0)
    keeper.config = replace(Config(), mirror=MirrorConfig(host=listens, url=url))
    mirror = MirrorKeeper(tmp_path, keeper)
    assert await mirror.address_for(node) is None
    mirror._address = Address(listens, 8480)
    assert await mirror.address_for(node) == wanted


def test_loopback_is_told_from_other_addresses() -> None:
    assert [is_loopback(a) for a in ("127.0.0.1", "::1", "localhost", "10.0.0.1", "x")] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_pulls_under_way_are_noted_privately_and_garbage_is_none(tmp_path: Path) -> None:
    book = PullBook(tmp_path / "pulls.json")
    assert book.read() == ()
    request = PullRequest("https://host/a.gguf?sig=x", "m", "v1")
    book.write([request])
    assert book.read() == (request,)
    assert book.path.stat().st_mode & 0o777 == 0o600
    book.path.write_text("{")
    assert book.read() == ()


def test_the_content_of_weights_is_known_by_their_sums_and_only_of_what_is_used() -> None:
    def sums(a: str, b: str, version: str = "v1") -> WeightsKeeper:
        files = (replace(file("a.gguf"), sha256=a * 64), replace(file("b.gguf"), sha256=b * 64))
        return WeightsKeeper(Shelf(MirrorVersion("qwen", version, files)))

    one, whole = model("mirror:qwen/v1/a.gguf"), model("mirror:qwen/v1/")
    first = sums("1", "2")
    assert first.contents([one])["m"] == first.content(one) != ""
    assert sums("1", "3").content(one) == first.content(one)
    assert sums("1", "3").content(whole) != first.content(whole)
    assert sums("9", "2").content(one) != first.content(one)
    assert sums("1", "2", "v2").content(model("mirror:qwen/v2/a.gguf")) == first.content(one)


def test_content_that_nobody_knows_is_no_content() -> None:
    half = replace(QWEN, files=(file("a.gguf", FileState.FETCHING, 5),))
    bare = replace(QWEN, files=(replace(file("a.gguf"), sha256=None),))
    for version in (half, bare):
        weights = WeightsKeeper(Shelf(version))
        assert weights.content(model("mirror:qwen/v1/")) == ""
        assert weights.contents([model("mirror:qwen/v1/")]) == {}
    assert WeightsKeeper(Shelf()).content(model("/w/m.gguf")) == ""
