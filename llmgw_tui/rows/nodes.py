"""A row of the list of nodes. Pure."""

from __future__ import annotations

from llmgw_core.api.views import NodeView
from llmgw_tui.rows import words
from llmgw_tui.rows.parts import Col, Look, Part, stated
from llmgw_tui.spark import spark

SPARK_WIDTH = 5


def is_fault(node: NodeView) -> bool:
    """Whether the node needs attention."""
    return words.mark_of(words.NODE_MARKS, node.state).fault


def _state(node: NodeView, look: Look) -> tuple[Part, ...]:
    mark = words.mark_of(words.NODE_MARKS, node.state)
    state = stated(mark, node.state, look.ascii)
    if mark.fault:
        return (state, Part(f"  {_sentence(node, look)}", "muted", spans=True))
    return (state,)


def _why(node: NodeView, look: Look) -> tuple[Part, ...]:
    """Beside the numbers, where there are numbers."""
    return (Part("" if is_fault(node) else _sentence(node, look), "muted"),)


def _sentence(node: NodeView, look: Look) -> str:
    """The reason, since when, and when the next try is."""
    texts = [node.reason] if node.reason else []
    if node.state in {"unreachable", "refused"} and node.since:
        texts.append(f"since {words.clock(node.since)}")
    if node.retry_at is not None and node.retry_at > look.now:
        texts.append(f"retry in {words.span(node.retry_at - look.now)}")
    if node.state == "refused" and node.fingerprint is not None:
        texts.append("t shows the key")
    if node.holder is not None:
        texts.append("T takes it over")
    return ", ".join(texts)


def _cpu(node: NodeView, look: Look) -> tuple[Part, ...]:
    if node.cpu is None:
        return (Part(words.UNKNOWN, "muted"),)
    curve = spark(node.cpu_history, 0.0, 1.0, SPARK_WIDTH, ascii=look.ascii)
    return (Part(curve, "spark"), Part(f"{words.share(node.cpu):>6}"))


def _memory(node: NodeView, look: Look) -> tuple[Part, ...]:
    """Used of total; both as measured."""
    used = None
    if node.memory_gb is not None and node.memory_free_gb is not None:
        used = node.memory_gb - node.memory_free_gb
    return (Part(words.gib(used)), Part(f"/{_whole(node.memory_gb)}", "muted"))


def _whole(value: float | None) -> str:
    return words.UNKNOWN if value is None else f"{value:.0f}"


def _gpu(node: NodeView, look: Look) -> tuple[Part, ...]:
    if not node.gpus_total:
        return (Part(words.UNKNOWN, "muted"),)
    name = node.gpu_class or "gpu"
    return (Part(f"{words.number(node.gpus_free)}/{node.gpus_total} {name}"),)


def _booked(node: NodeView, look: Look) -> tuple[Part, ...]:
    return (Part(words.number(node.cores_booked)), Part(f"/{words.number(node.cores)}", "muted"))


def _reserved(node: NodeView, look: Look) -> tuple[Part, ...]:
    return (Part(words.gib(node.memory_booked_gb)), Part(f"/{_whole(node.memory_gb)}", "muted"))


def _engines(node: NodeView, look: Look) -> tuple[Part, ...]:
    if node.engines is None:
        return (Part(words.UNKNOWN, "muted"),)
    return (Part(", ".join(dict.fromkeys(e.name for e in node.engines)) or "none"),)


def _labels(node: NodeView, look: Look) -> tuple[Part, ...]:
    return (Part(" ".join(f"{k}={v}" for k, v in sorted(node.labels.items())), "muted"),)


def _number(value: float | None, digits: int = 0) -> tuple[Part, ...]:
    text = words.number(value, digits)
    return (Part(text, "muted" if value is None else ""),)


NODE_COLUMNS: tuple[Col[NodeView], ...] = (
    Col(key="name", title="NAME", width=8, grow=2, cell=lambda n, _: (Part(n.name, "strong"),),
        sort=lambda n: n.name),
    Col(key="state", title="STATE", width=13, cell=_state, sort=lambda n: n.state),
    Col(key="cpu", title="CPU", width=12, right=True, cell=_cpu, sort=lambda n: n.cpu, drop=2),
    Col(key="memory", title="MEM GiB", width=9, right=True, cell=_memory, drop=3,
        sort=lambda n: n.memory_free_gb),
    Col(key="gpu", title="GPU", width=8, cell=_gpu, drop=6, sort=lambda n: n.gpus_free),
    Col(key="replicas", title="REPL", width=4, right=True, drop=4,
        cell=lambda n, _: _number(n.replicas), sort=lambda n: n.replicas),
    Col(key="link", title="SSH", width=6, right=True, drop=7, sort=lambda n: n.rtt_s,
        cell=lambda n, _: (Part(words.millis(n.rtt_s), "" if n.rtt_s is not None else "muted"),)),
    Col(key="cores", title="CORES", width=7, right=True, cell=_booked, drop=8,
        sort=lambda n: n.cores_booked),
    Col(key="reserved", title="RSVD GiB", width=9, right=True, cell=_reserved, drop=9,
        sort=lambda n: n.memory_booked_gb),
    Col(key="disk", title="DISK GiB", width=8, right=True, drop=11, wide=True,
        cell=lambda n, _: (Part(words.gib(n.disk_free_gb)),), sort=lambda n: n.disk_free_gb),
    Col(key="engines", title="ENGINES", width=10, cell=_engines, drop=10, wide=True),
    Col(key="labels", title="LABELS", width=16, grow=1, drop=12, wide=True,
        cell=_labels),
    Col(key="host", title="HOST", width=14, grow=1, drop=13, wide=True,
        cell=lambda n, _: (Part(n.host, "muted"),), sort=lambda n: n.host),
    Col(key="reason", title="", width=10, grow=6, cell=_why, drop=5),
)  # fmt: skip
