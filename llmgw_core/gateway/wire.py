"""The gateway's control line: newline-delimited JSON over a Unix socket of mode 0600.

Controller to gateway: ``{"table": Table}``, ``{"report": true}``, ``{"drain": seconds}``.
Gateway to controller: ``{"report": Report}`` every second, on request, and when a target in drain
becomes free; ``{"error": "…"}`` for a line that cannot be read. Any number of controllers may be
connected; the last table wins. ``drain`` stops listening, lets running requests finish and exits 0.
"""

from __future__ import annotations

import msgspec

from llmgw_core.gateway.table import Report, Table

SOCKET_NAME = "gateway.sock"
MAX_LINE = 64 * 1024 * 1024


class ToGateway(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line from a controller."""

    table: Table | None = None
    report: bool = False
    drain: float | None = None


class FromGateway(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line to a controller."""

    report: Report | None = None
    error: str | None = None
