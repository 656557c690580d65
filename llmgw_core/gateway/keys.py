"""Keys of clients: who asks, what that one may ask for, and until when. Pure.

A key's secret is shown once, when it is made. What is kept is its SHA-256: the secret is 256 random
bits, so that a slow hash would add nothing but delay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from llmgw_core.gateway.errors import ApiError
from llmgw_core.gateway.headers import Header, value_of
from llmgw_core.gateway.table import UNLIMITED, KeyLimits

PREFIX = "sk-llmgw-"
"""Of every secret, so that scanners for leaked secrets can find them."""
_ID_DIGITS = 12


class Key(msgspec.Struct, frozen=True, omit_defaults=True):
    """One key. Times in Unix seconds."""

    name: str
    digest: str
    """SHA-256 of the secret, in hex."""
    hint: str
    """The secret's ends, by which a person tells keys apart."""
    created: float
    created_by: str
    owner: str | None = None
    models: tuple[str, ...] | None = None
    """Names of the models that it may ask for; None is all."""
    limits: KeyLimits = UNLIMITED
    model_class: str | None = None
    """Of its requests where they wait; None is the class of the model that they ask for."""
    expires: float | None = None
    revoked: float | None = None
    revoked_by: str | None = None

    @property
    def id(self) -> str:
        """What usage is booked under: names may be used again once their key is revoked."""
        return self.digest[:_ID_DIGITS]

    def state(self, now: float) -> str:
        """One word: active, expired or revoked."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires is not None and self.expires <= now else "active"


class KeyRing(msgspec.Struct, frozen=True):
    """All keys that were ever made, in that order: usage goes on naming revoked ones."""

    keys: tuple[Key, ...] = ()

    def find(self, name: str) -> Key | None:
        """The key of this name that is not revoked, else the one of this id."""
        for key in self.keys:
            if name == key.id or (name == key.name and key.revoked is None):
                return key
        return None


NO_KEYS = KeyRing()


def digest_of(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def hint_of(secret: str) -> str:
    """The ends of a secret: too little to guess it from."""
    return f"{secret[: len(PREFIX) + 2]}…{secret[-4:]}"


def given_secret(headers: Sequence[Header]) -> str | None:
    """The key that a request carries: as OpenAI's, Anthropic's or Azure's clients send it."""
    bearer = value_of(headers, b"authorization")
    if bearer is not None:
        scheme, _, secret = bearer.partition(b" ")
        if scheme.lower() == b"bearer" and secret.strip():
            return secret.strip().decode("latin-1")
    for name in (b"x-api-key", b"api-key"):
        value = value_of(headers, name)
        if value:
            return value.strip().decode("latin-1")
    return None


class Gate:
    """Lets requests in by their keys.

    Args:
        ring: the keys in force.
        must: whether a key is asked for although none was ever made.
    """

    def __init__(self, ring: KeyRing = NO_KEYS, *, must: bool = False) -> None:
        self._must = must
        self._by_digest: dict[str, Key] = {}
        self.ring = ring
        self.set_ring(ring)

    def set_ring(self, ring: KeyRing) -> None:
        """Put other keys in force for requests that come from now on."""
        self.ring = ring
        self._by_digest = {key.digest: key for key in ring.keys}

    @property
    def closed(self) -> bool:
        """Whether requests need a key: from the first one that was ever made on."""
        return self._must or bool(self._by_digest)

    def who(self, headers: Sequence[Header], now: float) -> Key | None:
        """The key that a request carries; None where none is needed.

        Raises:
            ApiError: 401 where it carries none that is in force.
        """
        if not self.closed:
            return None
        secret = given_secret(headers)
        if secret is None:
            raise _unauthorised("This gateway needs an API key; send one as a bearer token.")
        # found by its digest: how long that takes says nothing about the secret
        key = self._by_digest.get(digest_of(secret))
        if key is None:
            raise _unauthorised("The API key is not known here; check it, or ask for another.")
        state = key.state(now)
        if state != "active":
            raise _unauthorised(f"The API key {key.hint} is {state}; ask for another.")
        return key


def may_ask(key: Key | None, model: str) -> bool:
    """Whether a key opens a model."""
    return key is None or key.models is None or model in key.models


def check_model(key: Key | None, model: str) -> None:
    """Refuse what a key does not open.

    Raises:
        ApiError: 403 that names the models it may ask for.
    """
    if may_ask(key, model) or key is None:
        return
    shown = ", ".join(key.models or ()) or "none"
    raise ApiError(
        403,
        f"The API key {key.hint} does not open the model '{model}'; it opens {shown}.",
        kind="permission_error",
        param="model",
        code="model_not_allowed",
    )


def opened(key: Key | None, models: Iterable[str]) -> frozenset[str]:
    """Those of the models that a key opens."""
    return frozenset(model for model in models if may_ask(key, model))


def _unauthorised(message: str) -> ApiError:
    return ApiError(
        401, message, kind="authentication_error", code="invalid_api_key", challenge="Bearer"
    )
