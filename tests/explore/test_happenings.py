"""Features of runs that are told entry by entry, against their definitions in other words."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from racegate.explore.features import lives, prefixes, steps
from racegate.explore.features.facts import RunFacts, SeenEntry, SeenFrame, SeenPreempt, SeenStep
from racegate.history.run import EngineResult
from racegate.scenario.settings import CacheMode, EngineSpec
from racegate.scenario.spec import OwnScenario, Request

INTERVAL = 4


def entry(step: int, request: str = "A", **known: Any) -> SeenEntry:
    fields = {
        "row": 0,
        "tokens": 1,
        "drafts": 0,
        "planned": 0,
        "computed": 0,
        "accepted": 1,
        "is_decode": True,
        "is_discarded": False,
        "hit": None,
        "blocks": (),
    }
    return SeenEntry(step=step, request=request, **{**fields, **known})


def a_request(name: str, **known: Any) -> Request:
    return Request(name=name, arrive=0, **{"prompt": (1,), "max_tokens": 9, **known})


def issued(step: int, *entries: SeenEntry, published: frozenset[int] = frozenset()) -> SeenStep:
    return SeenStep(
        step=step,
        entries=entries,
        rows=tuple(one.request for one in entries),
        preempted=(),
        in_flight=1,
        running=len(entries),
        waiting=(),
        blocks={},
        free_blocks=9,
        free_state_blocks=9,
        published=published,
        replayed=0,
    )


def facts(*moments: SeenStep | SeenFrame, k: int = 3, **known: Any) -> RunFacts:
    """A run of requests A and B in align mode. known: requests, delivered, finished, preemptions"""
    requests = known.get("requests", (a_request("A"), a_request("B")))
    engine = EngineSpec(
        cache_mode=CacheMode.ALIGN, draft_len_max=k, block_size=2, state_interval=INTERVAL
    )
    result = EngineResult(
        delivered=known.get("delivered", {}),
        finished=known.get("finished", {}),
        steps=len(moments),
        counters={},
        unmet_events=(),
    )
    return RunFacts(
        scenario=OwnScenario(name="s", title="", requests=requests, engine=engine),
        result=result,
        moments=moments,
        preemptions=known.get("preemptions", ()),
    )


def test_what_a_row_keeps_ends_where_it_ends() -> None:
    """Token by token: what is kept of a step, and which column of states each token is in."""
    for seed in range(400):
        _check_row(Random(seed))


def _check_row(draw: Random) -> None:
    is_decode = draw.random() < 0.8
    drafts = draw.randint(0, 3)
    one = entry(
        0,
        tokens=1 + drafts,
        drafts=drafts,
        computed=draw.randint(0, 9),
        accepted=draw.randint(1, 1 + drafts),
        is_decode=is_decode,
    )
    run = facts(issued(0, one))
    kept = list(range(one.computed + 1, one.computed + one.accepted + 1))
    offered = list(range(one.computed + 1, one.computed + one.tokens + 1))
    verifies = is_decode and drafts > 0
    whole = {token for token in offered if token % INTERVAL == 0}
    assert one.settled == kept[-1]
    assert steps.ends_column_within(run) == (
        verifies and bool(whole & set(kept)) and kept[-1] not in whole
    )
    assert steps.rejects_over_boundary(run) == (verifies and bool(whole - set(kept)))
    is_full = one.accepted == 1 + drafts
    assert steps.accepts_onto_boundary(run) == (verifies and is_full and kept[-1] in whole)
    assert steps.accepts_some(run) == (is_decode and 1 < one.accepted <= drafts)


@pytest.mark.parametrize("is_decode", [False, True])
@pytest.mark.parametrize("accepted", [1, 2])
@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("step", [1, 2])
def test_a_row_moves_after_a_high_count_in_the_step_behind_it(
    *, is_decode: bool, accepted: int, row: int, step: int
) -> None:
    run = facts(
        issued(0, entry(0, is_decode=is_decode, accepted=accepted)),
        issued(step, entry(step, row=row)),
    )
    asked = (is_decode, accepted, row, step)
    assert steps.moves_with_high_count(run) == (asked == (True, 2, 1, 1))


@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("tokens", [1, 2, 3, 4])
def test_a_chunk_has_the_width_of_a_row_only_where_there_are_drafts(k: int, tokens: int) -> None:
    chunk = facts(issued(0, entry(0, tokens=tokens, is_decode=False)), k=k)
    assert steps.is_chunk_of_width(chunk) == (k > 0 and tokens == 1 + k)
    assert steps.is_chunk_of_one(chunk) == (tokens == 1)
    decoding = facts(issued(0, entry(0, tokens=tokens)), k=k)
    assert not steps.is_chunk_of_width(decoding) and not steps.is_chunk_of_one(decoding)


def test_blocks_grow_in_a_row_if_two_steps_that_follow_each_other_take_some() -> None:
    for seed in range(100):
        _check_growth(Random(seed))


def _check_growth(draw: Random) -> None:
    tables: dict[str, tuple[int, ...]] = {"A": (), "B": ()}
    moments, grown, fresh = [], set(), 0
    for step in range(draw.randint(1, 6)):
        entries = []
        for name in tables:
            if draw.random() < 0.25:
                fresh += 1
                tables[name] = (*tables[name][draw.randint(0, 1) :], fresh)
                grown.add(step)
            entries.append(entry(step, name, blocks=tables[name]))
        moments.append(issued(step, *entries))
    assert prefixes.grows_in_a_row(facts(*moments)) == any(step + 1 in grown for step in grown)


@pytest.mark.parametrize(
    ("preempted", "chunks", "expected"),
    [("A", (True, True), True), ("A", (True, False), False), ("B", (True, True), False)],
)
def test_preempted_in_prefill_is_between_chunks_of_its_own(
    *, preempted: str, chunks: tuple[bool, ...], expected: bool
) -> None:
    moments = [
        issued(step, entry(step, "A", is_discarded=is_chunk), entry(step, "B"))
        for step, is_chunk in enumerate(chunks)
    ]
    preemption = SeenPreempt(step=2, request=preempted, is_forced=True)
    assert lives.is_preempted_in_prefill(facts(*moments, preemptions=(preemption,))) == expected


@pytest.mark.parametrize(
    ("finished", "last", "expected"),
    [("stop", 7, True), ("stop", 5, False), ("max_tokens", 7, False), ("abort", 7, False)],
)
def test_ended_by_its_token_is_stopped_and_by_no_other(
    *, finished: str, last: int, expected: bool
) -> None:
    run = facts(
        requests=(a_request("A", stop_token=7),),
        delivered={"A": (1, last)},
        finished={"A": finished},
    )
    assert lives.ends_by_token(run) == expected


def test_a_request_waits_before_it_entered_and_from_its_preemption_until_it_is_back() -> None:
    ran = {"A": {1, 2, 5}, "B": set(range(7))}
    moments = [
        issued(step, *(entry(step, name) for name in ran if step in ran[name])) for step in range(7)
    ]
    run = facts(*moments, preemptions=(SeenPreempt(step=3, request="A", is_forced=True),))
    assert [run.is_waiting("A", step) for step in range(7)] == [
        True, False, False, True, True, False, False,
    ]  # fmt: skip
    assert not any(run.is_waiting("B", step) for step in range(7))


@pytest.mark.parametrize(("is_decode", "prompt", "expected"), [
    (True, (1, 2, 3, 4, 5, 6), True),
    (True, (1, 2, 3, 4, 6, 6), False),
    (False, (1, 2, 3, 4, 5, 6), False),
])  # fmt: skip
def test_a_hit_on_a_decoded_state_is_on_what_a_decode_step_left(
    *, is_decode: bool, prompt: tuple[int, ...], expected: bool
) -> None:
    """The key is a column's tokens and the next one, which the state was made to continue with."""
    published = frozenset({7})
    frame = SeenFrame(
        step=0, iteration=1, delivered={"A": (4, 5)}, state_blocks={"A": (7,)}, published=published
    )
    run = facts(
        issued(0, entry(0, "A", is_decode=is_decode)),
        frame,
        issued(1, entry(1, "B", hit=INTERVAL, is_decode=False), published=published),
        requests=(a_request("A", prompt=(1, 2, 3)), a_request("B", prompt=prompt)),
    )
    assert prefixes.is_hit_behind_decode(run) == expected


@pytest.mark.parametrize(
    ("finished", "count", "expected"),
    [("stop", 3, True), ("stop", 2, False), ("max_tokens", 3, False)],
)
def test_ended_by_its_count_is_stopped_behind_so_many(
    *, finished: str, count: int, expected: bool
) -> None:
    run = facts(
        requests=(a_request("A", stop_after=3, stop_token=2),),
        delivered={"A": tuple(range(count))},
        finished={"A": finished},
    )
    assert lives.ends_by_count(run) == expected


def test_the_most_hits_of_a_step_are_of_one_step() -> None:
    hits = [entry(2, "A", hit=4), entry(2, "B", hit=8), entry(2, "C", hit=0), entry(2, "D")]
    before = issued(1, entry(1, "E", hit=4))
    assert prefixes.hits_in_a_step(facts(before, issued(2, *hits))) == 2
    assert prefixes.hits_in_a_step(facts(before)) == 1
    assert prefixes.hits_in_a_step(facts(issued(2, *hits[2:]))) == 0
