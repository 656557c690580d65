"""The paths that the gateway serves by itself, as pure functions of its state."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from urllib.parse import unquote

import msgspec

from llmgw_core.gateway.errors import ApiError, unknown_path, wrong_method
from llmgw_core.gateway.policy import Directory
from llmgw_core.gateway.table import RouteModel

RELAYED = frozenset(
    {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/rerank",
        "/v1/responses",
        "/v1/messages",
    }
)
"""Paths whose POST goes to a replica; the body names the model."""

MODELS = "/v1/models"
HEALTH = "/health"
METRICS = "/metrics"
_LOCAL = frozenset({MODELS, HEALTH, METRICS})
_READ = "GET, HEAD"

_encode = msgspec.json.Encoder().encode


def check_method(method: str, path: str) -> None:
    """Refuse what is not served.

    Raises:
        ApiError: 404 for the path, or 405 for the method on it.
    """
    if path in RELAYED:
        allow = "POST"
    elif path in _LOCAL or path.startswith(MODELS + "/"):
        allow = _READ
    else:
        raise unknown_path(path)
    if method not in allow.split(", "):
        raise wrong_method(method, path, allow)


class _ModelCard(msgspec.Struct):
    id: str
    created: int
    owned_by: str
    object: str = "model"
    aliases: tuple[str, ...] = ()
    description: str | None = None
    context_length: int | None = None
    max_output: int | None = None
    state: str = ""
    ready: int = 0
    """Replicas that requests may go to."""


class _ModelList(msgspec.Struct):
    data: list[_ModelCard]
    object: str = "list"


class _Health(msgspec.Struct):
    status: str
    models: Mapping[str, int]
    """Ready replicas of each model that has any."""
    table_version: int


def _card(model: RouteModel) -> _ModelCard:
    return _ModelCard(
        id=model.name,
        created=model.created,
        owned_by=model.owned_by,
        aliases=model.aliases,
        description=model.description,
        context_length=model.context_length,
        max_output=model.max_output,
        state=model.state,
        ready=len(model.targets),
    )


def models_list(directory: Directory, shown: AbstractSet[str]) -> bytes:
    """The answer to ``GET /v1/models``: those of the table's models, in its order."""
    models = directory.table.models
    return _encode(_ModelList([_card(model) for model in models if model.name in shown]))


def model_card(directory: Directory, shown: AbstractSet[str], path: str) -> bytes:
    """The answer to ``GET /v1/models/NAME``; names may hold slashes, and may be aliases.

    Raises:
        ApiError: none of the models that are shown has that name.
    """
    name = unquote(path.removeprefix(MODELS + "/"))
    model = directory.resolve(name, shown)
    return _encode(_card(model))


def health(directory: Directory, *, draining: bool) -> bytes:
    """The answer to ``GET /health``.

    Raises:
        ApiError: 503 while draining, so that a balancer in front goes elsewhere.
    """
    if draining:
        raise ApiError(
            503,
            "The gateway is draining and takes no new connections.",
            kind="service_unavailable",
            code="draining",
            retry_after_s=5,
        )
    ready = {model.name: len(model.targets) for model in directory.table.models if model.targets}
    return _encode(_Health("ok", ready, directory.table.version))
