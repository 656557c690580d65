"""A row of the list of replicas. Pure."""

from __future__ import annotations

from llmgw_core.api.views import ReplicaView
from llmgw_tui.rows import words
from llmgw_tui.rows.card import fetch_words, scale_for, state_words
from llmgw_tui.rows.parts import Col, Look, Part, stated
from llmgw_tui.spark import spark

SPARK_WIDTH = 8


def is_fault(replica: ReplicaView) -> bool:
    """Whether the replica needs attention."""
    return words.mark_of(words.REPLICA_MARKS, replica.state).fault


def short_id(replica: ReplicaView) -> str:
    """The id without its model's name in front, as far as it has that form."""
    head, dot, tail = replica.id.rpartition(".")
    return f"{dot}{tail}" if dot and head == replica.model else replica.id


def _state(replica: ReplicaView, look: Look) -> tuple[Part, ...]:
    mark = words.mark_of(words.REPLICA_MARKS, replica.state)
    state = stated(mark, state_words(replica), look.ascii)
    if fetched := fetch_words(replica, short=True):
        return (state, Part(f"  {fetched}", "muted", spans=True))
    if _without_numbers(replica):
        return (state, Part(f"  {_sentence(replica, look)}", "muted", spans=True))
    return (state,)


def _without_numbers(replica: ReplicaView) -> bool:
    """Whether a sentence can stand where the numbers would."""
    numbers = (replica.running, replica.waiting, replica.kv_usage, replica.tokens_per_s)
    return is_fault(replica) and all(number is None for number in numbers)


def _why(replica: ReplicaView, look: Look) -> tuple[Part, ...]:
    return (Part("" if _without_numbers(replica) else _sentence(replica, look), "muted"),)


def _sentence(replica: ReplicaView, look: Look) -> str:
    texts = [replica.reason] if replica.reason else []
    if replica.failures > 1:
        texts.append(f"{replica.failures} failures")
    if replica.retry_at is not None and replica.retry_at > look.now:
        texts.append(f"next try in {words.span(replica.retry_at - look.now)}")
    return ", ".join(texts)


def _number(value: float | None) -> tuple[Part, ...]:
    return (Part(words.number(value), "muted" if value is None else ""),)


def _share(value: float | None) -> tuple[Part, ...]:
    return (Part(words.share(value), "muted" if value is None else ""),)


def _curve(replica: ReplicaView, look: Look) -> tuple[Part, ...]:
    if not replica.tokens_history:
        return (Part(words.UNKNOWN, "muted"),)
    top = scale_for(replica.tokens_history)
    return (Part(spark(replica.tokens_history, 0.0, top, SPARK_WIDTH, ascii=look.ascii), "spark"),)


REPLICA_COLUMNS: tuple[Col[ReplicaView], ...] = (
    Col(key="model", title="MODEL", width=10, grow=2, cell=lambda r, _: (Part(r.model, "strong"),),
        sort=lambda r: (r.model, r.id)),
    Col(key="replica", title="REPLICA", width=7, drop=5, sort=lambda r: r.id,
        cell=lambda r, _: (Part(short_id(r)),)),
    Col(key="node", title="NODE", width=8, grow=1, drop=2, sort=lambda r: r.nodes,
        cell=lambda r, _: (Part(", ".join(r.nodes) or words.UNKNOWN),)),
    Col(key="state", title="STATE", width=15, cell=_state, sort=lambda r: r.state),
    Col(key="running", title="RUN", width=4, right=True, drop=3, sort=lambda r: r.running,
        cell=lambda r, _: _number(r.running)),
    Col(key="waiting", title="WAIT", width=4, right=True, drop=4, sort=lambda r: r.waiting,
        cell=lambda r, _: _number(r.waiting)),
    Col(key="kv", title="KV", width=5, right=True, drop=7, sort=lambda r: r.kv_usage,
        cell=lambda r, _: _share(r.kv_usage)),
    Col(key="tokens", title="TOK/S", width=6, right=True, drop=3, sort=lambda r: r.tokens_per_s,
        cell=lambda r, _: _number(r.tokens_per_s)),
    Col(key="curve", title="", width=SPARK_WIDTH, cell=_curve, drop=8),
    Col(key="age", title="AGE", width=7, right=True, drop=9, sort=lambda r: -r.since,
        cell=lambda r, look: (Part(words.age(r.since, look.now), "muted"),)),
    Col(key="memory", title="MEM GiB", width=7, right=True, drop=10,
        cell=lambda r, _: (Part(words.gib(r.memory_gb)),), sort=lambda r: r.memory_gb),
    Col(key="profile", title="PROFILE", width=8, drop=11, wide=True, sort=lambda r: r.profile,
        cell=lambda r, _: (Part(r.profile, "muted"),)),
    Col(key="port", title="PORT", width=5, right=True, drop=12, wide=True, sort=lambda r: r.port,
        cell=lambda r, _: (Part(words.UNKNOWN if r.port is None else str(r.port), "muted"),)),
    Col(key="reason", title="", width=10, grow=6, cell=_why, drop=6),
)  # fmt: skip
