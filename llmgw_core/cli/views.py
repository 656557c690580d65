"""Snapshot views as the JSON that scripts rely on."""

from __future__ import annotations

from typing import Any

import msgspec

from llmgw_core.plain_text import escaped_json

_INTERNAL = ("cpu_history", "tokens_history", "running_history", "waiting_history")


def to_json(view: msgspec.Struct) -> dict[str, Any]:
    """A view with its stable keys; series for plots are left out."""
    data: dict[str, Any] = msgspec.to_builtins(view)
    for key in _INTERNAL:
        data.pop(key, None)
    return data


def to_line(view: msgspec.Struct) -> str:
    """A view as one line of JSON."""
    return escaped_json(msgspec.json.encode(view).decode())
