"""Hypothesis strategies: valid models of every kind, and tables of any shape."""

from __future__ import annotations

import datetime

from hypothesis import strategies as st

from llmgw_core.catalog.model import Model, Profile, RoutingProfile, Scaling, Slo

words = st.text(min_size=1, max_size=30).filter(lambda t: t.isprintable() and t == t.strip())
ODD_NAMES = ("org/model:7b Q4", "..", ".hidden", "a%2Fb", "émoji 🦙", "CON", "x" * 200)
odd_names = st.one_of(words, st.sampled_from(ODD_NAMES))
arguments = st.text(max_size=30).filter(lambda t: "\0" not in t)
env_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
seconds = st.one_of(
    st.integers(1, 10**7).map(float),
    st.floats(1e-6, 1e7),
    st.integers(1, 10**6).map(lambda ms: ms / 1000),
)
amounts = st.one_of(st.none(), st.floats(0, 1e6), st.integers(0, 4096).map(float))
labels = st.dictionaries(words, arguments, max_size=3)


@st.composite
def profiles(draw: st.DrawFn, name: str) -> Profile:
    engine = draw(st.sampled_from(["llamacpp", "vllm"]))
    on_gpu = engine == "vllm" or draw(st.booleans())
    tp, pp, nodes = 1, 1, 1
    if engine == "vllm":
        nodes = draw(st.sampled_from([1, 2]))
        tp, pp = draw(st.sampled_from([2, 4, 8])), draw(st.sampled_from([1, 2]))
    return Profile(
        name=name,
        engine=engine,
        gpu_class=draw(words) if on_gpu else None,
        tp=tp,
        pp=pp,
        nodes=nodes,
        gpus_per_node=tp * pp // nodes if on_gpu else 0,
        args=tuple(draw(st.lists(arguments, max_size=4))),
        env=draw(st.dictionaries(env_names, arguments, max_size=3)),
        weight=draw(st.floats(0.001, 1000)),
        priority=draw(st.integers(0, 1000)),
        startup_timeout_s=draw(seconds),
        min_memory_gb=draw(amounts),
        cpu_cores=draw(amounts),
        node_selector=draw(labels),
    )


@st.composite
def scalings(draw: st.DrawFn) -> Scaling:
    least = draw(st.integers(0, 20))
    return Scaling(least, draw(st.integers(least, 30)), draw(seconds))


@st.composite
def models(draw: st.DrawFn, names: st.SearchStrategy[str] = odd_names) -> Model:
    """A valid added model without aliases and fallbacks of other models."""
    name = draw(names)
    profile_names = draw(st.lists(words, min_size=1, max_size=3, unique=True))
    limits = st.one_of(st.none(), st.integers(1, 10**7))
    latencies = st.one_of(st.none(), seconds)
    texts = st.one_of(st.none(), st.text(max_size=60).filter(lambda t: t.strip() != ""))
    aliases = draw(st.lists(words.filter(lambda w: w != name), max_size=3, unique=True))
    return Model(
        name=name,
        source=draw(st.sampled_from(["/w/a b.gguf", "mirror:m/v1/", "hf:o/r@main:x.gguf"])),
        profiles=tuple(draw(profiles(p)) for p in profile_names),
        aliases=tuple(aliases),
        description=draw(texts),
        context_length=draw(limits),
        max_output=draw(limits),
        scaling=draw(scalings()),
        slo=Slo(draw(latencies), draw(latencies)),
        routing_profile=draw(st.sampled_from(RoutingProfile)),
        model_class=draw(st.sampled_from(["standard", "critical", "best-effort"])),
        declared=False,
        changed_by=draw(st.one_of(st.none(), st.text(max_size=20))),
        changed_at=draw(st.one_of(st.none(), st.floats(0, 4e9))),
    )


leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10),
    st.datetimes(), st.dates(), st.just(datetime.time(1, 2)),
)  # fmt: skip
known_keys = st.sampled_from(
    ["name", "source", "aliases", "scaling", "min", "max", "idle_timeout", "profiles", "engine",
     "tp", "nodes", "env", "args", "gpu_class", "class", "owner", "slo", "ttft_p99", "models",
     "gateway", "port", "reserve", "port_range", "jump", "labels", "local", "classes", "rank",
     "owners", "keys", "console", "cluster", "controller", "tick", "fallbacks", "weight"]
)  # fmt: skip
keys = st.one_of(known_keys, st.text(max_size=8))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=6)),
    max_leaves=25,
)
tables = st.dictionaries(keys, values, max_size=10)
