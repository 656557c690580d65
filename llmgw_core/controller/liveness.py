"""Whether an engine that says that it is well also works. Pure; times are Unix seconds.

A health check proves little: it may be answered by a thread that knows nothing of the one that
makes tokens. What proves life is progress: tokens made, prompt tokens taken in, an idle engine's
numbers told. Where there is none for a while although requests run, a request for one token is
tried, a few times over. An engine that computes on the processor may take minutes for one piece of
a prompt and answer nothing meanwhile: the time that it uses excuses it, for longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

STILL_S = 20.0
"""Without progress for this long, an engine is tried."""
TRY_EVERY_S = 10.0
TRY_TIMEOUT_S = 20.0
MISSES_MOST = 3
"""Tries without an answer, one after the other, that make it stuck."""
IDLE_TRY_S = 120.0
"""How often an idle engine is tried whose numbers prove nothing."""
COMPUTES_SHARE = 0.25
"""Cores used on average from which on it counts as computing."""
COMPUTES_MOST_S = 600.0
"""How long computing excuses an engine that tells nothing."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """What an engine's numbers said at one moment."""

    at: float
    told: bool
    """Whether it told its numbers at all."""
    busy: float | None = None
    """Requests running or waiting; None where its numbers do not say."""
    work: float | None = None
    """Anything that grows with each token taken in or made."""


@dataclass(frozen=True, slots=True)
class Try:
    """A request for one token, and what came of it."""

    at: float
    """When it ended."""
    error: str = ""
    """Why it has failed; empty where it was answered."""


@dataclass(frozen=True, slots=True)
class Vital:
    """What is known of one run of an engine."""

    moved_at: float
    """When it was last seen to work, or to be idle and well."""
    proven_at: float
    """When it last took in or made a token."""
    work: float | None = None
    pulse_at: float = 0.0
    cpu_s: float | None = None
    """Processor seconds of its processes, at ``cpu_at``."""
    cpu_at: float = 0.0
    computed_at: float = 0.0
    """When it was last seen to compute."""
    tried_at: float = 0.0
    misses: int = 0
    error: str = ""
    idle: bool = False

    def wants_try(self, now: float, *, proves_life: bool) -> bool:
        """Whether a request for one token should be tried now.

        Args:
            now: Unix seconds.
            proves_life: whether this engine's numbers come from what makes its tokens.
        """
        unheard = now - self.pulse_at > STILL_S  # its health check has a bound of its own
        if unheard or now - self.tried_at < TRY_EVERY_S:
            return False
        if not self.idle:
            return self.still_s(now) >= STILL_S and not self.excused(now)
        return not proves_life and (self.misses > 0 or now - self.proven_at >= IDLE_TRY_S)

    def still_s(self, now: float) -> float:
        """For how long nothing has moved."""
        return 0.0 if self.idle else max(0.0, now - self.moved_at)

    def excused(self, now: float) -> bool:
        """Whether it computes, and has not for too long without any other sign."""
        return now - self.computed_at < STILL_S and now - self.moved_at < COMPUTES_MOST_S

    def verdict(self, now: float) -> str:
        """Why it is stuck, as the predicate of a sentence; empty where it is not."""
        if self.misses < MISSES_MOST:
            return ""
        still = "" if self.idle else f"nothing has moved for {now - self.moved_at:.0f} s, and "
        tries = f"{self.misses} requests for one token failed ({self.error})"
        return f"answers its health check and makes no token: {still}{tries}"


def new_vital(now: float) -> Vital:
    """Of a run that has just become ready, or was just found."""
    return Vital(moved_at=now, proven_at=now)


def observed(
    vital: Vital, pulse: Pulse | None, cpu_s: float | None, cpu_at: float, *, on_cpu: bool
) -> Vital:
    """What is known after a look at an engine's numbers and at its processes.

    Args:
        vital: before.
        pulse: the newest numbers; one that was seen before changes nothing.
        cpu_s: processor seconds of its processes, None where unknown.
        cpu_at: when those were read.
        on_cpu: whether it computes on the processor: elsewhere a busy processor proves nothing.
    """
    vital = _computed(vital, cpu_s, cpu_at) if on_cpu else vital
    if pulse is None or pulse.at <= vital.pulse_at:
        return vital
    vital = replace(vital, pulse_at=pulse.at)
    if not pulse.told:
        return replace(vital, idle=False)  # nothing is known to move
    moves = pulse.work is not None and pulse.work != vital.work
    if not pulse.busy:
        proven = pulse.at if moves else vital.proven_at
        misses = vital.misses if vital.idle and not moves else 0
        return replace(vital, idle=True, moved_at=pulse.at, proven_at=proven, work=pulse.work,
                       misses=misses)  # fmt: skip
    if moves:
        return replace(vital, idle=False, moved_at=pulse.at, proven_at=pulse.at,
                       work=pulse.work, misses=0)  # fmt: skip
    return replace(vital, idle=False, moved_at=pulse.at if vital.idle else vital.moved_at)


def _computed(vital: Vital, cpu_s: float | None, cpu_at: float) -> Vital:
    # a node measures this now and then, and tells the old number in between
    if cpu_s is None or cpu_at <= vital.cpu_at or cpu_s == vital.cpu_s:
        return vital
    if vital.cpu_s is not None and cpu_s > vital.cpu_s:
        share = (cpu_s - vital.cpu_s) / (cpu_at - vital.cpu_at)
        if share >= COMPUTES_SHARE:
            vital = replace(vital, computed_at=cpu_at)
    return replace(vital, cpu_s=cpu_s, cpu_at=cpu_at)


def tried(vital: Vital, found: Try) -> Vital:
    """What is known after a request for one token; one that was counted before changes nothing."""
    if found.at <= vital.tried_at:
        return vital
    if found.error:
        return replace(vital, tried_at=found.at, misses=vital.misses + 1, error=found.error)
    return replace(vital, tried_at=found.at, misses=0, error="", moved_at=found.at,
                   proven_at=found.at)  # fmt: skip
