"""Where one more replica goes, and why not elsewhere."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from llmgw_core.catalog.model import Model, Profile
from llmgw_core.nodes.facts import NodeState
from llmgw_core.placement.place import booking_for, headroom_free, place
from llmgw_core.placement.rooms import Booking, Room, Weights, book

CPU = Profile("cpu", engine="llamacpp", min_memory_gb=4, cpu_cores=2)
MODEL = Model("m", "/w/m.gguf", (CPU,))


def room(name: str, **values: object) -> Room:
    given = {"engines": frozenset({"llamacpp"}), "memory_gb": 16.0, "cores": 8.0, **values}
    return Room(name, **given)  # type: ignore[arg-type]


def reasons(model: Model, *rooms: Room) -> str:
    placed, obstacles = place(model, {r.name: r for r in rooms})
    assert placed is None
    return " | ".join(f"{o.node}: {o.reason}" for o in obstacles)


def test_cpu_replicas_spread_over_the_emptiest_nodes() -> None:
    rooms = {"a": room("a", replicas=1), "b": room("b", memory_gb=12.0), "c": room("c")}
    placed, _ = place(MODEL, rooms)
    assert placed is not None
    assert placed.nodes == ("c",)
    assert "no replica there before" in placed.why


def test_gpu_replicas_pack_onto_the_fullest_node_that_fits() -> None:
    gpu = Profile("gpu", gpu_class="l4", gpus_per_node=2)
    engines = frozenset({"vllm"})
    rooms = {
        "empty": room("empty", gpu_class="l4", gpus=8, engines=engines),
        "full": room("full", gpu_class="l4", gpus=4, booked_gpus=3, engines=engines),
        "half": room("half", gpu_class="l4", gpus=4, booked_gpus=2, engines=engines),
    }
    placed, obstacles = place(Model("m", "/w", (gpu,)), rooms)
    assert placed is not None
    assert placed.nodes == ("half",)
    assert [o.reason for o in obstacles] == ["needs 2 GPUs, 1 are free"]


def test_every_refusal_is_a_reason_that_says_what_is_missing() -> None:
    small = room("small", memory_gb=3.0)
    busy = room("busy", booked_cores=7.0)
    bare = room("bare", engines=frozenset())
    away = room("away", state=NodeState.UNREACHABLE, reason="no answer")
    text = reasons(MODEL, small, busy, bare, away)
    assert "small: needs 4 GiB of memory, 3.0 are free" in text
    assert "busy: needs 2 cores, 1 are free" in text
    assert "bare: engine llamacpp is not installed" in text
    assert "llmgw run node provision bare" in text
    assert "away: node is unreachable (no answer)" in text


def test_labels_decide_and_are_named() -> None:
    picky = replace(CPU, node_selector={"disk": "nvme"})
    model = Model("m", "/w", (picky,))
    assert "label disk is not set, not nvme" in reasons(model, room("a"))
    placed, _ = place(model, {"b": room("b", labels={"disk": "nvme"})})
    assert placed is not None


def test_what_is_unknown_counts_as_enough() -> None:
    unknown = Room("a")
    placed, _ = place(MODEL, {"a": unknown})
    assert placed is not None


def test_foreign_memory_counts_even_where_the_books_are_empty() -> None:
    assert "needs 4 GiB of memory, 2.0 are free" in reasons(MODEL, room("a", available_gb=2.0))


def test_a_loading_replica_keeps_its_memory_although_it_has_not_taken_it_yet() -> None:
    loading = Booking("m.1", "a", memory_gb=10.0, resident_gb=1.0)
    rooms = book([room("a", available_gb=12.0)], [loading])
    assert rooms["a"].free_memory_gb == 3.0


def test_the_profile_of_highest_priority_wins_and_ties_go_by_declaration() -> None:
    low, high, tie = (replace(CPU, name=n, priority=p) for n, p in
                      (("low", 0), ("high", 5), ("tie", 5)))  # fmt: skip
    placed, _ = place(Model("m", "/w", (low, high, tie)), {"a": room("a")})
    assert placed is not None
    assert placed.profile.name == "high"


def test_no_node_at_all_is_said() -> None:
    placed, obstacles = place(MODEL, {})
    assert placed is None
    assert obstacles[0].reason == "no node is configured"


sizes = st.floats(min_value=0.5, max_value=64).map(lambda x: round(x, 1))


@given(st.lists(st.tuples(sizes, st.integers(1, 32)), max_size=6), sizes, st.integers(1, 8))
def test_headroom_is_exactly_what_placing_finds(
    nodes: list[tuple[float, int]], memory: float, cores: int
) -> None:
    profile = Profile("cpu", engine="llamacpp", min_memory_gb=memory, cpu_cores=cores)
    model = Model("m", "/w", (profile,))
    rooms = {f"n{i}": room(f"n{i}", memory_gb=m, cores=float(c))
             for i, (m, c) in enumerate(nodes)}  # fmt: skip
    expected = headroom_free(model, rooms)
    count = 0
    while (placed := place(model, rooms)[0]) is not None:
        node = placed.nodes[0]
        rooms[node] = rooms[node].with_booking(booking_for(str(count), node, profile))
        left = rooms[node]
        assert (left.free_memory_gb or 0) >= -1e-9
        assert (left.free_cores or 0) >= -1e-9
        count += 1
    assert count == expected


def test_headroom_is_unknown_where_nothing_bounds_it() -> None:
    free = replace(CPU, min_memory_gb=None, cpu_cores=None)
    assert headroom_free(Model("m", "/w", (free,)), {"a": room("a")}) is None


def test_among_equals_the_node_that_holds_the_weights_comes_first() -> None:
    weights = Weights("qwen/v1", 4.0)
    held = frozenset({"qwen/v1"})
    rooms = {"big": room("big", memory_gb=64.0), "held": room("held", weights=held)}
    placed, _ = place(MODEL, rooms, weights)
    assert placed is not None
    assert placed.nodes == ("held",)
    assert "the weights are there" in placed.why
    crowded = {**rooms, "held": replace(rooms["held"], replicas=1)}
    placed, _ = place(MODEL, crowded, weights)
    assert placed is not None
    assert placed.nodes == ("big",), "spreading over nodes counts more than a fetch"


def test_a_node_without_disk_for_the_weights_is_refused_with_figures() -> None:
    weights = Weights("qwen/v1", 4.0)
    full = room("full", disk_free_gb=3.0)
    placed, obstacles = place(MODEL, {"full": full}, weights)
    assert placed is None
    assert obstacles[0].reason == "needs 4.0 GiB of disk for the weights, 3.0 GiB are free"
    tiny = {"tiny": room("tiny", disk_free_gb=0.06)}
    _, obstacles = place(MODEL, tiny, Weights("qwen/v1", 0.09))
    assert obstacles[0].reason == "needs 92 MiB of disk for the weights, 61 MiB are free"
    for fine in (replace(full, weights=frozenset({"qwen/v1"})), replace(full, disk_free_gb=None)):
        assert place(MODEL, {"full": fine}, weights)[0] is not None


def test_a_node_whose_engine_cannot_load_the_model_is_refused_with_its_reason() -> None:
    rooms = {"old": room("old", memory_gb=64.0), "new": room("new")}
    barred = {"old": "llama.cpp b1 cannot load it: unknown architecture 'foo'"}
    placed, obstacles = place(MODEL, rooms, None, barred)
    assert placed is not None
    assert placed.nodes == ("new",)
    assert obstacles[0].reason == barred["old"]
    assert headroom_free(MODEL, rooms, None, barred) == headroom_free(MODEL, {"new": room("new")})
