"""A row of the list of models. Pure."""

from __future__ import annotations

from llmgw_core.api.views import ModelView
from llmgw_tui.rows import words
from llmgw_tui.rows.card import scale_for
from llmgw_tui.rows.parts import Col, Look, Part, stated
from llmgw_tui.spark import spark

SPARK_WIDTH = 12


def is_fault(model: ModelView) -> bool:
    """Whether the model needs attention."""
    return words.mark_of(words.MODEL_MARKS, model.state).fault


def _state(model: ModelView, look: Look) -> tuple[Part, ...]:
    mark = words.mark_of(words.MODEL_MARKS, model.state)
    return (stated(mark, model.state or words.UNKNOWN, look.ascii),)


def _ready(model: ModelView, look: Look) -> tuple[Part, ...]:
    return (Part(str(model.replicas.ready)), Part(f"/{model.replicas.total}", "muted"))


def _number(value: float | None) -> tuple[Part, ...]:
    return (Part(words.number(value), "muted" if value is None else ""),)


def _curve(model: ModelView, look: Look) -> tuple[Part, ...]:
    if not model.tokens_history:
        return (Part(words.UNKNOWN, "muted"),)
    top = scale_for(model.tokens_history)
    return (Part(spark(model.tokens_history, 0.0, top, SPARK_WIDTH, ascii=look.ascii), "spark"),)


def _without_numbers(model: ModelView) -> bool:
    """Whether the reason can stand where the numbers would."""
    numbers = (model.running, model.waiting, model.tokens_per_s)
    return is_fault(model) and bool(model.reason) and all(number is None for number in numbers)


def _reason(model: ModelView, look: Look) -> tuple[Part, ...]:
    return (Part("" if _without_numbers(model) else model.reason, "muted"),)


def _mode(model: ModelView, look: Look) -> tuple[Part, ...]:
    if _without_numbers(model):
        return (Part(model.reason, "muted", spans=True),)
    return (Part(words.mode_words(model.mode, model.scaling.min, model.scaling.max)),)


MODEL_COLUMNS: tuple[Col[ModelView], ...] = (
    Col(key="name", title="NAME", width=14, grow=3, cell=lambda m, _: (Part(m.name, "strong"),),
        sort=lambda m: m.name),
    Col(key="state", title="STATE", width=13, cell=_state, sort=lambda m: m.state),
    Col(key="mode", title="RUNS", width=15, cell=_mode, sort=lambda m: m.mode, drop=2),
    Col(key="ready", title="READY", width=5, right=True, cell=_ready, drop=1,
        sort=lambda m: m.replicas.ready),
    Col(key="running", title="RUN", width=4, right=True, drop=3, sort=lambda m: m.running,
        cell=lambda m, _: _number(m.running)),
    Col(key="waiting", title="WAIT", width=4, right=True, drop=4, sort=lambda m: m.waiting,
        cell=lambda m, _: _number(m.waiting)),
    Col(key="tokens", title="TOK/S", width=6, right=True, drop=3, sort=lambda m: m.tokens_per_s,
        cell=lambda m, _: _number(m.tokens_per_s)),
    Col(key="curve", title="", width=SPARK_WIDTH, cell=_curve, drop=7),
    Col(key="requests", title="REQUESTS", width=8, right=True, drop=9,
        cell=lambda m, _: _number(m.requests_total), sort=lambda m: m.requests_total),
    Col(key="class", title="CLASS", width=11, drop=8, sort=lambda m: m.model_class,
        cell=lambda m, _: (Part(m.model_class),)),
    Col(key="owner", title="OWNER", width=9, drop=9, sort=lambda m: m.owner or "",
        cell=lambda m, _: (Part(m.owner or words.UNKNOWN),)),
    Col(key="from", title="FROM", width=8, drop=10, sort=lambda m: m.declared,
        cell=lambda m, _: (Part("declared" if m.declared else "added", "muted"),)),
    Col(key="source", title="SOURCE", width=20, grow=2, drop=11, wide=True,
        cell=lambda m, _: (Part(m.source, "muted"),), sort=lambda m: m.source),
    Col(key="reason", title="", width=10, grow=6, drop=5, cell=_reason),
)  # fmt: skip
