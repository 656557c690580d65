"""What was asked of replicas outlives the controller, and ends with the run that was meant."""

from pathlib import Path

import pytest

from llmgw_core.controller.marks import FILE, KEPT_S, MarkBook
from llmgw_core.controller.replica import Phase
from llmgw_core.controller.routes import route_models
from llmgw_core.controller.world import Asked, Mark
from llmgw_core.errors import LlmgwError
from llmgw_core.nodes.instance import Endpoint
from tests.controller.worlds import model, replica

ASKED = Mark("", Asked.RESTART, "anna asked for a restart", 5.0)


async def test_a_mark_is_found_by_the_next_controller(tmp_path: Path) -> None:
    runs = replica(model(), 1, "a", token="one")
    book = MarkBook(tmp_path)
    await book.load()
    await book.add([runs], ASKED, [runs])
    again = MarkBook(tmp_path)
    await again.load()
    assert again.marks == {"one": Mark("m.1", Asked.RESTART, "anna asked for a restart", 5.0)}


async def test_marks_of_runs_that_ended_and_very_old_ones_are_dropped(tmp_path: Path) -> None:
    first, away = (replica(model(), n, "a", token=f"{n}") for n in (1, 2))
    book = MarkBook(tmp_path)
    await book.add([first, away], ASKED, [first, away])
    anew = replica(model(), 1, "a", token="anew")
    third = replica(model(), 3, "a", token="3")
    await book.add([third], ASKED, [anew, third])
    assert set(book.marks) == {"2", "3"}
    late = Mark("", Asked.STOP, "", KEPT_S + 6.0)
    await book.add([third], late, [third])
    assert {run: m.asked for run, m in book.marks.items()} == {"3": Asked.STOP}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"x": 1}', '{"x": {"asked": "dance"}}'])
async def test_a_file_that_cannot_be_read_is_no_reason_not_to_start(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / FILE).write_text(text)
    book = MarkBook(tmp_path)
    await book.load()
    assert book.marks == {}


async def test_what_cannot_be_kept_is_refused_and_counts_for_nothing(tmp_path: Path) -> None:
    book = MarkBook(tmp_path / "gone")
    with pytest.raises(LlmgwError, match="was not kept: No such file"):
        await book.add([replica(model(), 1, "a", token="one")], ASKED, [])
    assert book.marks == {}


def test_a_replica_behind_the_fence_is_no_target_and_the_others_are() -> None:
    of = model(count=2)
    both = [replica(of, n, "a", port=9000 + n) for n in (1, 2)]
    reached = {r.id: Endpoint("10.0.0.1", r.port or 0) for r in both}
    (route,) = route_models([of], both, reached, {}, {}, fenced={"m.1"})
    assert [target.id for target in route.targets] == ["m.2"]
    (alone,) = route_models([of], both[:1], reached, {}, {"m": "why"}, fenced={"m.1"})
    assert (alone.targets, alone.state, alone.reason) == ((), "pending", "why")
    assert both[0].phase is Phase.READY
