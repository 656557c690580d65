"""The store: what it holds, gives, removes, tidies and checks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.errors import InvalidInput, LlmgwError, NotFound, Refused
from llmgw_core.mirror.manifest import Entry, Manifest, ManifestDamaged
from llmgw_core.mirror.store import Store
from llmgw_core.mirror.sums import Sums, bad_pieces
from llmgw_core.mirror.tidy import clean
from llmgw_core.mirror.versions import FileState, from_wire, to_wire

from .filled import digest, fill, tree


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "mirror")


def test_a_version_is_read_back(store: Store) -> None:
    fill(store, "m", "v1", {"a.gguf": b"abc", "sub/b.json": b"{}"})
    fill(store, "m", "v1.json", {"a": b"1"})
    (first, second) = store.versions()
    assert (first.name, second.name) == ("m/v1", "m/v1.json")
    assert first.complete
    assert (first.bytes_done, first.bytes_total) == (5, 5)
    assert first.files[0].sha256 == digest(b"abc")
    assert store.path("m", "v1", "sub/b.json").read_bytes() == b"{}"
    assert from_wire(to_wire(first)) == first


def test_an_empty_store_has_nothing_and_says_what_is_missing(store: Store) -> None:
    assert store.versions() == ()
    assert store.version("m", "v") is None
    assert store.free_bytes()
    with pytest.raises(NotFound, match="no m/v; see"):
        store.need("m", "v")
    fill(store, "m", "v1", {"a": b""})
    with pytest.raises(NotFound, match="of m it has v1"):
        store.need("m", "v")


def test_a_half_file_counts_as_what_has_come(store: Store) -> None:
    store.write_manifest(Manifest("m", "v", (Entry("a", 10), Entry("b"))))
    half = store.half("m", "v", "a")
    half.data.parent.mkdir(parents=True)
    half.data.write_bytes(b"123")
    version = store.need("m", "v")
    assert [(f.bytes_done, f.bytes_total, f.state) for f in version.files] == [
        (3, 10, FileState.WAITING),
        (0, None, FileState.WAITING),
    ]
    assert version.bytes_total is None
    assert not version.complete


@pytest.mark.parametrize(
    ("model", "version", "file"),
    [("..", "v", "a"), ("m", "..", "a"), ("m", "v", "../../x"), ("m", "v", "/etc/passwd"),
     (".manifests", "m", "v.json"), ("m", "v", "")],
)  # fmt: skip
def test_no_name_leaves_the_store(store: Store, model: str, version: str, file: str) -> None:
    with pytest.raises(InvalidInput):
        store.path(model, version, file)


@pytest.mark.parametrize("at", ["file", "folder", "model", "loop"])
def test_a_link_out_of_the_version_is_refused(store: Store, tmp_path: Path, at: str) -> None:
    fill(store, "m", "v", {"sub/a": b"1"})
    outside = tmp_path / "outside"
    (outside / "v" / "sub").mkdir(parents=True)
    (outside / "v" / "sub" / "a").write_text("secret")
    place = {"file": "m/v/sub/a", "folder": "m/v/sub", "model": "m", "loop": "m/v/sub/a"}[at]
    target = {"file": "v/sub/a", "folder": "v/sub", "model": ".", "loop": "."}[at]
    (store.root / place).rename(tmp_path / "away")
    to = store.root / place if at == "loop" else outside / target
    (store.root / place).symlink_to(to)
    with pytest.raises(Refused, match=r"link|nowhere"):
        store.path("m", "v", "sub/a")


def test_a_store_behind_a_link_is_as_good(tmp_path: Path) -> None:
    fill(Store(tmp_path / "real"), "m", "v", {"a": b"1"})
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = Store(tmp_path / "link")
    assert store.path("m", "v", "a") == tmp_path / "link" / "m" / "v" / "a"


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b"\xff", b'{"model":"m","version":"v","files":[{"file":"../x"}]}',
     b'{"model":"m","version":"w"}', b'{"model":"m","version":"v","format":9}'],
)  # fmt: skip
def test_a_garbage_manifest_is_one_sentence_and_spoils_nothing(store: Store, text: bytes) -> None:
    fill(store, "a", "v", {"f": b"1"})
    fill(store, "m", "v", {"f": b"1"})
    store.manifest_path("m", "v").write_bytes(text)
    with pytest.raises(ManifestDamaged, match=r"manifest .*m/v\.json"):
        store.version("m", "v")
    good, bad = store.versions()
    assert good.complete
    assert "manifest" in bad.trouble
    assert not bad.complete
    assert clean(store, dry_run=False) == ()
    assert store.path("m", "v", "f").exists()
    store.remove("m", "v")
    assert [v.name for v in store.versions()] == ["a/v"]


def test_a_version_in_use_is_not_removed(store: Store) -> None:
    fill(store, "m", "v", {"a": b"1"})
    with pytest.raises(Refused, match="m/v is used by the models chat, small"):
        store.remove("m", "v", ["chat", "small"])
    assert store.need("m", "v").complete


def test_a_removal_takes_all_of_it_and_nothing_else(store: Store) -> None:
    fill(store, "m", "v", {"a": b"123", "s/b": b"45"})
    fill(store, "m", "w", {"a": b"123"})
    half = store.half("m", "v", "c")
    half.data.parent.mkdir(parents=True)
    half.data.write_bytes(b"6")
    before = tree(store.root)
    assert store.remove("m", "v") == 6
    left = tree(store.root)
    assert left == {k: before[k] for k in before if "/w" in k}
    store.remove("m", "w")
    assert tree(store.root) == {}
    assert not (store.root / "m").exists()
    with pytest.raises(NotFound):
        store.remove("m", "v")


def test_a_removal_does_not_follow_links(store: Store, tmp_path: Path) -> None:
    fill(store, "m", "v", {"a": b"1"})
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "f").write_text("1")
    (store.root / "m" / "v" / "link").symlink_to(tmp_path / "kept")
    store.remove("m", "v")
    assert (tmp_path / "kept" / "f").exists()


def test_names_that_differ_in_case_are_refused(store: Store) -> None:
    fill(store, "Qwen", "v1", {"a": b"1"})
    store.check_new("Qwen", "v1")
    store.check_new("other", "V1")
    with pytest.raises(InvalidInput, match="qwen differs only in case from Qwen"):
        store.check_new("qwen", "v2")
    with pytest.raises(InvalidInput, match="Qwen/V1 differs only in case"):
        store.check_new("Qwen", "V1")


def waste(store: Store) -> dict[str, bytes]:
    """A store with one good version and every kind of waste; what must stay."""
    fill(store, "good", "v", {"a": b"1", "s/b": b"2"})
    good = tree(store.root)
    (store.root / "good" / "v" / "s" / "extra").write_bytes(b"12345")
    (store.root / "gone" / "v" / "s").mkdir(parents=True)
    (store.root / "gone" / "v" / "s" / "x").write_bytes(b"123")
    (store.root / "empty" / "v" / "s").mkdir(parents=True)
    store.write_manifest(Manifest("half", "v", (Entry("a", 10),)))
    half = store.half("half", "v", "a")
    half.data.parent.mkdir(parents=True)
    half.data.write_bytes(b"1234567")
    (store.root / "mine.txt").write_text("not the store's")
    (store.root / "lost+found").mkdir()
    return {**good, "mine.txt": b"not the store's"}


def test_waste_is_shown_first_and_then_removed(store: Store) -> None:
    stays = waste(store)
    before = tree(store.root)
    shown = clean(store, dry_run=True)
    assert tree(store.root) == before
    assert {(w.path, w.bytes) for w in shown if w.bytes and ".manifests" not in w.path} == {
        ("good/v/s/extra", 5),
        ("gone/v/s/x", 3),
        (".partial/half/v", 7),
    }
    assert clean(store, dry_run=False) == shown
    assert tree(store.root) == stays
    assert not (store.root / "gone").exists()
    assert not (store.root / "empty").exists()
    assert (store.root / "lost+found").exists()
    assert store.need("good", "v").complete
    assert clean(store) == ()


def test_what_is_to_be_kept_and_what_is_at_work_stays(store: Store) -> None:
    waste(store)
    before = tree(store.root)
    with store.locked("half", "v", "a pull"), store.locked("gone", "v", "a pull"):
        clean(store, keep={"good/v"}, dry_run=False)
    assert tree(store.root) == before


def test_a_sound_version_is_found_sound(store: Store) -> None:
    fill(store, "m", "v", {"a": bytes(5000), "b": b""})
    seen: list[tuple[str, int, int]] = []
    assert store.verify("m", "v", lambda *step: seen.append(step)) == ()
    assert seen == [("a", 5000, 5000)]


def test_damage_is_found_placed_and_marked(store: Store) -> None:
    fill(store, "m", "v", {"a": bytes(5000), "b": b"12", "c": b"3", "d": b"4"})
    with store.path("m", "v", "a").open("r+b") as file:
        file.seek(4500)
        file.write(b"x")
    store.path("m", "v", "b").write_bytes(b"1")
    store.path("m", "v", "c").unlink()
    found = {f.file: (f.problem, f.bad_bytes) for f in store.verify("m", "v")}
    assert found == {
        "a": ("its content is not what was stored", 1000),
        "b": ("it has 1 bytes and should have 2", None),
        "c": ("it is missing", 1),
    }
    states = [f.state for f in store.need("m", "v").files]
    assert states == [FileState.DAMAGED] * 3 + [FileState.DONE]
    store.path("m", "v", "a").write_bytes(bytes(5000))
    assert {f.file for f in store.verify("m", "v")} == {"b", "c"}
    assert store.need("m", "v").files[0].state is FileState.DONE


def test_a_file_that_was_cut_is_seen_without_a_check(store: Store) -> None:
    fill(store, "m", "v", {"a": b"123"})
    store.path("m", "v", "a").write_bytes(b"1")
    assert store.need("m", "v").files[0].state is FileState.DAMAGED


def test_what_was_never_pulled_cannot_be_checked(store: Store) -> None:
    with pytest.raises(NotFound):
        store.verify("m", "v")


def test_a_store_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "mirror")
    assert store.versions() == ()
    with pytest.raises(LlmgwError, match=r"cannot write to .*Not a directory; free some space"):
        store.write_manifest(Manifest("m", "v"))
    with pytest.raises(LlmgwError, match="cannot write to"), store.locked("m", "v", "a pull"):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_keeps_the_manifest_that_was(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode != 0:
        pytest.skip("this root may not mount")
    try:
        store = Store(disk)
        made = fill(store, "m", "v", {"a": b"1"})
        entries = [Entry(f"{n:03d}" + "x" * 200, n) for n in range(400)]
        with pytest.raises(LlmgwError, match="No space left on device"):
            store.write_manifest(made.put(entries))
        assert store.manifest("m", "v") == made
        assert not list(disk.rglob("*.tmp"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300)), st.integers(1, 64))
def test_sums_do_not_depend_on_how_the_bytes_come(
    content: bytes, cuts: list[int], piece: int
) -> None:
    at_once, in_steps = Sums(piece), Sums(piece)
    at_once.update(content)
    last = 0
    for cut in [*sorted(cuts), len(content)]:
        in_steps.update(content[last:cut])
        last = max(last, min(cut, len(content)))
    assert in_steps.sha256() == at_once.sha256() == digest(content)
    assert in_steps.pieces() == at_once.pieces()
    assert len(at_once.pieces()) == -(-len(content) // piece)


@given(st.binary(min_size=1, max_size=300), st.data(), st.integers(1, 64))
def test_a_turned_bit_is_found_in_its_piece(
    content: bytes, data: st.DataObject, piece: int
) -> None:
    at = data.draw(st.integers(0, len(content) - 1))
    spoilt = bytearray(content)
    spoilt[at] ^= 1 << data.draw(st.integers(0, 7))
    sound, other = Sums(piece), Sums(piece)
    sound.update(content)
    other.update(bytes(spoilt))
    assert bad_pieces(other.pieces(), sound.pieces()) == (at // piece,)


EVIL = "\x1b[2J\n\u202e\x9b"


@pytest.mark.parametrize(
    "content",
    [
        {"model": "m", "version": "v", EVIL + "x" * 5000: 1},
        {"model": EVIL, "version": "v"},
        {"model": "m", "version": "v", "files": [{"file": EVIL}]},
        {"model": "m", "version": "v", "files": [{"file": "a", "state": EVIL}]},
    ],
)
def test_a_manifest_cannot_steer_the_terminal(store: Store, content: dict[str, object]) -> None:
    path = store.manifest_path("m", "v")
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode(content))
    (version,) = store.versions()
    assert version.trouble
    assert version.trouble.isprintable()
    assert len(version.trouble) < 600


def test_who_holds_a_lock_cannot_steer_the_terminal(store: Store) -> None:
    fill(store, "m", "v", {"a.gguf": b"abc"})
    with store.locked("m", "v", EVIL), pytest.raises(Refused) as caught:
        store.remove("m", "v")
    assert "busy: ·[2J" in str(caught.value)
    assert str(caught.value).isprintable()
