"""What a serve dialog says about a plan: facts, notes beside fields, and what will happen. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from llmgw_core.api.serve_views import MeasuredView, ServePlanView, WhereView
from llmgw_tui.rows import words

GIB = 1024**3
OBSTACLES_SHOWN = 3


def size(count: int | None) -> str:
    """Bytes as people read them, in powers of 1024."""
    if count is None:
        return words.UNKNOWN
    if count >= GIB:
        return f"{count / GIB:.1f} GiB"
    if count >= 1024**2:
        return f"{count / 1024**2:.0f} MiB"
    return f"{count / 1024:.0f} KiB"


def facts(view: ServePlanView) -> str:
    """The weights in a line: version, files, size, architecture, quantization, parameters."""
    files = "1 file" if view.files == 1 else f"{view.files} files"
    parts = [
        f"mirror {view.version}" if view.in_mirror else view.version,
        f"{files}, {size(view.bytes)}",
        " ".join(text for text in (view.architecture, _parameters(view), view.file_type) if text),
    ]
    return " · ".join(part for part in parts if part)


def _parameters(view: ServePlanView) -> str:
    count = view.parameters
    if count is None:
        return ""
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.0f}M"


def notes(view: ServePlanView, form: Mapping[str, str]) -> dict[str, str]:
    """What stands beside fields: where their value comes from, and what follows from it."""
    found = {
        "engine": _engine(view),
        "ctx_pool": _context(view),
        "parallel": _slots(view),
        "memory": _memory(view, form.get("memory", "")),
        "cores": _cores(view, form.get("cores", "")),
        "cache_ram": "MiB" if form.get("cache_ram") else "",
        "idle": "" if form.get("mode") == "ondemand" else "only on demand",
    }
    if view.already and form.get("name") == view.model:
        found["name"] = "taken"
    return found


def _engine(view: ServePlanView) -> str:
    if not view.engine_nodes:
        return "on no node yet"
    return f"on {listed(view.engine_nodes)}"


def _context(view: ServePlanView) -> str:
    own = f"the model's own limit is {view.context_length}" if view.context_length else ""
    if view.slot_context is None:
        return own
    many = view.parallel > 1
    slots = f"{view.parallel} slots share it" if many and view.unified else "tokens"
    return "; ".join(part for part in (slots, own) if part)


def _slots(view: ServePlanView) -> str:
    if view.slot_context is None:
        return ""
    while_idle = " while others are idle" if view.unified and view.parallel > 1 else ""
    return f"{view.slot_context} tokens for one{while_idle}"


def _memory(view: ServePlanView, typed: str) -> str:
    estimate = f"GiB = {view.memory_basis}" if view.memory_basis else "GiB"
    planned = view.filled.get("memory", "")
    if planned and typed.strip() != planned:
        estimate += f" · the plan says {planned}"
    return estimate + (f" · {measured(view.measured)}" if view.measured is not None else "")


def measured(seen: MeasuredView) -> str:
    """What a replica really used, to stand beside the estimate."""
    text = f"last time it used {seen.peak_gb:.1f} on {seen.node}"
    return text if seen.exact else f"{text}, with another build or other devices"


def _cores(view: ServePlanView, typed: str) -> str:
    planned = view.filled.get("cores", "")
    text = view.cores_basis
    return text if typed.strip() == planned or not planned else f"the plan says {planned}: {text}"


def consequence(where: WhereView | None) -> str:
    """Where the first replica will go, whom it takes from, and how long it will take."""
    if where is None:
        return ""
    if where.node is None:
        return _nowhere(where)
    sentences = [f"Will go to {where.node}" + (f" ({where.why})." if where.why else ".")]
    sentences.append(f"Evicts {listed(where.evicts)}." if where.evicts else "Evicts nothing.")
    sentences.append(_fetching(where))
    if where.load_time_s is not None:
        sentences.append(f"Loading took {words.millis(where.load_time_s)} before.")
    return " ".join(sentence for sentence in sentences if sentence)


def _fetching(where: WhereView) -> str:
    if where.fetch_bytes == 0:
        return f"The weights are on {where.node} already."
    held = f" ({listed(where.held_by)} has them)" if where.held_by else ""
    if where.fetch_bytes is None:
        return f"What it has to fetch is not known{held}."
    return f"Fetches {size(where.fetch_bytes)} first{held}."


def _nowhere(where: WhereView) -> str:
    shown = where.obstacles[:OBSTACLES_SHOWN]
    rest = len(where.obstacles) - len(shown)
    reasons = [f"{node}: {reason}" if node else reason for node, reason in shown]
    more = [f"{rest} more"] if rest else []
    text = "Fits nowhere now, and waits until it does"
    return f"{text} ({'; '.join([*reasons, *more])})." if reasons else f"{text}."


def listed(names: tuple[str, ...], most: int = 6) -> str:
    """A few names, and how many more."""
    rest = len(names) - most
    text = ", ".join(names[:most])
    return f"{text} and {rest} more" if rest > 0 else text
