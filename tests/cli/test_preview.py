"""What ``--plan`` prints."""

from typing import Any

from llmgw_core.cli.previews import preview_lines

PLAN: dict[str, Any] = {
        "actions": [
            {"step": 1, "kind": "start", "replica": "m.2", "nodes": ["b"], "why": "spread",
             "in_flight": None, "load_time_s": 3.25},
            {"step": 2, "kind": "stop", "replica": "m.1", "nodes": ["a"], "why": "a is draining",
             "in_flight": None, "load_time_s": None},
        ],
        "pending": [{"model": "m", "profile": "cpu", "node": "a", "reason": "node is draining"}],
        "headroom": {"m": {"free": None, "before": 3}},
}  # fmt: skip


def test_steps_are_lines_and_unknown_is_a_dash() -> None:
    assert preview_lines("1 replica would start, 1 would stop", PLAN) == [
        "1 replica would start, 1 would stop",
        "1. start m.2 on b (loading took 3.2 s last): spread",
        "2. stop m.1 on a (– in flight): a is draining",
        "m/cpu not on a: node is draining",
        "m: – more would fit then, 3 now",
    ]
