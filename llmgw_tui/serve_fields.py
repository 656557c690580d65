"""The fields of the serve dialog: their order, how each is edited, and what each means. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from llmgw_core.api.serve_views import ServePlanView
from llmgw_core.serve.form import LABELS

MODES = (("always", "always"), ("ondemand", "on demand"), ("stopped", "stopped"))
ENGINES = ("llamacpp", "vllm")
KV_TYPES = ("f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl", "bf16", "f32")
NOBODY = "nobody's quota"
NO_CLASS = "none: on CPU"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the form."""

    name: str
    """As ``ServeForm`` calls it."""
    help: str
    """One line that stands at the bottom while the field has the focus."""
    short: bool = False
    """A number or a few letters: there is room for a note beside it."""
    picked: bool = False
    """One of a few words, not typed."""

    @property
    def label(self) -> str:
        """What stands before it."""
        return LABELS[self.name]


def _typed(name: str, help_: str) -> Field:
    return Field(name, help_)


def _short(name: str, help_: str) -> Field:
    return Field(name, help_, short=True)


def _picked(name: str, help_: str) -> Field:
    return Field(name, help_, picked=True)


ROWS: tuple[tuple[Field, ...], ...] = (
    (
        _typed("name", "What clients ask for as `model`; it cannot be changed later."),
        _typed("aliases", "Other names that clients may use, with commas between."),
    ),
    (
        _picked("mode", "Always: all the time. On demand: a request starts it, idleness ends it. "
                "Stopped: only in the catalog."),
        _short("replicas", "How many copies run at once; on demand: at most so many."),
    ),
    (
        _short("ctx_pool", "Tokens of context that all slots share; the KV cache grows with it."),
        _short("parallel", "Requests that one replica answers at a time."),
    ),
    (
        _picked("kv_type", "How the KV cache is stored: q8_0 takes half of f16, q4_0 a quarter, "
                "at some cost in quality."),
        _short("cache_ram", "MiB of memory in which prompts are kept to be continued; 0 for none."),
    ),
    (
        _short("memory", "GiB that are reserved on the node for each replica; none without it."),
    ),
    (
        _short("cores", "Cores that are reserved for each replica, and the engine's threads."),
    ),
    (
        _picked("engine", "The program that runs the model on a node."),
        _typed("profile", "A name for this way to run the model; the engine's where empty."),
    ),
    (
        _picked("gpu_class", "The kind of GPU that it needs; without one it runs on the CPU."),
        _short("idle", "On demand: how long without a request until it ends, such as 15m."),
    ),
    (
        _picked("model_class", "What its capacity is worth against that of others."),
        _picked("owner", "Whose quota it is charged to."),
    ),
    (
        _typed("selector_key", "Only on nodes with this label; with the value beside it."),
        _typed("selector_value", "The value that the label must have."),
    ),
    (
        _short("context_length", "What clients are told that a request may hold."),
        _short("max_output", "The most tokens of an answer, where a client does not say."),
    ),
    (
        _typed("description", "What people read in the list of models."),
        _typed("source", "Where the weights come from: mirror:…, hf:…, a URL, or a path on nodes."),
    ),
)  # fmt: skip
"""Two of a row stand beside each other where there is room."""

FIELDS = {field.name: field for row in ROWS for field in row}


def choices(name: str, view: ServePlanView | None, now: str) -> tuple[tuple[str, str], ...]:
    """Value and word for each that can be picked; what stands there now is always among them."""
    words: tuple[tuple[str, str], ...]
    match name:
        case "mode":
            words = MODES
        case "kv_type":
            words = tuple((kind, kind) for kind in KV_TYPES)
        case "engine":
            words = tuple((engine, engine) for engine in ENGINES)
        case "gpu_class":
            own = view.gpu_classes if view is not None else ()
            words = (("", NO_CLASS), *((c, c) for c in own))
        case "model_class":
            own = view.classes if view is not None else ()
            words = tuple((c, c) for c in own)
        case _:
            own = view.owners if view is not None else ()
            words = (("", NOBODY), *((o, o) for o in own))
    if now not in {value for value, _ in words}:
        words = (*words, (now, now or "none"))
    return words
