"""Which host keys are trusted."""

from __future__ import annotations

from pathlib import Path

import asyncssh
import pytest

from llmgw_core.nodes.host_keys import HostKeyStore, fingerprint, line_for


def new(kind: str = "ssh-ed25519") -> asyncssh.SSHKey:
    return asyncssh.generate_private_key(kind).convert_to_public()


@pytest.fixture
def store(tmp_path: Path) -> HostKeyStore:
    return HostKeyStore(tmp_path / "state" / "known_hosts")


def test_nothing_is_trusted_at_first(store: HostKeyStore) -> None:
    known = store.lookup("n1", host="h", port=22, files=("/nonexistent",))
    assert not known.any
    assert known.algorithms()[0] == "ssh-ed25519"


def test_an_added_key_is_found_by_alias_alone(store: HostKeyStore) -> None:
    one, two = new(), new()
    store.add("n1", one)
    store.add("n2", two)
    assert store.lookup("n1", host="anything", port=2222).host_keys == (one,)
    assert store.lookup("n2", host="anything", port=22).host_keys == (two,)
    assert not store.lookup("n", host="n1", port=22).any
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert store.path.parent.stat().st_mode & 0o777 == 0o700


def test_a_new_decision_replaces_the_one_before(store: HostKeyStore) -> None:
    old, key = new(), new("ecdsa-sha2-nistp256")
    store.add("n1", old)
    store.add("n2", old)
    store.add("n1", key)
    assert store.lookup("n1", host="h", port=22).host_keys == (key,)
    assert store.lookup("n2", host="h", port=22).host_keys == (old,)
    assert store.lookup("n1", host="h", port=22).algorithms()[0] == "ecdsa-sha2-nistp256"


def test_remembering_twice_writes_once(store: HostKeyStore) -> None:
    key = new()
    store.remember("n1", key)
    stamp = store.path.stat().st_ino
    store.remember("n1", key)
    assert store.path.stat().st_ino == stamp


def test_the_own_file_is_readable_by_openssh_tools(store: HostKeyStore) -> None:
    key = new()
    store.add("n1", key)
    assert store.path.read_text() == line_for("n1", key) + "\n"
    known = asyncssh.read_known_hosts(str(store.path))
    assert asyncssh.match_known_hosts(known, "n1", "", 2222)[0] == [key]


def test_the_persons_files(store: HostKeyStore, tmp_path: Path) -> None:
    plain, ported, revoked, authority = new(), new(), new(), new()
    mine = tmp_path / "known_hosts"
    mine.write_text(
        "# comment\n\nbroken\n"
        + line_for("host", plain)
        + "\n"
        + line_for("[host]:2222", ported)
        + f"\n@revoked {line_for('[host]:22022', revoked)}\n"
        + f"@cert-authority {line_for('*.example', authority)}\n"
    )
    files = (str(tmp_path / "missing"), str(mine))
    assert store.lookup("n", host="host", port=22, files=files).host_keys == (plain,)
    assert store.lookup("n", host="host", port=2222, files=files).host_keys == (ported,)
    other = store.lookup("n", host="host", port=22022, files=files)
    assert (other.host_keys, other.revoked) == ((plain,), (revoked,))
    certified = store.lookup("n", host="a.example", port=22, files=files)
    assert certified.ca_keys == (authority,)
    assert certified.any
    assert certified.algorithms()[0].endswith("-cert-v01@openssh.com")
    decided = new()
    store.add("n", decided)
    assert store.lookup("n", host="host", port=22, files=files).host_keys == (decided,)
    assert store.lookup("n", host="a.example", port=22, files=files).ca_keys == (authority,)


def test_fingerprints_read_as_openssh_writes_them() -> None:
    assert fingerprint(new()).startswith("SHA256:")
    assert len(fingerprint(new())) == 50
