"""What stands where a list has no rows: why, and what to do. Pure."""

from __future__ import annotations

from llmgw_core.api.views import ReplicaView, Snapshot

NO_NODES = """No nodes yet.

Add one to {config} and type :reload

  [[nodes]]
  name = "n1"
  host = "n1.example.org"     or an alias from ~/.ssh/config

  local = true   instead of a host takes this machine."""

NO_MODELS = """No models yet.

Press n to serve weights (of the mirror, a hub, a URL or a node),
or add a model to {config} and type :reload.

  [[models]]
  name = "smollm2"
  source = "hf:HuggingFaceTB/SmolLM2-135M-Instruct-GGUF"

  [[models.profiles]]
  name = "cpu"
  engine = "llamacpp\""""

NO_VERSIONS = """The mirror holds no weights yet.

Press P to pull some, or type

  :mirror pull hf:ORG/REPO                 all weights of a repository
  :mirror pull hf:ORG/REPO:*Q4_K_M.gguf    those that match
  :mirror pull https://HOST/FILE.gguf
  :mirror pull /a/path/on/{host}

A model of the catalog with such a source is pulled by itself."""

NO_FAULTS = "Nothing needs attention. z shows all."
NO_MATCH = "Nothing matches the filter. esc clears it."
NO_EVENTS = "Nothing has happened yet."


def _config(snapshot: Snapshot) -> str:
    return snapshot.controller.config_file or "config.toml"


def no_nodes(snapshot: Snapshot) -> str:
    """How to add a node."""
    return NO_NODES.format(config=_config(snapshot))


def no_models(snapshot: Snapshot) -> str:
    """How to add a model."""
    return NO_MODELS.format(config=_config(snapshot))


def no_versions(snapshot: Snapshot) -> str:
    """How to fill the mirror."""
    return NO_VERSIONS.format(host=snapshot.controller.host)


def no_replicas(snapshot: Snapshot) -> str:
    """Why nothing runs, model by model."""
    if not snapshot.models:
        return "No replicas: there are no models yet (4 shows how to add one)."
    lines = ["No replicas."]
    for model in snapshot.models[:12]:
        why = model.reason or {
            "stopped": "stopped; + or s starts it",
            "ondemand": "on demand; the first request starts it, or + does",
        }.get(model.mode.replace(" ", ""), model.state or "not placed yet")
        lines.append(f"  {model.name}: {why}")
    return "\n".join(lines)


def starting(sentences: list[str]) -> str:
    """Until the engine answers."""
    return "\n".join(["starting the engine…", *(f"  {sentence}" for sentence in sentences)])


def no_log(id_: str | None, replica: ReplicaView | None, ended: str) -> str:
    """Why there is no line of a log."""
    if id_ is None:
        return "No replica is selected: choose one in the list (3) and press l."
    if ended and ended != "the whole log":
        return f"No log of {id_}: {ended}."
    if replica is None:
        return f"No log of {id_} yet: it is not among the replicas (any more)."
    why = f": {replica.reason}" if replica.reason else ""
    return f"No log of {id_} yet, it is {replica.state}{why}."
