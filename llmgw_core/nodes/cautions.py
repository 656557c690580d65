"""What a person should know about a node that is connected: sentences out of its facts. Pure."""

from __future__ import annotations

from llmgw_core.errors import NodeRefused, RefusedBecause
from llmgw_core.nodes.facts import Facts

SKEW_S = 5.0
"""A clock that is further off than this is mentioned; nothing is ever decided by it."""
FULL_GB = 0.001
_FULL = "No space left on device"


def cautions(facts: Facts) -> tuple[str, ...]:
    """One sentence each, the gravest first; empty where all is well."""
    found = [cannot_start(facts)]
    if facts.unusable:
        found.append(f"cannot be used: {', '.join(facts.unusable)}; correct engines in its entry")
    if facts.state_executable is False:
        found.append(
            f"no program can be run from {facts.state_dir} (mounted noexec), so llmgw installs no "
            "engine there; set state_dir to another place, or name an engine under engines"
        )
    found.append(_skew(facts.clock_skew_s))
    return tuple(sentence for sentence in found if sentence)


def cannot_start(facts: Facts) -> str:
    """Why nothing new can be started on the node, whatever it runs already; empty where it can."""
    if facts.state_writable is not False:
        return ""
    if _is_full(facts):
        return f"the disk at {facts.state_dir} is full: nothing can be started; free some space"
    why = f" ({facts.state_trouble})" if facts.state_trouble else ""
    return (
        f"nothing can be written in {facts.state_dir}{why}, so nothing can be started; "
        "mend it, or set state_dir to another place"
    )


def refusal(name: str, facts: Facts) -> NodeRefused | None:
    """Why llmgw can do nothing at all on a node: it has no directory there."""
    if facts.state_there is not False:
        return None
    if _is_full(facts):
        text = f"{name}: the disk is full, and llmgw's directory {facts.state_dir} cannot be made"
        return NodeRefused(RefusedBecause.CONFIG, text, hint="free some space there")
    why = f" ({facts.state_trouble})" if facts.state_trouble else ""
    return NodeRefused(
        RefusedBecause.CONFIG,
        f"{name}: llmgw's directory {facts.state_dir} cannot be made there{why}",
        hint="set state_dir in the node's entry to a place that its user may write",
    )


def _is_full(facts: Facts) -> bool:
    # some shells only say that writing failed
    full = facts.disk_free_gb is not None and facts.disk_free_gb < FULL_GB
    return full or facts.state_trouble == _FULL


def _skew(skew_s: float | None) -> str:
    if skew_s is None or abs(skew_s) <= SKEW_S:
        return ""
    size = abs(skew_s)
    span = f"{size:.0f} s" if size < 120 else f"{size / 60:.0f} min"
    if size >= 2 * 3600:
        span = f"{size / 3600:.0f} h"
    return f"its clock is {span} {'ahead' if skew_s > 0 else 'behind'}; set it (NTP)"
