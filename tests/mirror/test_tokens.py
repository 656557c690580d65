"""What opens the mirror, and what does not."""

from __future__ import annotations

import stat
import string
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.errors import InvalidInput
from llmgw_core.mirror.tokens import (
    Verdict,
    ensure_secret,
    fetch_token,
    judge,
    read_secret,
    secret_id,
)

SECRET = "s" * 40
NAMES = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=20)
TIMES = st.integers(0, 10**15 - 1)


def verdict(
    token: str, version: tuple[str, str] | None = ("m", "v"), *, now: float = 0.0
) -> Verdict:
    return judge(SECRET, token, version=version, now=now)


@given(NAMES, NAMES, TIMES, TIMES)
def test_a_token_opens_its_version_until_its_time(
    model: str, version: str, expires: int, now: int
) -> None:
    token = fetch_token(SECRET, model, version, expires=expires)
    wanted = Verdict.VERSION if now < expires else Verdict.EXPIRED
    assert verdict(token, (model, version), now=now) is wanted


@given(NAMES, NAMES, NAMES, NAMES)
def test_it_opens_no_other_version(model: str, version: str, model2: str, version2: str) -> None:
    token = fetch_token(SECRET, model, version, expires=10)
    opened = verdict(token, (model2, version2)) is Verdict.VERSION
    assert opened == ((model, version) == (model2, version2))


@given(st.text(max_size=80))
def test_what_was_not_made_here_opens_nothing(text: str) -> None:
    assert verdict(text) is Verdict.WRONG
    assert verdict(text, None) is Verdict.WRONG


@given(st.data())
def test_a_token_with_one_character_changed_opens_nothing(data: st.DataObject) -> None:
    token = fetch_token(SECRET, "m", "v", expires=2_000_000_000)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters().filter(lambda char: char != token[at]))
    assert verdict(token[:at] + other + token[at + 1 :]) is Verdict.WRONG


def test_its_time_cannot_be_moved() -> None:
    token = fetch_token(SECRET, "m", "v", expires=10)
    later = token.replace(".10.", ".99.")
    assert later != token
    assert verdict(later, now=20) is Verdict.WRONG
    for odd in ("", "-1", "1e9", "٣", "9" * 5000):
        assert verdict(f"v1.{odd}.{token.rpartition('.')[2]}") is Verdict.WRONG


def test_the_secret_opens_everything_and_a_token_not_the_status() -> None:
    assert verdict(SECRET) is Verdict.ALL
    assert verdict(SECRET, None) is Verdict.ALL
    assert verdict(SECRET[:-1]) is Verdict.WRONG
    assert verdict(fetch_token(SECRET, "m", "v", expires=10), None) is Verdict.WRONG
    assert judge("t" * 40, SECRET, version=("m", "v"), now=0) is Verdict.WRONG


def test_neither_a_token_nor_the_secrets_name_shows_the_secret() -> None:
    assert SECRET not in fetch_token(SECRET, "m", "v", expires=10)
    assert secret_id(SECRET) != secret_id(SECRET + "x")
    assert len(secret_id(SECRET)) == 16


def test_a_secret_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state" / "mirror.secret"
    made = ensure_secret(path)
    assert len(made) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ensure_secret(path) == read_secret(path) == made
    assert [entry.name for entry in path.parent.iterdir()] == ["mirror.secret"]


def test_two_who_make_it_at_once_have_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            path = tmp_path / str(number)
            assert len(set(pool.map(ensure_secret, [path] * 8))) == 1


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (b"x" * 40, 0o640, "can be read by others (mode 0640)"),
        (b"short\n", 0o600, "32 to 1024 printable characters"),
        (b"x" * 2000, 0o600, "32 to 1024 printable characters"),
        (b"\xff" * 40, 0o600, "32 to 1024 printable characters"),
        (b"two words" * 9, 0o600, "32 to 1024 printable characters"),
    ],
)
def test_a_secret_that_cannot_be_used_is_named_and_not_shown(
    tmp_path: Path, content: bytes, mode: int, words: str
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(InvalidInput) as error:
        ensure_secret(path)
    assert words in str(error.value)
    assert str(path) in str(error.value)
    assert "xxxx" not in str(error.value)


def test_a_secret_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be written to"):
        ensure_secret(tmp_path / "file" / "secret")
