"""Fleets to look at: the one of the sketches, an empty one, a hostile one, a moving one."""

from __future__ import annotations

import math
import random

from msgspec.structs import replace

from llmgw_core.api.views import (
    ControllerView,
    EngineView,
    EventView,
    GatewayView,
    GpuView,
    Headroom,
    MirrorFileView,
    MirrorVersionView,
    MirrorView,
    ModelView,
    NodeView,
    ProfileView,
    ReplicaCount,
    ReplicaView,
    ScalingView,
    Snapshot,
)

NOW = 1_760_000_000.0
"""When the still fleets were looked at (Unix seconds)."""

LLAMA = EngineView("llamacpp", "llama-server", "b6500", "/usr/local/bin/llama-server")


def wave(length: int, low: float, high: float, phase: float = 0.0) -> tuple[float, ...]:
    """A calm curve between two values."""
    half = (high - low) / 2
    return tuple(low + half + half * math.sin(i / 4 + phase) for i in range(length))


def node(name: str, **fields: object) -> NodeView:
    """A ready node with 16 cores and 16 GiB, but for what is given."""
    usual = NodeView(
        name=name, host=f"{name}.lab", state="ready", since=NOW - 7200, cores=16.0,
        cores_booked=8.0, memory_gb=16.0, memory_free_gb=4.8, memory_booked_gb=6.0, cpu=0.62,
        cpu_history=wave(30, 0.4, 0.7), load1=9.8, gpus_total=0, gpus_free=0, engines=(LLAMA,),
        labels={"disk": "nvme", "rack": "a"}, replicas=2, rtt_s=0.008, os="Linux 6.8",
        arch="x86_64", disk_free_gb=211.0, clock_skew_s=0.01, fingerprint="SHA256:47DEQpj8HBSa",
    )  # fmt: skip
    return replace(usual, **fields)


def replica(id_: str, model: str, on: str, **fields: object) -> ReplicaView:
    """A ready replica, but for what is given."""
    usual = ReplicaView(
        id=id_, model=model, profile="cpu", nodes=(on,), state="ready", since=NOW - 3600,
        port=18080, pid=4711, revision="3f2a91c", running=2, waiting=0, kv_usage=0.41,
        tokens_per_s=221.0, prompt_tokens_per_s=900.0, outstanding=2, memory_gb=0.42,
        load_time_s=3.2, tokens_history=wave(40, 100, 300),
        argv=("llama-server", "--model", f"/srv/models/{model}.gguf", "--port", "18080",
              "--ctx-size", "16384", "--parallel", "4", "--metrics"),
    )  # fmt: skip
    return replace(usual, **fields)


def profile(name: str = "cpu", **fields: object) -> ProfileView:
    """A CPU profile, but for what is given."""
    usual = ProfileView(
        name=name, engine="llamacpp", gpu_class=None, tp=1, pp=1, nodes=1, gpus_per_node=0,
        args=("--ctx-size", "16384", "--parallel", "4"), env={"HF_TOKEN": "•••"}, weight=1.0,
        priority=100, startup_timeout_s=1200.0, min_memory_gb=1.0, cpu_cores=4.0,
        node_selector={"disk": "nvme"},
    )  # fmt: skip
    return replace(usual, **fields)


def model(name: str, **fields: object) -> ModelView:
    """An added model that always runs two replicas, but for what is given."""
    usual = ModelView(
        name=name, aliases=(f"{name}-latest",), mode="always", scaling=ScalingView(2, 2, 900.0),
        model_class="standard", owner="team-a", replicas=ReplicaCount(2, 2),
        headroom=Headroom(3, 4), profiles=(profile(),), declared=False,
        source=f"hf:org/{name}-gguf:{name}-q4_k_m.gguf", description="A small chat model",
        context_length=8192, state="ready", running=3, waiting=0, tokens_per_s=412.0,
        requests_total=9182, tokens_history=wave(60, 250, 430),
        running_history=wave(60, 0, 4), waiting_history=(0.0,) * 60, changed_by="you",
        changed_at=NOW - 600, architecture="llama", estimate_gb=7.3, measured_gb=6.9,
        memory_basis="weights 4.6 GB + KV cache 2.0 GB for 16384 tokens (32 layers × 8 KV heads) "
        "+ 0.3 GB for the engine + 0.4 GB prompt cache",
    )  # fmt: skip
    return replace(usual, **fields)


GIB = 1024**3
SHA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


def file(name: str, **fields: object) -> MirrorFileView:
    """A file of 4.6 GiB that is there, but for what is given."""
    size = int(4.6 * GIB)
    usual = MirrorFileView(name, size, size, "done", SHA)
    return replace(usual, **fields)


def version(name: str, **fields: object) -> MirrorVersionView:
    """A version (``MODEL/VERSION``) of one file that is there, but for what is given."""
    model_, _, version_ = name.partition("/")
    size = int(4.6 * GIB)
    usual = MirrorVersionView(
        model_, version_, (file(f"{model_}-q4_k_m.gguf"),), f"hf:org/{model_}-gguf:*q4_k_m.gguf",
        "9e1c2f3a4b5d6e7f8091a2b3c4d5e6f708192a3b", bytes_done=size, bytes_total=size,
        created=NOW - 86400,
    )  # fmt: skip
    return replace(usual, **fields)


def mirror(**fields: object) -> MirrorView:
    """A mirror with a version in every state, but for what is given."""
    part = int(1.6 * GIB)
    whole = int(4.6 * GIB)
    usual = MirrorView(
        "serving", "http://10.0.0.1:8081", 4244, "/srv/mirror", 211.0,
        versions=(
            version("gemma3/9e1c2f3a4b5d", used_by=("gemma3",), nodes=("n1", "n2")),
            version("qwen3-30b-a3b/2026-11-30", state="pulling", bytes_done=part,
                    rate=110e6, created=NOW - 15, files=(
                        file("qwen3-00001-of-00003.safetensors", bytes_done=part, sha256=None,
                             state="fetching", rate=110e6),
                        file("qwen3-00002-of-00003.safetensors", bytes_done=0, sha256=None,
                             state="waiting"),
                        file("tokenizer.json", bytes_done=11_422_654, bytes_total=11_422_654))),
            version("phi4/main", state="pulling", bytes_done=812 * 1024**2, bytes_total=None,
                    source="https://files.lab/phi4.gguf", revision="", files=(
                        file("phi4.gguf", bytes_done=812 * 1024**2, bytes_total=None, sha256=None,
                             state="fetching"),)),
            version("mistral/7b-v0.3", state="failed", bytes_done=part,
                    error="mistral-q4_k_m.gguf: the hub has refused the token (403)", files=(
                        file("mistral-q4_k_m.gguf", bytes_done=part, state="failed",
                             error="the hub has refused the token (403)"),)),
            version("llama3/8b", state="damaged", used_by=("llama3",),
                    error="llama3-q4_k_m.gguf: 3 pieces are not as they were stored", files=(
                        file("llama3-q4_k_m.gguf", state="damaged",
                             error="3 pieces are not as they were stored"),)),
            version("smollm2-360m-instruct/a10cc1512eab", state="incomplete", bytes_done=part,
                    bytes_total=whole, source="/data/smollm2", revision="", created=None, files=(
                        file("smollm2.gguf", bytes_done=part, state="waiting", sha256=None),)),
        ),
    )  # fmt: skip
    return replace(usual, **fields)


def snapshot(version: int = 1, **fields: object) -> Snapshot:
    """An empty cluster that serves, but for what is given."""
    usual = Snapshot(
        version=version, time=NOW, cluster="lab-4",
        controller=ControllerView(
            mode="console", pid=4242, host="desk", started=NOW - 9000, version="0.1.0",
            config_file="/etc/llmgw/config.toml", state_dir="/var/lib/llmgw",
            loop_lag_s=0.002, tick_s=0.011,
        ),
        gateway=GatewayView(
            state="serving", address="127.0.0.1:8080", pid=4243, requests_per_s=12.4,
            requests_total=91820, open_connections=7,
        ),
    )  # fmt: skip
    return replace(usual, **fields)


def lab() -> Snapshot:
    """The fleet of the sketches: four nodes, four replicas, three models, some of it in trouble."""
    return snapshot(
        nodes=(
            node("n1"),
            node("n2", cpu=0.09, cpu_history=wave(30, 0.02, 0.12), memory_free_gb=12.9,
                 rtt_s=0.009, replicas=1, cores_booked=4.0),
            node("n3", state="draining", reason="drained by you", cpu=0.02,
                 cpu_history=wave(30, 0, 0.04), memory_gb=64.0, memory_free_gb=62.0,
                 gpu_class="l4", gpus_total=2, gpus_free=2, replicas=0, rtt_s=0.011,
                 gpus=(GpuView(0, "NVIDIA L4", 24.0, 0.4, 0.0, True),
                       GpuView(1, "NVIDIA L4", 24.0, 21.0, 0.93, True))),
            node("n4", state="unreachable", reason="no answer", since=NOW - 102,
                 retry_at=NOW + 8, cpu=None, cpu_history=(), memory_free_gb=None, rtt_s=None,
                 replicas=1),
        ),
        replicas=(
            replica("smollm2.1", "smollm2", "n1"),
            replica("smollm2.3", "smollm2", "n2", state="loading", progress=0.63, since=NOW - 4,
                    running=None, waiting=None, kv_usage=None, tokens_per_s=None,
                    tokens_history=(), memory_gb=None),
            replica("smollm2.2", "smollm2", "n4", state="unknown", reason="n4 is unreachable",
                    running=None, waiting=None, kv_usage=None, tokens_per_s=None,
                    tokens_history=()),
            replica("gemma3.1", "gemma3", "n1", running=1, kv_usage=0.12, tokens_per_s=191.0,
                    port=18081, pid=4712),
        ),
        models=(
            model("smollm2", replicas=ReplicaCount(1, 3), state="starting",
                  reason="smollm2.3 is loading on n2"),
            model("gemma3", mode="always", scaling=ScalingView(1, 1, 900.0), declared=True,
                  replicas=ReplicaCount(1, 1), running=1, tokens_per_s=191.0, owner=None),
            model("qwen3", mode="ondemand", scaling=ScalingView(0, 2, 900.0), running=None,
                  waiting=None, tokens_per_s=None, tokens_history=(), running_history=(),
                  waiting_history=(), replicas=ReplicaCount(0, 0), state="on demand"),
        ),
        mirror=mirror(),
    )  # fmt: skip


def fetching() -> Snapshot:
    """Weights on their way: to a node, and into the mirror."""
    idle = {"running": None, "waiting": None, "kv_usage": None, "tokens_per_s": None,
            "tokens_history": (), "memory_gb": None, "argv": (), "pid": None, "port": None,
            "since": NOW - 15, "load_time_s": None, "outstanding": None,
            "prompt_tokens_per_s": None, "revision": None}  # fmt: skip
    still = {"running": None, "waiting": None, "tokens_per_s": None, "tokens_history": (),
             "running_history": (), "waiting_history": ()}  # fmt: skip
    return snapshot(
        nodes=(node("n1"),),
        replicas=(
            replica("gemma3.1", "gemma3", "n1", state="fetching", progress=0.34,
                    fetched_bytes=int(1.6 * GIB), fetch_bytes=int(4.6 * GIB), fetch_rate=110e6,
                    **idle),
            replica("gemma3.2", "gemma3", "n1", state="fetching", **idle),
        ),
        models=(
            model("gemma3", replicas=ReplicaCount(0, 2), state="starting", **still),
            model("qwen3", replicas=ReplicaCount(0, 0), state="pending",
                  reason="the mirror pulls hf:org/qwen3-30b-a3b-gguf: 34 % of 4.9 GB", **still),
        ),
        mirror=replace(mirror(), versions=tuple(
            replace(v, used_by=("qwen3",)) if v.state == "pulling" and v.rate else v
            for v in mirror().versions
        )),
    )  # fmt: skip


def lab_events() -> tuple[EventView, ...]:
    """What happened in the lab."""
    return (
        EventView(1, NOW - 460, "replica.ready",
                  "gemma3.1 ready in 3.2 s (estimate 0.5 GiB, used 0.42 GiB)",
                  node="n1", model="gemma3", replica="gemma3.1"),
        EventView(2, NOW - 311, "model.scaled", "gemma3 scaled from on demand to always 1",
                  actor="you", model="gemma3"),
        EventView(3, NOW - 102, "node.unreachable",
                  "n4 link lost: its replicas are unknown and get no requests",
                  severity="warning", node="n4"),
        EventView(4, NOW - 20, "replica.placed",
                  "n4 unreachable for 60 s: smollm2.2 replaced on n2 (fewest replicas)",
                  severity="warning", node="n2", model="smollm2", replica="smollm2.3"),
    )  # fmt: skip


HOSTILE = (
    "[red]x[/red]", "bad [/x] y", "esc\x1b[31mred\x07", "two\nlines\tand\ttabs", "x" * 200,
    "模型模型模型模型模型", "e\u0301\u0301 \u202eltr \u200bz", "[@click=app.quit]go[/]",
)  # fmt: skip
"""Names and sentences that must come out as plain text."""


def hostile() -> Snapshot:
    """A fleet in which everything that comes from outside tries to be something else."""
    return snapshot(
        cluster=HOSTILE[1],
        gateway=GatewayView("down", address=HOSTILE[0], reason=HOSTILE[3]),
        nodes=tuple(
            node(n, host=n, reason=n, state="unreachable" if i % 2 else "ready", os=n,
                 labels={n: n}, gpu_class=n, engines=(EngineView(n, n, n, n),), fabric=n)
            for i, n in enumerate(HOSTILE)
        ),
        replicas=tuple(
            replica(f"{n}.1", n, n, reason=n, state="failed" if i % 2 else "ready", profile=n,
                    log_tail="\n".join(HOSTILE), argv=HOSTILE, revision=n)
            for i, n in enumerate(HOSTILE)
        ),
        models=tuple(
            model(n, aliases=HOSTILE, reason=n, description=n, source=n, owner=n, model_class=n,
                  profiles=(profile(n, args=HOSTILE, env={n: n}),), state=n)
            for n in HOSTILE
        ),
        mirror=MirrorView(HOSTILE[0], HOSTILE[1], None, HOSTILE[2], None, reason=HOSTILE[3],
                          versions=tuple(
            MirrorVersionView(n, n, (MirrorFileView(n, 1, 2, n, n, 1.0, n),), n, n,
                              "failed" if i % 2 else n, 1, None, None, n, used_by=HOSTILE,
                              nodes=HOSTILE)
            for i, n in enumerate(HOSTILE)
        )),
    )  # fmt: skip


def hostile_events() -> tuple[EventView, ...]:
    """Events about the hostile fleet."""
    return tuple(
        EventView(i + 1, NOW - i, n, n, actor=n, severity="error", node=n, model=n,
                  replica=f"{n}.1")
        for i, n in enumerate(HOSTILE)
    )  # fmt: skip


def crowd(nodes: int, replicas: int) -> Snapshot:
    """A large fleet."""
    return snapshot(
        nodes=tuple(node(f"n{i:03}") for i in range(nodes)),
        replicas=tuple(
            replica(f"m{i % 7}.{i}", f"m{i % 7}", f"n{i % nodes:03}") for i in range(replicas)
        ),
        models=tuple(model(f"m{i}") for i in range(7)),
    )


class Moving:
    """A fleet that lives: loads come and go, replicas start, one node goes away and comes back."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)
        self._base = lab()
        self._step = 0
        self._load = {n.name: n.cpu or 0.1 for n in self._base.nodes}
        self._tokens: dict[str, list[float]] = {}

    def next(self, now: float) -> Snapshot:
        """The next moment."""
        self._step += 1
        base = self._base
        away = 20 < self._step % 60 < 45
        moved = tuple(self._node(n, now, away=away) for n in base.nodes)
        copies = tuple(self._replica(r, now, away=away) for r in base.replicas)
        return replace(
            base, version=self._step, time=now, nodes=moved, replicas=copies,
            models=tuple(self._model(m, copies) for m in base.models),
            mirror=replace(base.mirror, versions=tuple(map(self._version, base.mirror.versions))),
            gateway=replace(base.gateway, requests_per_s=9 + 4 * self._random.random()),
            controller=replace(base.controller, loop_lag_s=0.001 + 0.003 * self._random.random()),
        )  # fmt: skip

    def event(self, seq: int, now: float) -> EventView | None:
        """Now and then, something happens."""
        match self._step % 60:
            case 21:
                return EventView(seq, now, "node.unreachable", "n4 link lost: not routed",
                                 severity="warning", node="n4")  # fmt: skip
            case 45:
                return EventView(seq, now, "node.ready", "n4 is back, its replicas adopted",
                                 node="n4")  # fmt: skip
        return None

    def _node(self, shown: NodeView, now: float, *, away: bool) -> NodeView:
        if shown.name == "n4" and away:
            return replace(shown, since=now - (self._step % 60 - 20), retry_at=now + 4)
        load = self._load[shown.name]
        load = min(1.0, max(0.0, load + self._random.uniform(-0.06, 0.06)))
        self._load[shown.name] = load
        history = (*shown.cpu_history[-29:], load)
        state = "ready" if shown.name == "n4" else shown.state
        return replace(
            shown, cpu=load, cpu_history=history, state=state, rtt_s=shown.rtt_s or 0.010,
            reason=shown.reason if state != "ready" else "",
            memory_free_gb=(shown.memory_gb or 16.0) * (0.3 + 0.1 * self._random.random()),
        )  # fmt: skip

    def _replica(self, shown: ReplicaView, now: float, *, away: bool) -> ReplicaView:
        if shown.id == "smollm2.2" and away:
            return replace(shown, since=now - (self._step % 60 - 20))
        if shown.id == "smollm2.3" and self._step % 60 < 15:
            return replace(shown, progress=self._step % 60 / 15, since=now)
        line = self._tokens.setdefault(shown.id, [])
        line.append(max(0.0, 200 + 90 * math.sin(self._step / 6) + self._random.gauss(0, 12)))
        del line[:-60]
        return replace(
            shown, state="ready", reason="", progress=None, running=self._random.randint(0, 3),
            waiting=0, kv_usage=0.3 + 0.2 * math.sin(self._step / 9), tokens_per_s=line[-1],
            tokens_history=tuple(line), memory_gb=0.42,
        )  # fmt: skip

    def _version(self, shown: MirrorVersionView) -> MirrorVersionView:
        if shown.state != "pulling" or shown.bytes_total is None:
            return shown
        rate = 1e8 * (0.9 + 0.2 * self._random.random())
        share = self._step % 60 / 60
        if share > 0.9:
            return replace(shown, state="done", bytes_done=shown.bytes_total, rate=None)
        return replace(shown, bytes_done=int(shown.bytes_total * share), rate=rate)

    def _model(self, shown: ModelView, copies: tuple[ReplicaView, ...]) -> ModelView:
        own = [r for r in copies if r.model == shown.name]
        ready = [r for r in own if r.state == "ready"]
        rate = sum(r.tokens_per_s or 0 for r in ready) if ready else None
        running = sum(r.running or 0 for r in ready) if ready else None
        return replace(
            shown, replicas=ReplicaCount(len(ready), len(own)), tokens_per_s=rate,
            running=running, tokens_history=(*shown.tokens_history[-119:], rate),
            running_history=(*shown.running_history[-119:], running),
            waiting_history=(*shown.waiting_history[-119:], 0 if ready else None),
        )  # fmt: skip
