"""Errors as clients see them: OpenAI's shape, one sentence each, with what to do.

Pure: nothing here does I/O. ``ApiError`` is raised by the policy modules and written to the client
by the relay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from llmgw_core.gateway.table import RouteModel

_NAMES_SHOWN = 20


class Loading(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a model is that does not serve yet; stands beside the error's message."""

    state: str
    progress: float | None = None
    """0 to 1."""
    node: str | None = None
    waiting: int | None = None
    """Requests that wait for it."""


class _Body(msgspec.Struct, omit_defaults=True):
    message: str
    type: str
    param: str | None
    code: str | None
    loading: Loading | None = None


class _Envelope(msgspec.Struct):
    error: _Body


_encoder = msgspec.json.Encoder()


@dataclass(eq=False)
class ApiError(Exception):
    """An answer other than success, made here rather than by an engine."""

    status: int
    message: str
    kind: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    retry_after_s: int | None = None
    allow: str | None = None
    """The ``Allow`` header of a 405."""
    loading: Loading | None = None
    challenge: str | None = None
    """The ``WWW-Authenticate`` header of a 401."""
    close: bool = False
    """Whether the connection cannot be used any more (the request was not read to its end)."""

    def __str__(self) -> str:
        return self.message

    def body(self) -> bytes:
        """The JSON document, ``{"error": {…}}``."""
        return _encoder.encode(
            _Envelope(_Body(self.message, self.kind, self.param, self.code, self.loading))
        )

    def event(self) -> bytes:
        """The same as one server-sent event, blank line included."""
        return b"data: " + self.body() + b"\n\n"

    def headers(self) -> list[tuple[bytes, bytes]]:
        """The response headers that belong to this error."""
        found: list[tuple[bytes, bytes]] = []
        if self.retry_after_s is not None:
            found.append((b"retry-after", b"%d" % self.retry_after_s))
        if self.allow is not None:
            found.append((b"allow", self.allow.encode("ascii")))
        if self.challenge is not None:
            found.append((b"www-authenticate", self.challenge.encode("ascii")))
        return found


def bad_request(message: str, *, param: str | None = None, code: str | None = None) -> ApiError:
    """A 400: the request cannot be understood or is not allowed as written."""
    return ApiError(400, message, param=param, code=code)


def unknown_path(path: str) -> ApiError:
    """A 404 for a path that the gateway does not serve."""
    shown = path[:200]
    hint = "the API lies under /v1, as in /v1/chat/completions and /v1/models"
    return ApiError(404, f"There is nothing at {shown}; {hint}.", code="unknown_url")


def wrong_method(method: str, path: str, allow: str) -> ApiError:
    """A 405 that names the methods which the path knows."""
    return ApiError(
        405,
        f"{path[:200]} does not take {method}; use {allow}.",
        code="method_not_allowed",
        allow=allow,
    )


def unknown_model(name: str, known: Sequence[str]) -> ApiError:
    """A 404 that names the models that exist."""
    if known:
        shown = ", ".join(known[:_NAMES_SHOWN])
        more = f" and {len(known) - _NAMES_SHOWN} more" if len(known) > _NAMES_SHOWN else ""
        hint = f"the models here are {shown}{more}"
    else:
        hint = "no model is configured here yet"
    return ApiError(
        404,
        f"The model '{name[:200]}' does not exist; {hint}.",
        param="model",
        code="model_not_found",
    )


def not_ready(model: RouteModel, waiting: int | None = None) -> ApiError:
    """A 503 for a model that has no replica to send the request to."""
    starting = model.state in ("starting", "loading", "fetching", "pending")
    why = f" ({model.reason})" if model.reason else ""
    far = f", {model.progress:.0%} loaded" if model.progress is not None else ""
    where = f" on {model.node}" if model.node else ""
    return ApiError(
        503,
        f"The model '{model.name}' has no ready replica: it is {model.state}{where}{far}{why}.",
        kind="service_unavailable",
        param="model",
        code="model_not_ready",
        retry_after_s=5 if starting else 30,
        loading=Loading(model.state, model.progress, model.node or None, waiting)
        if starting or model.wakes
        else None,
    )


def waited_too_long(model: RouteModel, waited_s: float) -> ApiError:
    """A 503: no place at a replica came free in time."""
    what = "no replica had a free place" if model.targets else f"it is {model.state}"
    why = f" ({model.reason})" if model.reason and not model.targets else ""
    return ApiError(
        503,
        f"The request waited {waited_s:.0f} s for the model '{model.name}': {what}{why}.",
        kind="service_unavailable",
        param="model",
        code="queue_timeout",
        retry_after_s=10,
    )


def line_full(model: str, waiting: int) -> ApiError:
    """A 429: too many wait already."""
    return ApiError(
        429,
        f"{waiting} requests wait for the model '{model}' already; try again later.",
        kind="rate_limit_error",
        param="model",
        code="queue_full",
        retry_after_s=5,
    )


def upstream_failed(model: str, detail: str) -> ApiError:
    """A 502: every replica that could be tried refused or went away before it answered."""
    return ApiError(
        502,
        f"No replica of '{model}' answered: {detail}. Try again.",
        kind="upstream_error",
        code="upstream_failed",
        retry_after_s=1,
    )


def upstream_silent(model: str, target: str, waited_s: float) -> ApiError:
    """A 504: the replica took the request and said nothing in time."""
    return ApiError(
        504,
        f"The replica {target} of '{model}' sent nothing for {waited_s:g} s; "
        "the request was stopped there.",
        kind="upstream_error",
        code="upstream_timeout",
    )


def cut_short(model: str, target: str, detail: str) -> ApiError:
    """What a stream's last event says when the replica did not finish it."""
    return ApiError(
        502,
        f"The answer of '{model}' is incomplete: replica {target} {detail}.",
        kind="upstream_error",
        code="upstream_cut",
    )
