"""Keys: who may ask for what, and that a revoked one opens nothing."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.errors import InvalidInput, NotFound, Refused
from llmgw_core.gateway.errors import ApiError
from llmgw_core.gateway.key_store import FILE, KeyStore, Wanted
from llmgw_core.gateway.keys import Gate, KeyRing
from llmgw_core.gateway.process import KeyWatch
from tests.gateway.lab import Lab, chat, model, until
from tests.gateway.upstream import completes


def bearer(secret: str) -> str:
    return f"authorization: Bearer {secret}\r\n"


async def test_a_key_opens_the_models_that_it_names(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    _, all_of = store.add(Wanted("ada"), actor="root", now=1.0)
    _, one = store.add(Wanted("bob", models=("m",)), actor="root", now=1.0)
    async with Lab() as lab:
        lab.gateway.gate.set_ring(store.load())
        up = await lab.upstream(completes)
        lab.table(model(up, name="m", aliases=["alias"]), model(up, name="other"))
        client = await lab.client()
        for secret, name, status in (
            (all_of, "m", 200), (all_of, "other", 200), (one, "m", 200), (one, "alias", 200),
            (one, "other", 403),
        ):  # fmt: skip
            answer = await client.ask(chat(name), head=bearer(secret))
            assert answer.status == status, (name, answer.body)
        refused = await client.ask(chat("other"), head=bearer(one))
        assert refused.error["code"] == "model_not_allowed"
        assert "it opens m" in str(refused.error["message"])
        missing = await client.ask(chat("x"), head=bearer(one))
        assert missing.status == 404
        assert "other" not in str(missing.error["message"])
        # the replica is asked with its own key, whatever way the client's came
        for head in (f"x-api-key: {all_of}\r\n", f"api-key: {all_of}\r\n"):
            assert (await client.ask(chat("m"), head=head)).status == 200
        assert {r.headers.get("authorization") for r in up.received} == {"Bearer replica-key"}
        assert not any(all_of in str(r.headers) or one in str(r.headers) for r in up.received)


async def test_without_a_key_in_force_nothing_is_answered(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    gone, secret = store.add(Wanted("gone"), actor="root", now=1.0)
    _, late = store.add(Wanted("late", expires=2.0), actor="root", now=1.0)
    store.revoke(gone.id, actor="root", now=2.0)
    async with Lab() as lab:
        lab.gateway.gate.set_ring(store.load())
        lab.serve(await lab.upstream(completes))
        client = await lab.client()
        for head, said in (
            ("", "needs an API key"),
            ("authorization: Basic eDp5\r\n", "needs an API key"),
            (bearer("sk-llmgw-wrong"), "is not known"),
            (bearer(secret), "is revoked"),
            (bearer(late), "is expired"),
        ):
            answer = await client.ask(chat(), head=head)
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert said in str(answer.error["message"])
            assert secret not in answer.body.decode()
            assert late not in answer.body.decode()
        assert (await client.get("/v1/models")).status == 401
        assert (await client.get("/health")).status == 200


async def test_models_are_listed_as_far_as_a_key_opens_them(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    _, secret = store.add(Wanted("bob", models=("m",)), actor="root", now=1.0)
    async with Lab() as lab:
        lab.gateway.gate.set_ring(store.load())
        lab.table(model(name="m"), model(name="other"))
        client = await lab.client()
        line = f"GET /v1/models HTTP/1.1\r\nhost: g\r\n{bearer(secret)}\r\n"
        await client.send(line.encode())
        listed = (await client.response()).json()["data"]
        assert [m["id"] for m in listed] == ["m"]  # type: ignore[attr-defined]
        await client.send(line.replace("/models", "/models/other").encode())
        assert (await client.response()).status == 404


async def test_a_large_body_without_a_key_is_not_read_to_its_end(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    store.add(Wanted("ada"), actor="root", now=1.0)
    async with Lab() as lab:
        lab.gateway.gate.set_ring(store.load())
        lab.serve(await lab.upstream(completes))
        client = await lab.client()
        size = 32 << 20
        head = f"POST /v1/completions HTTP/1.1\r\nhost: g\r\ncontent-length: {size}\r\n\r\n"
        await client.send(head.encode() + b"x" * (1 << 20))
        assert (await client.response()).status == 401
        assert lab.gateway.buffered < (1 << 21)


async def test_changed_keys_are_in_force_at_once(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    key, secret = store.add(Wanted("ada"), actor="root", now=1.0)
    gate = Gate(store.load(), must=True)
    watch = asyncio.create_task(KeyWatch(store, gate, store.stamp()).run())
    headers = [(b"authorization", f"Bearer {secret}".encode())]
    try:
        assert gate.who(headers, 2.0) is not None
        store.revoke("ada", actor="root", now=2.0)
        await until(lambda: gate.ring.keys[0].revoked is not None)
        with pytest.raises(ApiError, match="revoked"):
            gate.who(headers, 3.0)
        (tmp_path / FILE).write_text("half a fi")
        _, other = KeyStore(tmp_path / "other").add(Wanted("eve"), actor="root", now=1.0)
        with pytest.raises(InvalidInput, match="cannot be read"):
            store.load()
        (tmp_path / FILE).unlink()
        await until(lambda: not gate.ring.keys)
        with pytest.raises(ApiError, match="not known"):  # a lost file opens nothing
            gate.who([(b"x-api-key", other.encode())], 3.0)
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    assert key.state(3.0) == "active"


def test_the_file_holds_no_secret_and_is_private(tmp_path: Path) -> None:
    store = KeyStore(tmp_path)
    key, secret = store.add(Wanted("ada", owner="team"), actor="root", now=1.0)
    text = (tmp_path / FILE).read_text()
    assert secret not in text
    assert secret.removeprefix("sk-llmgw-")[4:-4] not in text
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert store.load() == KeyRing((key,))
    with pytest.raises(Refused, match="already"):
        store.add(Wanted("ada"), actor="root", now=2.0)
    store.revoke("ada", actor="bob", now=3.0)
    with pytest.raises(NotFound, match="there are none"):
        store.revoke("ada", actor="bob", now=4.0)
    again, _ = store.add(Wanted("ada"), actor="root", now=5.0)
    assert [k.state(6.0) for k in store.load().keys] == ["revoked", "active"]
    assert again.id != key.id


@given(st.text())
def test_any_name_is_a_key_or_refused_in_words(name: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        store = KeyStore(Path(folder))
        if not name.strip() or not name.strip().isprintable() or len(name.strip()) > 100:
            with pytest.raises(InvalidInput, match="cannot name a key"):
                store.add(Wanted(name), actor="a", now=0.0)
            return
        key, secret = store.add(Wanted(name), actor="a", now=0.0)
        assert store.load().find(key.name) == key
        assert msgspec.json.encode(key).decode().count(secret) == 0
