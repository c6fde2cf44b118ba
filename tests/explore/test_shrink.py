"""Laws of shrinking: what nothing needs goes, and every number goes to its least at once."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from racegate.explore.canonical import symbolic
from racegate.explore.shrink import Case, shrink
from racegate.history.schedule import FORCED, Hold, Schedule, parse_schedule
from racegate.scenario.expect import Expect
from racegate.scenario.settings import (
    CacheMode,
    DrafterKind,
    DraftSampling,
    EngineSpec,
    GraphMode,
    Layout,
    OutputEvent,
    Planning,
    TransferMode,
    Zeroing,
)
from racegate.scenario.spec import Abort, Gap, OwnScenario, Request, Rotate
from racegate.scenario.validation import validate

HOLDS = tuple(Hold(op=f"d2h:sampled@{step}", until=FORCED) for step in range(6))


def request(name: str) -> Request:
    """With everything that a request can do without."""
    return Request(
        name=name,
        arrive=4,
        prompt=(1, 2, 3, 4, 5, 6, 7),
        max_tokens=9,
        stop_after=8,
        stop_token=3,
        accepts=(3, 2, 1),
        temperature=0.7,
        grammar_modulus=2,
    )


EVERYTHING = validate(
    OwnScenario(
        name="everything",
        title="",
        steps_max=400,
        requests=(request("A"), request("B"), request("C")),
        engine=EngineSpec(
            depth=4,
            draft_len_max=3,
            drafter=DrafterKind.MTP,
            draft_sampling=DraftSampling.RANDOM,
            cache_mode=CacheMode.ALIGN,
            zeroing=Zeroing.FRESH,
            planning=Planning.SIDE_STREAM,
            output_event=OutputEvent.BEFORE_DRAFTER,
            graph_mode=GraphMode.FULL_DECODE,
            capture_rows=(1, 2, 4),
        ),
        events=(
            Gap(step=6, request="A"),
            Abort(step=9, request="B"),
            Rotate(step=7, requests=("B", "C")),
        ),
        expect=Expect(condense_moves=1),
    )
)


def shrunk(still_fails: Callable[[Case], bool]) -> Case:
    start = Case(scenario=EVERYTHING, schedule=Schedule(holds=HOLDS))
    found = shrink(start, still_fails, runs_max=10_000)
    assert found.is_minimal
    return found.case


def numbers(case: Case) -> list[tuple[int, ...]]:
    """Those of the scenario that can be smaller."""
    engine = case.scenario.engine
    return [
        (len(one.prompt), one.max_tokens, one.arrive, len(one.accepts), *one.accepts)
        for one in case.scenario.requests
    ] + [(engine.depth, engine.draft_len_max)]


def test_what_nothing_needs_is_gone() -> None:
    case = shrunk(lambda case: True)
    assert case.schedule == Schedule()
    (left,) = case.scenario.requests
    assert msgspec.structs.replace(left, name="", prompt=(1,), seed=0) == Request(
        name="", arrive=0, prompt=(1,), max_tokens=1, accepts=(1,)
    )
    engine = msgspec.structs.replace(EVERYTHING.engine, depth=2, draft_len_max=1)
    assert case.scenario.engine == msgspec.structs.replace(
        engine,
        draft_sampling=DraftSampling.GREEDY,
        cache_mode=CacheMode.NONE,
        zeroing=Zeroing.NONE,
        planning=Planning.INLINE,
        output_event=OutputEvent.AFTER_DRAFTER,
        graph_mode=GraphMode.EAGER,
    )
    assert (case.scenario.steps_max, case.scenario.events) == (1, ())
    assert case.scenario.expect == Expect()


NEEDED: dict[str, Callable[[OwnScenario], object]] = {
    "temperature": lambda s: s.requests[0].temperature,
    "stop_after": lambda s: s.requests[0].stop_after,
    "stop_token": lambda s: s.requests[0].stop_token,
    "grammar": lambda s: s.requests[0].grammar_modulus,
    "drawn drafts": lambda s: s.engine.draws_drafts,
    "columns": lambda s: s.engine.cache_mode is CacheMode.ALIGN,
    "zeroing": lambda s: s.engine.zeroing is Zeroing.FRESH,
    "planning": lambda s: s.engine.planning is Planning.SIDE_STREAM,
    "early output": lambda s: s.engine.output_event is OutputEvent.BEFORE_DRAFTER,
    "graphs": lambda s: s.engine.graph_mode is GraphMode.FULL_DECODE,
    "expectation": lambda s: s.expect != Expect(),
}


@pytest.mark.parametrize("needed", NEEDED)
def test_what_one_thing_needs_stays_and_nothing_else(needed: str) -> None:
    case = shrunk(lambda case: bool(NEEDED[needed](case.scenario)))
    assert [name for name, has in NEEDED.items() if has(case.scenario)] == [needed]
    assert case.schedule == Schedule() and case.scenario.events == ()


@pytest.mark.parametrize("needed", Layout)
def test_slots_stay_only_where_they_are_needed(needed: Layout) -> None:
    """They know no rotation, so it is gone before."""
    engine = msgspec.structs.replace(EVERYTHING.engine, layout=Layout.SLOTS)
    scenario = msgspec.structs.replace(EVERYTHING, engine=engine, events=())
    start = Case(scenario=scenario, schedule=Schedule())
    found = shrink(start, lambda case: case.scenario.engine.layout in (needed, Layout.SLOTS))
    assert found.case.scenario.engine.layout is needed


def test_a_number_goes_to_its_least_at_once() -> None:
    """What is in between is not asked for, where the least fails too."""
    whole = (7, 9, 4, 3, 3, 2, 1), (4, 3)
    least = (1, 1, 0, 1, 1), (2, 1)

    def is_whole_or_least(case: Case) -> bool:
        *requests, (depth, k) = numbers(case)
        return (depth in (4, 2) and k in (3, 1)) and all(
            value in (whole[0][place], least[0][min(place, 4)])
            for one in requests
            for place, value in enumerate(one)
        )

    assert numbers(shrunk(is_whole_or_least)) == list(least)


def test_steps_end_behind_what_comes_last() -> None:
    """The last event or arrival still happens, and one candidate is enough to get there."""
    case = shrunk(lambda case: case.scenario.events and case.scenario.steps_max in (400, 10))
    assert case.scenario.steps_max == 10
    assert [event.step for event in case.scenario.events] == [9]


def named(event: object) -> set[str]:
    """The requests of an event."""
    return {getattr(event, "request", None), *getattr(event, "requests", ())} - {None}


def test_a_request_goes_with_the_events_that_name_it() -> None:
    """And with no other: none can be removed alone."""

    def is_whole(case: Case) -> bool:
        left = {one.name for one in case.scenario.requests}
        return case.scenario.events == tuple(e for e in EVERYTHING.events if named(e) <= left)

    assert len(shrunk(is_whole).scenario.requests) == 1


@pytest.mark.parametrize("half", [HOLDS[:3], HOLDS[3:]])
def test_holds_go_by_halves(half: tuple[Hold, ...]) -> None:
    assert shrunk(lambda case: case.schedule.holds in (HOLDS, half)).schedule.holds == half


@pytest.mark.parametrize("carried", TransferMode)
def test_no_step_carries_prefixes_in_another_way(carried: TransferMode) -> None:
    """A finding of a NIC would be told of streams if these lack the edge too."""
    engine = EngineSpec(cache_mode=CacheMode.OFFLOAD, transfers=carried, depth=4)
    scenario = msgspec.structs.replace(EVERYTHING, engine=engine, events=())
    tried = []

    def still_fails(case: Case) -> bool:
        tried.append(case.scenario.engine)
        return case.scenario.engine.cache_mode is CacheMode.OFFLOAD

    found = shrink(Case(scenario=scenario, schedule=Schedule()), still_fails)
    assert found.case.scenario.engine.depth == 2 and len(tried) > 5
    assert {one.transfers for one in tried} == {carried}
    assert {one.cache_mode for one in tried} == {CacheMode.OFFLOAD, CacheMode.NONE}


def test_a_step_is_named_by_how_often_its_request_was_scheduled_before_it() -> None:
    held = parse_schedule(["d2h:counts@3 until host:look@1"])
    named = symbolic(held, {3: ("A",), 1: ("B", "A"), 2: ("A",)}, prefer="A")
    assert named.texts() == ("d2h:counts@A.2 until host:look@A.0",)
