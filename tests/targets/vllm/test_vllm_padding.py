"""What pads a forward pass, and which of its tokens are of images."""

from __future__ import annotations

import msgspec

from racegate.scenario.spec import Image, Request, Scenario
from racegate.targets.common.inside.watch import Values
from racegate.targets.vllm.inside.scripted.model import Script
from racegate.targets.vllm.inside.scripted.params import penalties_of
from racegate.targets.vllm.inside.truth.compare import CHOSEN, MODEL, Truth
from racegate.targets.vllm.inside.truth.course import Course, place_in_image
from racegate.targets.vllm.inside.truth.padding import NOWHERE, padding_of
from racegate.targets.vllm.wire import PositionMode, SchedulingMode

SHOWN = Request(
    name="A",
    arrive=0,
    prompt=(5, 6, 7, 8),
    max_tokens=4,
    accepts=(1,),
    images=(Image(start=1, grid=(1, 1, 2)),),
)
SCENARIO = Scenario(name="s", title="t", requests=(SHOWN,))


def wrong(values: Values) -> list[str]:
    return [field for field, _, used, true in padding_of("graph", values, 2) if used != true]


def test_tokens_that_pad_a_pass_are_marked_and_written_nowhere() -> None:
    right: Values = {"slots 0": [4, 5, NOWHERE], "is_padding": [False, False, True]}
    assert wrong(right) == []
    assert wrong({**right, "slots 0": [4, 5, 6]}) == ["graph.slots"]
    assert wrong({**right, "is_padding": [False, True, True]}) == ["graph.is_padding"]
    assert wrong({**right, "is_padding": [False, False, False]}) == ["graph.is_padding"]
    assert list(padding_of("graph", {"is_padding": []}, 2)) == []  # a release that does not say


def test_a_token_of_an_image_is_known_by_its_place() -> None:
    assert [place_in_image(SHOWN, place) for place in range(5)] == [0, 1, 2, 0, 0]


def untrue(images: list[int]) -> list[str]:
    says = Script(SCENARIO, draft_len=0, positions=PositionMode.TEXT)
    asked = {"tokens": 4, "drafts": 0, "computed": 0, "known": 4, "blocks": []}
    given = {"tokens": says.prompt(0), "positions": [0, 1, 2, 3], "images": images}
    truth = Truth(says, [], penalties_of)
    lengths = {"rows": ["A"], "query_start": [0, 4], "seq_lens": [4], "slots": []}
    seen = ((CHOSEN, {"asked": None, "requests": {"A": asked}}), ("attention", lengths))
    truth.read([(1, name, values) for name, values in (*seen, (MODEL, given))])
    return [msgspec.structs.asdict(one)["what"] for one in truth.untrue]


def test_images_stand_in_their_places_of_the_prompt_and_shift_nothing_of_text() -> None:
    assert untrue([0, 1, 2, 0]) == []
    (found,) = untrue([0, 1, 1, 0])
    assert found == f"{MODEL}.images of request A in row 0, token 2"
    assert len(untrue([1, 2, 0, 0])) == 3


def test_the_host_knows_all_tokens_where_a_step_waits_for_the_one_before() -> None:
    says = Script(SCENARIO, draft_len=1)
    for scheduling, unknown in ((SchedulingMode.ASYNC, {"A": 0}), (SchedulingMode.SYNC, {})):
        course = Course(says, most=512, scheduling=scheduling)
        asked = {"tokens": 4, "drafts": 0, "computed": 0, "known": 4, "blocks": []}
        course.step(1, {"A": asked})
        drafted = {**asked, "tokens": 2, "drafts": 1, "known": None}
        row = course.step(2, {"A": drafted})["A"]
        assert row.rejected == 1 and course.unknown([row], {}) == unknown
        is_told = scheduling is SchedulingMode.SYNC
        later = course.step(3, {"A": drafted}, is_told=is_told)["A"]
        assert later.rejected_before == len(unknown)
        assert course.unknown([row], {"A": asked}) == {}, "it comes again"
