"""The line at the top: who runs the cluster, how it does, and what is special. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from llmgw_core.api.views import Snapshot
from llmgw_tui.rows import words
from llmgw_tui.rows.parts import Part
from llmgw_tui.state import Phase

GAP = 2
SLOW_LOOP_S = 0.1
"""A loop lag that deserves a colour."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How the console stands, besides the snapshot."""

    cluster: str
    phase: Phase
    where: str = ""
    paused: bool = False
    read_only: bool = False
    lost_because: str = ""
    ascii: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the header; the highest weights go first where room is short."""

    parts: tuple[Part, ...]
    weight: int
    right: bool = False

    @property
    def width(self) -> int:
        """Columns it takes, with the gap before it."""
        return sum(len(part.text) for part in self.parts) + GAP


def header(standing: Standing, snapshot: Snapshot | None, now: float) -> list[Piece]:
    """All pieces, from left to right."""
    cluster = snapshot.cluster if snapshot is not None else standing.cluster
    pieces = [Piece((Part("llmgw", "brand"), Part(f" {cluster}", "strong")), 0)]
    pieces.append(_engine(standing, snapshot))
    if snapshot is not None:
        pieces += _gateway(snapshot, standing.ascii)
        lag = snapshot.controller.loop_lag_s
        slow = lag is not None and lag > SLOW_LOOP_S
        pieces.append(
            Piece((Part(f"lag {words.millis(lag)}", "draining" if slow else "muted"),), 6)
        )
        if snapshot.controller.config_errors:
            pieces.append(Piece((Part("configuration has errors", "failed"),), 2))
        if snapshot.controller.frozen:
            pieces.append(Piece((Part("FROZEN: many nodes away at once", "failed"),), 1))
    if standing.paused:
        pieces.append(Piece((Part(" PAUSED ", "badge"),), 1, right=True))
    if standing.read_only:
        pieces.append(Piece((Part(" READ-ONLY ", "badge"),), 1, right=True))
    pieces.append(Piece((Part(words.clock(now), "muted"),), 5, right=True))
    return pieces


def _engine(standing: Standing, snapshot: Snapshot | None) -> Piece:
    dot, cross, wait = ("*", "x", "~") if standing.ascii else ("●", "✖", "◔")
    match standing.phase:
        case Phase.STARTING:
            return Piece((Part(f"{wait} starting the engine…", "loading"),), 1)
        case Phase.LOST:
            return Piece((Part(f"{cross} engine lost, data is old; trying again", "failed"),), 1)
    if standing.where == "here":
        return Piece((Part(dot, "ready"), Part(" controller here")), 2)
    controller = snapshot.controller if snapshot is not None else None
    name = "attached to " + (
        f"{controller.mode} pid {controller.pid}" if controller is not None else standing.where
    )
    return Piece((Part(dot, "ready"), Part(f" {name}")), 2)


def _gateway(snapshot: Snapshot, ascii_only: bool) -> list[Piece]:
    gateway = snapshot.gateway
    mark = words.mark_of(words.GATEWAY_MARKS, gateway.state)
    glyph = mark.ascii if ascii_only else mark.glyph
    address = gateway.address or gateway.reason or ""
    state = "" if gateway.state == "serving" else f" {gateway.state}"
    calm = "" if gateway.state == "serving" else mark.style
    rate = words.number(gateway.requests_per_s, 1)
    return [
        Piece((Part("gateway ", "muted"), Part(glyph, mark.style), Part(state, calm),
               Part(f" {address}" if address else "")), 3),
        Piece((Part(rate), Part(" req/s", "muted")), 4),
    ]  # fmt: skip


def fitting(pieces: list[Piece], width: int) -> list[Piece]:
    """Those for which there is room; what matters least goes first."""
    kept = list(pieces)
    while len(kept) > 1 and sum(piece.width for piece in kept) - GAP > width:
        heaviest = max(range(len(kept)), key=lambda i: (kept[i].weight, i))
        del kept[heaviest]
    return kept
